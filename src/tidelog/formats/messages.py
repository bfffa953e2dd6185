"""What clients ask and nodes answer.  No state.

Every message is a tagged MessagePack array; the tag says which struct it is.  Attachments are
batches one behind the other (``HEADER_BYTES`` and body, as in the WAL); the message says what
they are for.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from tidelog.errors import BadFrame
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.audit_messages import AuditAnswer, AuditRequest
from tidelog.formats.message_fields import (
    Message,
    Natural,
    PieceHeader,
    Placement,
    ReaderName,
    Sequences,
    Streams,
    Text,
    TopicName,
    Version128,
    WireReceipt,
    Word,
)
from tidelog.formats.plan_messages import OfferPlan

STAGES_MAX: Final = 1 << 16


# -- connection ----------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a client."""

    client: Text
    log_id: bytes = b""
    """The log that it expects; empty: whichever this is."""
    token: Text = ""
    """What shows that the client may come in, if the node asks for that."""

    def __repr__(self) -> str:
        """Without the token, which is nobody else's business."""
        return f"Hello(client={self.client!r}, log_id={self.log_id!r})"


class Welcome(Message, frozen=True):
    """The answer to hello."""

    log_id: bytes
    server: Text
    in_flight_max: Natural
    """Requests that the node takes from one connection before it stops reading."""


class Ping(Message, frozen=True):
    pass


class Cancel(Message, frozen=True):
    """Nobody waits for the answer to the request of this number any more.  Has no answer."""

    request: Natural


class Done(Message, frozen=True):
    """It was done, and there is nothing to tell."""


class Refused(Message, frozen=True):
    """The request failed."""

    error: Text
    """Name of the error's class in ``tidelog.errors``."""
    message: Text
    first_available: Natural = 0
    """For ``Trimmed``."""
    leader: Text = ""
    """For ``NotLeader``: the address of the node that leads, if known."""


# -- topics --------------------------------------------------------------------------------------


class ListTopics(Message, frozen=True):
    pass


class TopicNames(Message, frozen=True):
    names: tuple[str, ...]


class Describe(Message, frozen=True):
    topic: TopicName
    """Empty: the log's first topic."""


class CreateTopic(Message, frozen=True):
    topic: TopicName
    streams: Natural
    versions: Text
    replicas: Natural = 0
    """Of each log stream, in a cluster; 0: as many as are usual there."""


class AddStreams(Message, frozen=True):
    topic: TopicName
    count: Natural


class TopicDescription(Message, frozen=True):
    """A topic as it is now."""

    topic: Natural
    name: TopicName
    streams: Streams
    key_streams: Natural
    versions: Text
    first_available: Natural
    high_watermark: Natural
    placements: tuple[Placement, ...] = ()
    """Of a log on several nodes."""


# -- appending -----------------------------------------------------------------------------------


class AppendBatches(Message, frozen=True):
    """One batch for each of ``streams`` is attached, all to become durable together, or none."""

    topic: TopicName
    streams: Streams
    producer: Word = 0
    sequence: Natural = 0
    after: Sequences = ()
    """In each stream the producer's append before this one; if it is missing: ``OutOfOrder``."""
    ack: Literal["stored", "propagated", "ordered"] = "ordered"
    """What to wait for; GLSNs in the receipts are 0 if it is less than ORDERED."""


class Receipts(Message, frozen=True):
    receipts: tuple[WireReceipt, ...]
    leader: Text = ""
    """The address of the node that leads, if another one was asked and passed the append on."""


class StageBatches(Message, frozen=True):
    """Keep the attached batches, one for each of ``streams``, until they are published."""

    topic: TopicName
    streams: Streams


class Staged(Message, frozen=True):
    stage: Natural


class Publish(Message, frozen=True):
    """Append what was staged, once for each ``writer`` and ``batch``, in the order given."""

    topic: TopicName
    writer: Text
    batch: Natural
    stages: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=STAGES_MAX)]


class Published(Message, frozen=True):
    entries: Natural
    duplicate: bool
    """The batch, or a later one of the writer, had been published before."""


class Discard(Message, frozen=True):
    """Forget what was staged; what was published or forgotten before is no error."""

    topic: TopicName
    stages: Annotated[tuple[Natural, ...], msgspec.Meta(max_length=STAGES_MAX)]


# -- reading -------------------------------------------------------------------------------------


