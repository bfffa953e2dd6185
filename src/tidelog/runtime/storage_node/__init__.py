"""The shell of a storage node: replicas, hosting and sessions over one disk.  No state."""

from tidelog.runtime.storage_node.appends import Placed
from tidelog.runtime.storage_node.node import StorageNode
from tidelog.runtime.storage_node.options import StorageNodeOptions
from tidelog.runtime.storage_node.status import FollowerStatus, ReplicaStatus

__all__ = [
    "FollowerStatus",
    "Placed",
    "ReplicaStatus",
    "StorageNode",
    "StorageNodeOptions",
]
