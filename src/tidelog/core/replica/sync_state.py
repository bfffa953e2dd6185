"""What the last part of a synchronisation brings besides entries and their order.  No state."""

from __future__ import annotations

import msgspec

from tidelog.core.replica.output import Filled
from tidelog.core.replica.producers import ProducerTable
from tidelog.errors import CorruptData


class SyncState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The leader's log as a whole, and the state of its snapshot."""

    filled: Filled
    state: bytes


def encode_sync_state(state: SyncState) -> bytes:
    """Return the bytes that ``decode_sync_state`` reads."""
    return msgspec.msgpack.encode(state)


def decode_sync_state(data: bytes) -> SyncState | None:
    """Read what a leader sent; None if it is not sound."""
    try:
        state = msgspec.msgpack.decode(data, type=SyncState)
        ProducerTable.thaw(state.filled.producers)
    except (msgspec.MsgspecError, CorruptData):
        return None
    return state if are_producers_of(state.filled) else None


def are_producers_of(filled: Filled) -> bool:
    """Whether the producers' appends lie within the log."""
    return all(
        begin + count <= filled.end
        for producer in filled.producers
        for _, begin, count in producer.appends
    )
