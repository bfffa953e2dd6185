"""What replicas and operators say to one another, as bytes.  No state.

A message is a MessagePack array: the message itself without its bulky parts, then what they are
like.  The bulky parts are attached, one behind the other: the data of the batches, 24 bytes for
each run of GLSNs (LLSN begin, GLSN begin, length, little-endian), the state of a snapshot.

  P1  the sizes of all parts are bounded, and add up to the attachment, before any is looked at
  P2  the CRC covers what is attached behind the batches; these have checksums of their own, which
      whoever takes them looks at (H4 of the host), so nobody sums their data for a message as well
  P3  a message has only the parts that are its own, and each of them in the attachment alone
  P4  what a node carries speaks of that node, of this one and of its channel's stream
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    BetweenReplicas,
    CutsResponse,
    Message,
    Refusal,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitResponse,
    SyncRequest,
    TruncateResponse,
)
from tidelog.core.session.node_messages import CARRY_OVERHEAD_BYTES
from tidelog.errors import BadFrame, BatchTooLarge, CorruptData
from tidelog.formats.checksum import Buffer, crc32c
from tidelog.limits import (
    ATTACHMENT_BYTES_MAX,
    BATCH_BODY_BYTES_MAX,
    CARRIED_BATCHES_MAX,
    MESSAGE_BYTES_MAX,
)
from tidelog.types import Llsn, NodeId, ProducerId, StreamId, Term

_RUN: Final = Struct("<QQQ")
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=ATTACHMENT_BYTES_MAX)]
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Payload(NamedTuple):
    """A message between replicas as it travels."""

    message: bytes
    attachment: tuple[bytes, ...] = ()


class _BatchHead(
    msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True
):
    """A batch without its data."""

    size: Annotated[int, msgspec.Meta(ge=0, le=BATCH_BODY_BYTES_MAX)]
    term: Natural
    llsn_begin: Natural
    count: Natural
    producer: Natural
    sequence: Natural
    is_control: bool


class _Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A message without its bulky parts, and what those are like."""

    message: Message
    batches: Annotated[tuple[_BatchHead, ...], msgspec.Meta(max_length=CARRIED_BATCHES_MAX)] = ()
    runs: Size = 0
    state_bytes: Size = 0
    crc: Natural = 0

    @property
    def batch_bytes(self) -> int:
        return sum([one.size for one in self.batches])

    @property
    def attachment_bytes(self) -> int:
        return self.batch_bytes + _RUN.size * self.runs + self.state_bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[_Envelope]] = msgspec.msgpack.Decoder(_Envelope)


# -- encoding ------------------------------------------------------------------------------------


def encode_replica_message(message: Message) -> Payload:
    """The bytes of a message; the data of batches is not copied.

    BatchTooLarge if a frame cannot hold it.
    """
    match message:
        case AddEntriesRequest(batches=batches):
            payload = _encode(replace(message, batches=()), batches)
        case SyncEntriesRequest(batches=batches, runs=runs, state=state):
            bare = replace(message, batches=(), runs=(), state=b"")
            payload = _encode(bare, batches, runs, state)
        case CutsResponse(runs=runs):
            payload = _encode(replace(message, runs=()), (), runs)
        case _:
            payload = Payload(_ENCODER.encode(_Envelope(message)))
    _check_size(payload)
    return payload


def _encode(
    bare: Message, batches: Sequence[Batch], runs: Sequence[GlsnRun] = (), state: bytes = b""
) -> Payload:
    if len(batches) > CARRIED_BATCHES_MAX:
        raise BatchTooLarge(
            f"a message between replicas with {len(batches)} batches, the limit is "
            f"{CARRIED_BATCHES_MAX}"
        )
    packed = b"".join(_RUN.pack(run.llsn_begin, run.glsn_begin, run.length) for run in runs)
    crc = crc32c(state, crc32c(packed))
    heads = tuple([_head(batch) for batch in batches])
    envelope = _Envelope(bare, heads, len(runs), len(state), crc)
    parts = (*(batch.data for batch in batches), packed, state)
    return Payload(_ENCODER.encode(envelope), tuple([part for part in parts if part]))


def _head(batch: Batch) -> _BatchHead:
    return _BatchHead(
        len(batch.data),
        batch.term,
        batch.llsn_begin,
        batch.count,
        batch.producer,
        batch.sequence,
        batch.is_control,
    )


