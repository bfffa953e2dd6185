"""What the two sides of a session between nodes want done, and how they are tuned.  No state.

Outputs are carried out in the order in which they were handed over.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog import limits
from tidelog.core.session.messages import Error
from tidelog.core.session.node_messages import NodeAnswer, NodeErrorCode, NodeRequest
from tidelog.core.session.output import CONTROL
from tidelog.errors import BadOption
from tidelog.types import NodeId

__all__ = ["CONTROL"]

Attachment: TypeAlias = tuple[bytes | memoryview, ...]
"""Bytes to be sent one behind the other, without being joined before."""

TICKS_MAX = 1 << 20


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in ticks, sizes in bytes; the rest are counts."""

    lanes: int = 4
    """Log connections of a session."""
    window: int = limits.IN_FLIGHT_REQUESTS_MAX
    """Messages with answers of their own on their way on one log connection; others wait here."""
    underway_bytes_max: int = limits.NODE_UNDERWAY_BYTES_MAX
    """What a session takes before it is group-committed; the same on both sides."""
    underway_max: int = limits.NODE_UNDERWAY_MAX
    commits_max: int = 3
    """Group commits on their way: one whose sync runs at the follower, one that will go into the
    next sync there, one that travels.  What comes meanwhile leaves with the next one."""
    epoch_bytes_max: int = limits.NODE_EPOCH_BYTES_MAX
    """What one group commit answers for: a follower that receives much is not silent for long."""
    channels_max: int = limits.STREAMS_MAX
    """Log channels of a session."""
    patience_ticks: int = 250
    """A session in which nothing is answered for so long is given up."""
    keep_ticks: int = 20
    """How long room is kept for a channel that was turned away."""
    retry_ticks: int = 5
    """How long to wait before the next session is tried."""

    def __post_init__(self) -> None:
        for name, limit in BOUNDS.items():
            if not 1 <= getattr(self, name) <= limit:
                raise BadOption(f"{name} is between 1 and {limit}")


BOUNDS = {
    "lanes": limits.NODE_LANES_MAX,
    "window": limits.IN_FLIGHT_REQUESTS_MAX,
    "underway_bytes_max": limits.NODE_UNDERWAY_BYTES_MAX,
    "underway_max": limits.NODE_UNDERWAY_MAX,
    "commits_max": limits.NODE_GROUP_COMMITS_MAX,
    "epoch_bytes_max": limits.NODE_EPOCH_BYTES_MAX,
    "channels_max": limits.STREAMS_MAX,
    "patience_ticks": TICKS_MAX,
    "keep_ticks": TICKS_MAX,
    "retry_ticks": TICKS_MAX,
}


# -- of the leader -------------------------------------------------------------------------------


class Connect(msgspec.Struct, frozen=True, gc=False):
    """Make a connection to the follower; tell ``connected`` or ``lost`` with its number."""

    connection: int
    lane: int
    """``CONTROL``, or which log connection it will be."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Send a request on a connection; ``answered`` is told of the answer."""

    connection: int
    request: NodeRequest
    attachment: Attachment = ()


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Close a connection, or stop making it; nothing is to be told of it any more."""

    connection: int


class Heard(msgspec.Struct, frozen=True, gc=False):
    """The follower's replica of a log stream says something to this node's one."""

    source: NodeId
    channel: int
    message: bytes


LeaderOutput: TypeAlias = Connect | Ask | Leave | Heard


class LeaderCounters(msgspec.Struct):
    """What the leader's side has done since it began; for metrics."""

    sessions: int = 0
    """Sessions that were opened."""
    lost: int = 0
    """Sessions that ended, opened or not."""
    carries: int = 0
    group_commits: int = 0
    heard: int = 0
    not_taken: int = 0
    """Messages for which there was no session or no room: who sent them will repeat them."""
    ignored: int = 0
    """Words about connections that are gone."""
    refusal: Error | None = None
    """The last error that the follower answered with."""


# -- of the follower -----------------------------------------------------------------------------


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Answer the oldest open request of a connection."""

    connection: int
    answer: NodeAnswer


class Hang(msgspec.Struct, frozen=True, gc=False):
    """Close a connection once what was said on it is sent; nothing is to be told of it any more."""

    connection: int


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the replica of a log stream, then tell ``delivered`` with the ticket."""

    ticket: int
    source: NodeId
    channel: int
    message: bytes
    attachment: bytes | memoryview


FollowerOutput: TypeAlias = Reply | Hang | Deliver


class FollowerCounters(msgspec.Struct):
    """What the follower's side has done since it began; for metrics."""

    sessions: int = 0
    superseded: int = 0
    """Sessions in whose place the same node began another one."""
    carries: int = 0
    group_commits: int = 0
    said: int = 0
    ignored: int = 0
    """Words about connections and messages of sessions that are gone."""
    errors: dict[NodeErrorCode, int] = msgspec.field(default_factory=dict)
