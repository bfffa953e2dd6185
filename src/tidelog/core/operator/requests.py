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
from tidelog.types import NodeId


def fence(operator: NodeId, row: Row, node: NodeId) -> FenceRequest:
    """Return the request that ends all terms before that of the row."""
    return FenceRequest(
        source=operator, target=node, stream=row.stream, term=row.term, is_first=row.is_first
    )


def add_follower(
    operator: NodeId, row: Row, leader: NodeId, follower: FollowerHead
) -> AddFollowerRequest:
    """Return the request that tells the leader of a fenced member."""
    return AddFollowerRequest(
        source=operator, target=leader, stream=row.stream, term=row.term, follower=follower
    )


def ask_status(operator: NodeId, row: Row, node: NodeId) -> StatusRequest:
    """Return the question how a replica is."""
    return StatusRequest(source=operator, target=node, stream=row.stream, term=row.term)


def drop(operator: NodeId, row: Row, node: NodeId) -> DropRequest:
    """Return the request to delete a replica that the row has nothing to do with."""
    return DropRequest(source=operator, target=node, stream=row.stream, term=row.term)
