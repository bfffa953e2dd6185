"""A node of the metadata repository as a part of a process."""

from tidelog.runtime.metadata_node.node import MetadataNode
from tidelog.runtime.metadata_node.timing import MetadataTiming

__all__ = ["MetadataNode", "MetadataTiming"]
