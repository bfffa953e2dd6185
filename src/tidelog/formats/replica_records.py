"""What the records of a storage node's WAL say about its replicas.  No state.

HARD_STATE  term, flags (1 complete, 2 member, 4 the last two count), term and LLSN of ``had`` (u64)
RESET       generation u64, 1 if the hard state goes too (u64)
ORDER       count u32, 1 if there is a context u32; five u64 of the context; three u64 for each run
FILLED      length u64; so many bytes of MessagePack: what ends a synchronisation
CARRY       LLSN begin u64: the entries from there on come again in the same frame
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.core.replica.commit_context import CommitContext, Natural
from tidelog.core.replica.entries import EntryId, GlsnRun
from tidelog.core.replica.output import Filled, HardState
from tidelog.errors import CorruptData
from tidelog.formats.checksum import Buffer
from tidelog.types import Llsn, Term

_HARD_STATE = Struct("<4Q")
_RESET = Struct("<2Q")
_ORDER = Struct("<II5Q")
_RUN = Struct("<3Q")
_NUMBER = Struct("<Q")
_COMPLETE: Final = 1
_MEMBER: Final = 2
_KNOWS_HAD: Final = 4
_LOW_64: Final = (1 << 64) - 1


class Reset(msgspec.Struct, frozen=True, gc=False):
    """The log of the record's stream begins anew, in the directory of this generation."""

    generation: int
    drop: bool


class Order(msgspec.Struct, frozen=True):
    """GLSNs of a stream, and the context that they belong to."""

    runs: tuple[GlsnRun, ...]
    context: CommitContext | None


class FilledUp(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The end of a synchronisation; without ``state`` that of the replica itself stays."""

    filled: Filled
    state: bytes | None


class StreamSummary(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a replica that is filled up must know besides entries, as its leader tells it."""

    boundary_low: Natural = 0
    boundary_high: Natural = 0
    trim_glsn_end: Natural = 1
    delete_horizon: Natural = 1
    dropped_deletes: Natural = 0

    @classmethod
    def of(cls, boundary: int, trim_glsn_end: int, deletes: DeleteHorizon) -> StreamSummary:
        """The summary of these."""
        low, high = boundary & _LOW_64, boundary >> 64
        return cls(low, high, trim_glsn_end, deletes.glsn, deletes.dropped)

    @property
    def boundary(self) -> int:
        """The GC boundary."""
        return self.boundary_low | self.boundary_high << 64

    @property
    def deletes(self) -> DeleteHorizon:
        """What is known of dropped deletes."""
        return DeleteHorizon(self.delete_horizon, self.dropped_deletes)


_ENCODER: Final = msgspec.msgpack.Encoder()
_FILLED: Final = msgspec.msgpack.Decoder(FilledUp)
_SUMMARY: Final = msgspec.msgpack.Decoder(StreamSummary)


def encode_hard_state(state: HardState) -> bytes:
    had = state.had
    flags = _COMPLETE * state.is_complete | _MEMBER * state.is_member
    if had is None:
        return _HARD_STATE.pack(state.term, flags, 0, 0)
    return _HARD_STATE.pack(state.term, flags | _KNOWS_HAD, had.term, had.llsn)


def decode_hard_state(payload: Buffer) -> HardState:
    if len(payload) != _HARD_STATE.size:
        raise CorruptData(f"HARD_STATE record of {len(payload)} bytes")
    term, flags, had_term, had_llsn = _HARD_STATE.unpack(payload)
    if flags & ~(_COMPLETE | _MEMBER | _KNOWS_HAD):
        raise CorruptData(f"HARD_STATE record with flags {flags:#x}")
    return HardState(
        Term(term),
        is_complete=bool(flags & _COMPLETE),
        is_member=bool(flags & _MEMBER),
        had=EntryId(Term(had_term), Llsn(had_llsn)) if flags & _KNOWS_HAD else None,
    )


def encode_reset(reset: Reset) -> bytes:
    return _RESET.pack(reset.generation, reset.drop)


def decode_reset(payload: Buffer) -> Reset:
    if len(payload) != _RESET.size:
        raise CorruptData(f"RESET record of {len(payload)} bytes")
    generation, drop = _RESET.unpack(payload)
    if drop > 1 or not generation:
        raise CorruptData(f"RESET record of generation {generation}, drop {drop}")
    return Reset(generation, bool(drop))


def encode_order(order: Order) -> bytes:
    context = order.context
    numbers = (0,) * 5
    if context is not None:
        numbers = (
            context.version,
            context.high_watermark,
            context.glsn_begin,
            context.llsn_begin,
            context.length,
        )
    parts = [_ORDER.pack(len(order.runs), context is not None, *numbers)]
    parts += [_RUN.pack(run.llsn_begin, run.glsn_begin, run.length) for run in order.runs]
    return b"".join(parts)


def decode_order(payload: Buffer) -> Order:
    if len(payload) < _ORDER.size:
        raise CorruptData(f"ORDER record of {len(payload)} bytes")
    count, has_context, *numbers = _ORDER.unpack_from(payload)
    if has_context > 1 or len(payload) != _ORDER.size + count * _RUN.size:
        raise CorruptData(f"ORDER record of {len(payload)} bytes for {count} runs")
    rows = _RUN.iter_unpack(memoryview(payload)[_ORDER.size :])
    runs = tuple(GlsnRun(Llsn(llsn), glsn, length) for llsn, glsn, length in rows)
    return Order(runs, CommitContext(*numbers) if has_context else None)


def encode_filled(filled: FilledUp) -> bytes:
    body = _ENCODER.encode(filled)
    return _NUMBER.pack(len(body)) + body


def decode_filled(payload: Buffer) -> FilledUp:
    if len(payload) < _NUMBER.size:
        raise CorruptData(f"FILLED record of {len(payload)} bytes")
    (length,) = _NUMBER.unpack_from(payload)
    body = memoryview(payload)[_NUMBER.size :]
    if not 0 <= len(body) - length < _NUMBER.size:
        raise CorruptData(f"FILLED record of {len(payload)} bytes for {length}")
    try:
        return _FILLED.decode(body[:length])
    except ValueError as error:
        raise CorruptData(f"FILLED record: {error}") from error


def encode_carry(llsn_begin: int) -> bytes:
    return _NUMBER.pack(llsn_begin)


def decode_carry(payload: Buffer) -> int:
    if len(payload) != _NUMBER.size:
        raise CorruptData(f"CARRY record of {len(payload)} bytes")
    return int(_NUMBER.unpack(payload)[0])


def encode_summary(summary: StreamSummary) -> bytes:
    """The state that goes to a replica that is filled up."""
    return _ENCODER.encode(summary)


def decode_summary(data: bytes) -> StreamSummary:
    """The same back; what a peer sent and cannot be read says nothing."""
    try:
        summary = _SUMMARY.decode(data)
    except ValueError:
        return StreamSummary()
    horizon, dropped = summary.delete_horizon, summary.dropped_deletes
    is_sound = horizon >= 1 and summary.trim_glsn_end >= 1 and (horizon > 1) == (dropped > 0)
    return summary if is_sound else StreamSummary()