class ReadPage(Message, frozen=True):
    """Entries from ``glsn_begin`` on, up to ``glsn_end`` (0: the high watermark), as batches."""

    topic: TopicName
    glsn_begin: Natural
    glsn_end: Natural = 0
    streams: Streams = ()
    """Of these log streams alone; empty: of all."""
    bytes_max: Natural = 0
    """Roughly how much to send; 0: as the node likes."""
    wait_ms: Natural = 0
    """How long to wait at the end of the log for something to come."""


class Page(Message, frozen=True):
    """All entries of the streams with GLSNs in ``[glsn_begin, glsn_end)``.

    Pieces ascend by their first GLSN; pieces of different streams may overlap.
    """

    pieces: tuple[PieceHeader, ...]
    glsn_begin: Natural
    glsn_end: Natural
    first_available: Natural
    high_watermark: Natural


class Get(Message, frozen=True):
    """The newest record of a key; the answer is a page with one entry, or with none."""

    topic: TopicName
    key: bytes
    storage_id: Word


class FindEnd(Message, frozen=True):
    """Where to end a read that begins at ``glsn_begin``: at a cut, within these bounds.

    0 means no bound.  ``wait_ms``: how long to wait if there is nothing there yet.
    """

    topic: TopicName
    glsn_begin: Natural
    records_max: Natural = 0
    bytes_max: Natural = 0
    wait_ms: Natural = 0
    reader: ReaderName = ""
    """Who has read everything before ``glsn_begin``, for those who look at lags; empty: nobody."""


class FindTime(Message, frozen=True):
    """The first position at or after which no entry is older than ``timestamp_us``."""

    topic: TopicName
    timestamp_us: int


class Position(Message, frozen=True):
    glsn: Natural
    first_available: Natural
    high_watermark: Natural


class GetPosition(Message, frozen=True):
    """A position that readers of a topic have stored under a name."""

    topic: TopicName
    name: Text


class SetPosition(Message, frozen=True):
    """Store a position, if ``expected`` is its revision; 0: if there is none yet."""

    topic: TopicName
    name: Text
    glsn: Natural
    expected: Natural


class NamedPosition(Message, frozen=True):
    """``revision`` is 0 and ``glsn`` 0 if there is none."""

    glsn: Natural
    revision: Natural


# -- keeping it small ----------------------------------------------------------------------------


class Trim(Message, frozen=True):
    topic: TopicName
    before_glsn: Natural


class SetGcBoundary(Message, frozen=True):
    topic: TopicName
    version: Version128


class TakeSnapshot(Message, frozen=True):
    topic: TopicName


class Compact(Message, frozen=True):
    topic: TopicName
    full: bool


class Rewrite(Message, frozen=True):
    topic: TopicName
    entries_max: Natural


class Number(Message, frozen=True):
    number: Natural


class Explain(Message, frozen=True):
    topic: TopicName
    key: bytes
    storage_id: Word


class Lines(Message, frozen=True):
    lines: tuple[str, ...]


class TopicFigures(Message, frozen=True):
    topic: TopicName


class LogFigures(Message, frozen=True):
    pass


class Figures(Message, frozen=True):
    """Statistics, or what a compaction did, as JSON of the struct that the call returns."""

    json: bytes


Request: TypeAlias = (
    Hello
    | Ping
    | Cancel
    | ListTopics
    | Describe
    | CreateTopic
    | AddStreams
    | AppendBatches
    | StageBatches
    | Publish
    | Discard
    | ReadPage
    | Get
    | FindEnd
    | FindTime
    | GetPosition
    | SetPosition
    | Trim
    | SetGcBoundary
    | TakeSnapshot
    | Compact
    | OfferPlan
    | Rewrite
    | Explain
    | TopicFigures
    | LogFigures
    | AdminRequest
    | AuditRequest
)
Answer: TypeAlias = (
    Welcome
    | Done
    | Refused
    | TopicNames
    | TopicDescription
    | Receipts
    | Staged
    | Published
    | Page
    | Position
    | NamedPosition
    | Number
    | Lines
    | Figures
    | AuditAnswer
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_ANSWERS: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def encode_message(message: Request | Answer) -> bytes:
    return _ENCODER.encode(message)


def decode_request(data: bytes | memoryview) -> Request:
    """The request in a frame; BadFrame if it is none."""
    try:
        return _REQUESTS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not a request: {error}") from error


def decode_answer(data: bytes | memoryview) -> Answer:
    """The answer in a frame; BadFrame if it is none."""
    try:
        return _ANSWERS.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not an answer: {error}") from error
