"""What operators ask of nodes in more than one place.  No state."""

from __future__ import annotations

from tidelog.core.operator.row import Row
from tidelog.core.replica.messages import (
    AddFollowerRequest,
    DropRequest,
    FenceRequest,
    FollowerHead,
    StatusRequest,
)
from tidelog.types import NodeId, StreamId, Term


def address(operator: NodeId, row: Row, node: NodeId) -> tuple[NodeId, NodeId, StreamId, Term]:
    """Return what every request to a node begins with."""
    return operator, node, row.stream, row.term


def fence(operator: NodeId, row: Row, node: NodeId) -> FenceRequest:
    """Return the request that ends all terms before that of the row."""
    return FenceRequest(*address(operator, row, node), is_first=row.is_first)


def add_follower(
    operator: NodeId, row: Row, leader: NodeId, follower: FollowerHead
) -> AddFollowerRequest:
    """Return the request that tells the leader of a fenced member."""
    return AddFollowerRequest(*address(operator, row, leader), follower=follower)


def ask_status(operator: NodeId, row: Row, node: NodeId) -> StatusRequest:
    """Return the question how a replica is."""
    return StatusRequest(*address(operator, row, node))


def drop(operator: NodeId, row: Row, node: NodeId) -> DropRequest:
    """Return the request to delete a replica that the row has nothing to do with."""
    return DropRequest(*address(operator, row, node))
