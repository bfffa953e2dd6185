"""The replicated state of a metadata node as plain values.  No state of its own."""

from __future__ import annotations

import msgspec

from tidelog.core.order.state import OrderState
from tidelog.types import NO_NODE, NO_REVISION, NodeId, Revision


class StorageNode(msgspec.Struct, frozen=True, array_like=True):
    """A registered storage node; ``collector`` is the metadata node that asks and answers it."""

    node: NodeId
    address: str
    collector: NodeId = NO_NODE
    assignment: int = 0
    """Counts the assignments of the whole repository, so that a node obeys the newest."""
    placements: int = 0
    """The last change of what it hosts, counted over all nodes and all their registrations."""
    revision: Revision = NO_REVISION
    """Rises with its address and with what it hosts (M5 of ``machine``)."""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A node of the metadata repository that was named."""

    node: NodeId
    address: str
    revision: Revision


class MetadataState(msgspec.Struct, frozen=True, array_like=True):
    """All of it, as a Raft snapshot holds it."""

    order: OrderState
    nodes: tuple[StorageNode, ...]
    assignments: int
    placements: int
    changes: int = 0
    is_paused: bool = False
    paused_revision: Revision = NO_REVISION
    members: tuple[Member, ...] = ()
    absent_revision: Revision = NO_REVISION
    refused: tuple[tuple[NodeId, int], ...] = ()
    """Origins and numbers of changes that were refused lately, oldest first."""