def _check_size(payload: Payload) -> None:
    message_bytes = len(payload.message) + CARRY_OVERHEAD_BYTES
    attachment_bytes = sum(map(len, payload.attachment))
    if message_bytes > MESSAGE_BYTES_MAX or attachment_bytes > ATTACHMENT_BYTES_MAX:
        raise BatchTooLarge(
            f"a message between replicas with {message_bytes} + {attachment_bytes} bytes, the "
            f"limits are {MESSAGE_BYTES_MAX} + {ATTACHMENT_BYTES_MAX}"
        )


# -- decoding ------------------------------------------------------------------------------------


def decode_replica_message(data: Buffer, attachment: Buffer = b"") -> Message:
    """The message in these bytes; BadFrame if it is none, CorruptData if its parts are damaged.

    Batches are not looked into (P2).  What is attached is copied once, into them.
    """
    envelope = _decode_envelope(data)
    _check_parts(envelope)
    if envelope.attachment_bytes != len(attachment):
        raise BadFrame(
            f"{len(attachment)} bytes are attached, and not {envelope.attachment_bytes} (P1)"
        )
    view = memoryview(attachment)
    if crc32c(view[envelope.batch_bytes :]) != envelope.crc:
        raise CorruptData("what is attached does not match its checksum (P2)")
    return _assemble(envelope, view)


def _decode_envelope(data: Buffer) -> _Envelope:
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"not a message between replicas: {error}") from error


def _check_parts(envelope: _Envelope) -> None:
    """P3."""
    match envelope.message:
        case AddEntriesRequest(batches=()):
            is_sound = not (envelope.runs or envelope.state_bytes)
        case SyncEntriesRequest(batches=(), runs=(), state=b""):
            is_sound = True
        case CutsResponse(runs=()):
            is_sound = not (envelope.batches or envelope.state_bytes)
        case AddEntriesRequest() | SyncEntriesRequest() | CutsResponse():
            is_sound = False
        case _:
            is_sound = not (envelope.batches or envelope.runs or envelope.state_bytes)
    if not is_sound:
        raise BadFrame(f"{type(envelope.message).__name__} with parts that it cannot have (P3)")


def _assemble(envelope: _Envelope, attachment: memoryview) -> Message:
    batches, offset = [], 0
    for head in envelope.batches:
        batches.append(_batch(head, attachment[offset : offset + head.size]))
        offset += head.size
    runs_end = offset + _RUN.size * envelope.runs
    runs = tuple([_run(*row) for row in _RUN.iter_unpack(attachment[offset:runs_end])])
    match envelope.message:
        case AddEntriesRequest() as message:
            return replace(message, batches=tuple(batches))
        case SyncEntriesRequest() as message:
            state = bytes(attachment[runs_end:])
            return replace(message, batches=tuple(batches), runs=runs, state=state)
        case CutsResponse() as message:
            return replace(message, runs=runs)
        case message:
            return message


def _batch(head: _BatchHead, data: memoryview) -> Batch:
    return Batch(
        Term(head.term),
        Llsn(head.llsn_begin),
        head.count,
        bytes(data),
        ProducerId(head.producer),
        head.sequence,
        head.is_control,
    )


def _run(llsn_begin: int, glsn_begin: int, length: int) -> GlsnRun:
    return GlsnRun(Llsn(llsn_begin), glsn_begin, length)


# -- between storage nodes -----------------------------------------------------------------------


def decode_carried(
    data: Buffer, attachment: Buffer, *, source: NodeId, target: NodeId, stream: StreamId
) -> BetweenReplicas:
    """What one node has carried to another on the channel of a stream; errors as above."""
    message = decode_replica_message(data, attachment)
    if not isinstance(message, BetweenReplicas):
        raise BadFrame(f"{type(message).__name__} is not for replicas to say")
    _check_address(message, (source, target, stream))
    return message


def _check_address(message: BetweenReplicas, address: tuple[NodeId, NodeId, StreamId]) -> None:
    """P4."""
    named = (message.source, message.target, message.stream)
    if named != address:
        raise BadFrame(f"source, target and stream are {named} instead of {address} (P4)")


def awaits_disk(message: Message) -> bool:
    """Whether a follower answers a message once its disk has it: then it belongs to an epoch."""
    return isinstance(message, AddEntriesRequest | SyncEntriesRequest)


def is_for_leader(message: Message) -> bool:
    """Whether a replica says this to the leader of its stream: then it may go with an answer."""
    return isinstance(
        message,
        TruncateResponse
        | AddEntriesResponse
        | AddEntriesRefusal
        | Refusal
        | SyncRequest
        | SyncInitResponse
        | SyncEntriesResponse,
    )
