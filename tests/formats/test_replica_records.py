"""What the WAL of a storage node says of its replicas, byte for byte and damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.flips import golden
from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import EntryId, GlsnRun
from tidelog.core.replica.output import Filled, HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.errors import CorruptData
from tidelog.formats.replica_records import (
    FilledUp,
    Order,
    Reset,
    StreamSummary,
    decode_carry,
    decode_filled,
    decode_hard_state,
    decode_order,
    decode_reset,
    decode_summary,
    encode_carry,
    encode_filled,
    encode_hard_state,
    encode_order,
    encode_reset,
    encode_summary,
)
from tidelog.formats.wal import Frame, Record, RecordType, decode_frame, encode_frame
from tidelog.types import Llsn, Term

STATE = HardState(Term(9), is_complete=False, had=EntryId(Term(8), Llsn(70)))
RESET = Reset(3, drop=True)
ORDER = Order((GlsnRun(Llsn(5), 50, 2), GlsnRun(Llsn(7), 90, 1)), CommitContext(4, 95, 90, 7, 1))
FILLED = FilledUp(
    Filled(
        Llsn(100),
        Llsn(60),
        ((Term(2), Llsn(1)), (Term(5), Llsn(40))),
        (ProducerState(7, 3, ((2, 20, 5), (3, 25, 15))),),
    ),
    b"state",
)
SAMPLES: list[tuple[RecordType, bytes]] = [
    (RecordType.HARD_STATE, encode_hard_state(STATE)),
    (RecordType.RESET, encode_reset(RESET)),
    (RecordType.ORDER, encode_order(ORDER)),
    (RecordType.FILLED, encode_filled(FILLED)),
    (RecordType.CARRY, encode_carry(77)),
]
DECODERS: dict[RecordType, Callable[[memoryview], Any]] = {
    RecordType.HARD_STATE: decode_hard_state,
    RecordType.RESET: decode_reset,
    RecordType.ORDER: decode_order,
    RecordType.FILLED: decode_filled,
    RecordType.CARRY: decode_carry,
}


def test_the_golden_records_are_written_and_read_the_same() -> None:
    records = [Record(kind, 5, 0, (data,)) for kind, data in SAMPLES]
    assert encode_frame(records, 3, 17) == golden("wal_replica_records.bin")
    frame = decode_frame(golden("wal_replica_records.bin"), 0, 17)
    assert isinstance(frame, Frame)
    found = [DECODERS[record.type](record.payload) for record in frame.records]
    assert found == [STATE, RESET, ORDER, FILLED, 77]


@given(
    st.integers(0, 2**63),
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(EntryId, st.integers(0, 2**63), st.integers(0, 2**63)),
)
def test_a_hard_state_is_read_as_it_was_written(
    term: int, complete: bool, member: bool, had: EntryId | None
) -> None:
    state = HardState(Term(term), complete, member, had)
    assert decode_hard_state(encode_hard_state(state)) == state


runs = st.builds(GlsnRun, st.integers(1, 2**63), st.integers(1, 2**63), st.integers(1, 2**63))


@given(st.lists(runs, max_size=5), st.none() | st.just(ORDER.context))
def test_an_order_is_read_as_it_was_written(
    found: list[GlsnRun], context: CommitContext | None
) -> None:
    order = Order(tuple(found), context)
    assert decode_order(encode_order(order)) == order


@pytest.mark.parametrize(("kind", "data"), SAMPLES)
def test_a_record_of_another_length_is_corrupt(kind: RecordType, data: bytes) -> None:
    for bad in (data[:-1], data[: len(data) // 2], b"", data + bytes(8)):
        with pytest.raises(CorruptData):
            DECODERS[kind](memoryview(bad))


@given(st.sampled_from(SAMPLES), st.integers(0, 10_000), st.integers(0, 7))
def test_a_flipped_bit_gives_another_value_or_corrupt_data(
    sample: tuple[RecordType, bytes], place: int, bit: int
) -> None:
    kind, data = sample
    flipped = bytearray(data)
    flipped[place % len(data)] ^= 1 << bit
    try:
        DECODERS[kind](memoryview(bytes(flipped)))
    except CorruptData:
        return


@pytest.mark.parametrize(
    "bad",
    [
        encode_reset(Reset(0, drop=False)),
        encode_reset(Reset(1, drop=False))[:8] + (2).to_bytes(8, "little"),
    ],
)
def test_a_reset_that_makes_no_sense_is_corrupt(bad: bytes) -> None:
    with pytest.raises(CorruptData):
        decode_reset(bad)


def test_a_summary_is_read_as_it_was_written() -> None:
    summary = StreamSummary.of(1 << 100 | 7, 12, DeleteHorizon(40, 3))
    found = decode_summary(encode_summary(summary))
    assert (found.boundary, found.trim_glsn_end) == (1 << 100 | 7, 12)
    assert found.deletes == DeleteHorizon(40, 3)


@pytest.mark.parametrize("data", [b"", b"\xff", encode_summary(StreamSummary(delete_horizon=5))])
def test_a_summary_that_makes_no_sense_says_nothing(data: bytes) -> None:
    assert decode_summary(data) == StreamSummary()
