"""What the processes of a cluster say to one another.  No state.

A connection begins with a ``PeerHello``, which is answered by ``PeerWelcome`` or ``Refused``.  From
then on every frame holds one ``ClusterMessage``: a MessagePack array whose first element, a
number, says which one it is.  Any of them may be lost; none has an attachment.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.messages import Collect, CommitResult, NodeReport, Share
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.output import Refused as OperatorRefused
from tidelog.core.operator.output import Result
from tidelog.core.raft.messages import Message as RaftMessage
from tidelog.core.replica.messages import ChangeKind, FromOperator, ToOperator
from tidelog.errors import BadFrame
from tidelog.formats.checksum import Buffer
from tidelog.formats.message_fields import Message as GreetingMessage
from tidelog.formats.message_fields import Natural, Text
from tidelog.formats.messages import Refused
from tidelog.formats.replica_messages import decode_replica_message, encode_replica_message
from tidelog.limits import (
    METADATA_VIEW_BYTES_MAX,
    NODE_ADDRESS_CHARS_MAX,
    RAFT_MEMBERS_MAX,
)
from tidelog.types import NO_NODE, NodeId, StreamId

CLUSTER_PROTOCOL_VERSION: Final = 1
CLUSTER_ID_BYTES: Final = 16

Address: TypeAlias = Annotated[str, msgspec.Meta(max_length=NODE_ADDRESS_CHARS_MAX)]
Members: TypeAlias = Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=RAFT_MEMBERS_MAX)]


# -- greeting ------------------------------------------------------------------------------------


class Purpose(Enum):
    """What a connection between two processes is for."""

    POST = "post"
    """Messages, in one direction."""
    SESSION = "session"
    """A connection of a session between storage nodes."""


class PeerHello(GreetingMessage, frozen=True):
    """The first message on a connection."""

    cluster_id: Annotated[bytes, msgspec.Meta(max_length=CLUSTER_ID_BYTES)]
    node: Natural
    """Who speaks."""
    target: Natural
    """Who is meant to be at this address; 0: whoever it is."""
    address: Address
    """Where the speaker listens for its peers."""
    purpose: Purpose
    version: Natural = CLUSTER_PROTOCOL_VERSION
    token: Text = ""

    def __repr__(self) -> str:
        """Without the token, which is nobody else's business."""
        return f"PeerHello(node={self.node}, target={self.target}, address={self.address!r})"


class PeerWelcome(GreetingMessage, frozen=True):
    """The answer to hello: go on."""

    node: Natural


Greeting: TypeAlias = PeerHello | PeerWelcome | Refused


# -- messages ------------------------------------------------------------------------------------


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of those that are defined here; tags from 200 on."""


class Ping(_Message, frozen=True, tag=200):
    """Are you there?"""

    number: int


class Pong(_Message, frozen=True, tag=201):
    number: int


class OperatorToNode(_Message, frozen=True, tag=202):
    """An operator's message to a replica; see ``for_node`` and ``of_operator``."""

    data: bytes


class NodeToOperator(_Message, frozen=True, tag=203):
    """A replica's answer to an operator; see ``for_operator`` and ``of_node``."""

    data: bytes


class AskChange(_Message, frozen=True, tag=204):
    """Change the metadata.  A repetition has the same ``number`` and a higher ``attempt``."""

    number: int
    attempt: int
    change: Change


class ChangeAnswer(_Message, frozen=True, tag=205):
    """What became of a change; ``error`` is empty, or the name of a class of errors.

    ``attempt``: the first one that the metadata node saw; earlier ones may have come to it before
    it was started anew.
    """

    number: int
    attempt: int
    error: Text = ""
    message: Text = ""


class ReadView(_Message, frozen=True, tag=206):
    """Tell me the metadata, unless it is what I know, and what changes in the next seconds.

    ``is_linearizable``: all that was answered before this was asked has to be in it.
    """

    number: int
    is_linearizable: bool
    known_number: int = -1
    known_version: int = -1
    known_leader: NodeId = NO_NODE
    known_members: Members = ()


class ViewAnswer(_Message, frozen=True, tag=207):
    """The metadata, as bytes of ``encode_view``.  ``number`` 0: nobody asked, but it changed."""

    number: int
    data: Annotated[bytes, msgspec.Meta(max_length=METADATA_VIEW_BYTES_MAX)]


