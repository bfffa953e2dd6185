"""A snapshot: the state of a log stream at one LLSN.  The live indexes have a file of their own.

No state.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon
from tidelog.core.replica.commit_context import Natural
from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.formats.manifest import StreamState, join_boundary, split_boundary, state_fault
from tidelog.invariants import check
from tidelog.limits import SNAPSHOT_BYTES_MAX

_MAGIC: Final = b"TLSN"
_VERSION: Final = 1


class Snapshot(msgspec.Struct, frozen=True):
    """``state`` as of the entry ``index`` of ``term``; ``live_count`` entries up to it are live."""

    term: int
    index: int
    state: StreamState
    live_count: int = 0
    live_bytes: int = 0
    deletes: DeleteHorizon = NOTHING_DROPPED
    """Of the deletes that are dead by this snapshot, or by one before it (H4)."""


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """MessagePack has 64 bit numbers: the upper half of the boundary stands beside it."""

    term: Natural
    index: Natural
    state: StreamState
    boundary_high: Natural
    live_count: Natural
    live_bytes: Natural
    delete_horizon: Natural
    dropped_deletes: Natural


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Wire)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """The whole file."""
    fault = _snapshot_fault(snapshot)
    check(fault is None, fault or "")
    state, high = split_boundary(snapshot.state)
    wire = _Wire(
        term=snapshot.term,
        index=snapshot.index,
        state=state,
        boundary_high=high,
        live_count=snapshot.live_count,
        live_bytes=snapshot.live_bytes,
        delete_horizon=snapshot.deletes.glsn,
        dropped_deletes=snapshot.deletes.dropped,
    )
    body = _ENCODER.encode(wire)
    check(len(body) <= SNAPSHOT_BYTES_MAX, "the snapshot is small enough to be read back")
    return seal(_MAGIC, _VERSION, body)


def decode_snapshot(data: bytes | memoryview) -> Snapshot:
    """The snapshot in exactly these bytes."""
    what = "snapshot"
    body = unseal(_MAGIC, _VERSION, data, what=what, max_length=SNAPSHOT_BYTES_MAX)
    try:
        wire = _DECODER.decode(body)
    except ValueError as error:
        raise CorruptData(f"{what}: {error}") from error
    state = join_boundary(wire.state, wire.boundary_high)
    deletes = DeleteHorizon(wire.delete_horizon, wire.dropped_deletes)
    snapshot = Snapshot(wire.term, wire.index, state, wire.live_count, wire.live_bytes, deletes)
    if fault := _snapshot_fault(snapshot):
        raise CorruptData(f"{what}: {fault}")
    return snapshot


def _snapshot_fault(snapshot: Snapshot) -> str | None:
    if snapshot.live_count > snapshot.index:
        return f"{snapshot.live_count} live entries up to index {snapshot.index}"
    deletes, end = snapshot.deletes, max(snapshot.state.context.glsn_end, 1)
    if not 1 <= deletes.glsn <= end or (deletes.glsn > 1) != (deletes.dropped > 0):
        return f"{deletes.dropped} dropped deletes before GLSN {deletes.glsn} of {end}"
    return state_fault(snapshot.state)
