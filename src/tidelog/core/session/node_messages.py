"""What one storage node asks another, and what that one answers.  No state.

A session between nodes has a *leader* side, which asks, and a *follower* side, which only answers:
two nodes that both lead streams have two sessions, one in each direction.  The first message on a
connection decides what the connection is: ``NodeSessionBegin`` makes it the control connection of
a new session, ``LaneOpen`` one of its log connections (a *lane*).  Every request has one answer
but a ``Carry`` that leaves it to the group commit of its epoch (``has_answer``); a connection
answers in the order of the requests that have answers.

What the messages carry is opaque here.  A bulky part of it is attached to the frame of a ``Carry``.
Which error answers what, and what becomes of the session then: docs/node-sessions.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from tidelog.core.session.messages import Ack, Epoch, Error, Natural, Secret, Text
from tidelog.limits import NODE_ANSWER_MESSAGES_MAX

NODE_PROTOCOL: Final = 1
"""Version of the protocol between nodes; both must speak the same one."""

NO_EPOCH: Final = 0
"""Of a message that no group commit waits for."""

CARRY_OVERHEAD_BYTES: Final = 64
"""What a ``Carry`` has on the wire besides its message, at most."""


class NodeErrorCode(IntEnum):
    """Why a request failed.  Numbers are part of the protocol and are never used again."""

    UNEXPECTED_MESSAGE = 1
    """Not a message that may stand here; or bytes that are none."""
    UNSUPPORTED_PROTOCOL = 2
    WRONG_CLUSTER = 10
    WRONG_NODE = 11
    """The request is for another node, or comes from an impossible one."""
    BAD_LANES = 12
    """Too few or too many log connections."""
    NO_SESSION = 13
    WRONG_SECRET = 30
    NO_LANE = 31
    """There is no such log connection, or it is taken."""
    WRONG_LANE = 32
    """A log channel has one log connection, and this is another one."""
    TOO_MANY_CHANNELS = 33
    BAD_EPOCH = 40
    """A second group commit of an epoch, one of no epoch, or one that counts less than has come."""
    EPOCH_COMMITTED = 41
    """A message of an epoch that was answered for, or one that its group commit does not count."""
    EPOCH_WENT_BACK = 42
    """A message of an epoch below an earlier one of its log channel."""
    TOO_MUCH = 50
    """More is under way than was agreed."""
    BAD_PAYLOAD = 51
    """What was carried is no message between replicas."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages; the tag says which one it is."""


# -- control connection --------------------------------------------------------------------------


class NodeSessionBegin(_Message, frozen=True, tag=64):
    """Begin a session.  It takes the place of any other between these two in this direction.

    There is no position to compare: the terms of the streams see to that.
    """

    protocol_version: Natural
    cluster_id: Text
    source: Natural
    target: Natural
    lanes: Natural
    """How many log connections there will be."""


# -- log connections -----------------------------------------------------------------------------


class LaneOpen(_Message, frozen=True, tag=72):
    """Make this connection a log connection of the session that ``source`` has begun."""

    source: Natural
    secret: Secret
    lane: Natural


class Carry(_Message, frozen=True, tag=73):
    """A message for the log stream of this channel, and maybe the group commit of its epoch."""

    channel: Natural
    epoch: Epoch
    """The group commit that is to answer for it, or ``NO_EPOCH``: then it is answered when it was
    delivered."""
    message: bytes
    commit: Natural = 0
    """Not 0: answer when all that messages of epochs up to this one caused to be written is
    durable.  So many are of this epoch, this one included; some may be on their way."""


class ChannelDispose(_Message, frozen=True, tag=74):
    """The log channel is not used any more."""

    channel: Natural


# -- answers -------------------------------------------------------------------------------------


class Said(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """What the replica of a log stream has to say to the node that asks."""

    channel: Natural
    message: bytes


class NodeSessionBegun(_Message, frozen=True, tag=80):
    secret: Secret
    """To be shown when log connections are opened."""


class NodeGroupCommitted(_Message, frozen=True, tag=81):
    """The epoch is durable here; all that replicas had to say by then is ``said``."""

    epoch: Epoch
    said: Annotated[tuple[Said, ...], msgspec.Meta(max_length=NODE_ANSWER_MESSAGES_MAX)]


NodeRequest: TypeAlias = NodeSessionBegin | LaneOpen | Carry | ChannelDispose
NodeAnswer: TypeAlias = NodeSessionBegun | NodeGroupCommitted | Ack | Error


def has_answer(request: NodeRequest) -> bool:
    """Say whether a request is answered: most messages of an epoch leave that to another one."""
    return not isinstance(request, Carry) or request.epoch == NO_EPOCH or request.commit != 0


def lane_of(channel: int, lanes: int) -> int:
    """Say which log connection a channel uses: always the same, so that its order is kept."""
    return channel % lanes