class ViewSame(_Message, frozen=True, tag=208):
    """The metadata is what the asker knows."""

    number: int


class ViewLost(_Message, frozen=True, tag=209):
    """There is nobody to find out what is newest: ask again, or another one."""

    number: int


OperatorAction: TypeAlias = Literal["elect", "change", "abort"]


class OperatorRequest(_Message, frozen=True, tag=210):
    """What a person wants an operator to do about a stream."""

    number: int
    action: OperatorAction
    stream: StreamId
    kind: ChangeKind | None = None
    old: NodeId = NO_NODE
    new: NodeId = NO_NODE
    prefer: NodeId = NO_NODE
    """For ``elect``: who is to lead, if it can."""


class OperatorOutcome(_Message, frozen=True, tag=211):
    """What became of it."""

    number: int
    result: Result
    reason: OperatorRefused | None = None


class AskNode(_Message, frozen=True, tag=212):
    """A request of an administrator for another process, as bytes of ``encode_message``."""

    number: int
    request: bytes


class NodeAnswer(_Message, frozen=True, tag=213):
    number: int
    answer: bytes


ClusterMessage: TypeAlias = (
    RaftMessage
    | Share
    | Collect
    | CommitResult
    | NodeReport
    | Ping
    | Pong
    | OperatorToNode
    | NodeToOperator
    | AskChange
    | ChangeAnswer
    | ReadView
    | ViewAnswer
    | ViewSame
    | ViewLost
    | OperatorRequest
    | OperatorOutcome
    | AskNode
    | NodeAnswer
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_GREETINGS: Final[msgspec.msgpack.Decoder[Greeting]] = msgspec.msgpack.Decoder(Greeting)
_MESSAGES: Final[msgspec.msgpack.Decoder[ClusterMessage]] = msgspec.msgpack.Decoder(ClusterMessage)
_VIEWS: Final = msgspec.msgpack.Decoder(MetadataView)
_BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_greeting(greeting: Greeting) -> bytes:
    return _ENCODER.encode(greeting)


def decode_greeting(data: Buffer) -> Greeting:
    """What one says before anything else; BadFrame if it is not that."""
    try:
        return _GREETINGS.decode(data)
    except _BAD as error:
        raise BadFrame(f"not a greeting between processes of a cluster: {error}") from error


def encode_cluster_message(message: ClusterMessage) -> bytes:
    return _ENCODER.encode(message)


def decode_cluster_message(data: Buffer) -> ClusterMessage:
    """The message in a frame; BadFrame if it is none."""
    try:
        return _MESSAGES.decode(data)
    except _BAD as error:
        raise BadFrame(f"not a message between processes of a cluster: {error}") from error


def encode_view(view: MetadataView) -> bytes:
    return _ENCODER.encode(view)


def decode_view(data: Buffer) -> MetadataView:
    """The view in a ``ViewAnswer``; BadFrame if it is none."""
    try:
        return _VIEWS.decode(data)
    except _BAD as error:
        raise BadFrame(f"not a view of the metadata: {error}") from error


# -- operators and replicas ----------------------------------------------------------------------


def for_node(message: FromOperator) -> OperatorToNode:
    """Wrap what an operator says to a replica."""
    return OperatorToNode(encode_replica_message(message).message)


def for_operator(message: ToOperator) -> NodeToOperator:
    """Wrap what a replica says to an operator."""
    return NodeToOperator(encode_replica_message(message).message)


def of_operator(wrapped: OperatorToNode) -> FromOperator:
    """What an operator said; BadFrame if it is not for operators to say."""
    message = decode_replica_message(wrapped.data)
    if not isinstance(message, FromOperator):
        raise BadFrame(f"{type(message).__name__} is not for operators to say")
    return message


def of_node(wrapped: NodeToOperator) -> ToOperator:
    """What a replica said to an operator; BadFrame if it is not for replicas to say."""
    message = decode_replica_message(wrapped.data)
    if not isinstance(message, ToOperator):
        raise BadFrame(f"{type(message).__name__} is not for replicas to say")
    return message
