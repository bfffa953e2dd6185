"""The snapshot file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.flips import check_damage, damaged, golden
from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.core.replica.commit_context import CommitContext
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.envelope import seal
from tidelog.formats.manifest import ProducerState, StreamState
from tidelog.formats.snapshot import Snapshot, decode_snapshot, encode_snapshot
from tidelog.invariants import InvariantViolation

EXAMPLE = Snapshot(
    term=4,
    index=39,
    state=StreamState(
        context=CommitContext(9, 70, 61, 30, 10),
        trim_llsn_end=5,
        trim_glsn_end=11,
        boundary=2**127 + 1,
        producers=(ProducerState(77, 3, ((2, 20, 5), (3, 25, 15))),),
    ),
    live_count=12,
    live_bytes=3400,
    deletes=DeleteHorizon(64, 3),
)
naturals = st.integers(0, 2**64 - 1)


horizons = st.one_of(
    st.just(DeleteHorizon()), st.builds(DeleteHorizon, st.integers(2, 71), st.integers(1, 2**63))
)


@given(naturals, naturals, naturals, st.integers(0, 2**128 - 1), naturals, horizons)
def test_a_snapshot_comes_back(
    a: int, b: int, term: int, boundary: int, size: int, deletes: DeleteHorizon
) -> None:
    state = replace(EXAMPLE.state, boundary=boundary)
    snapshot = Snapshot(term, max(a, b), state, min(a, b), size, deletes)
    data = encode_snapshot(snapshot)
    assert decode_snapshot(data) == decode_snapshot(memoryview(data)) == snapshot


def test_all_damage_is_noticed() -> None:
    data = encode_snapshot(EXAMPLE)
    assert check_damage(data, decode_snapshot) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for attempt in (data, seal(b"TLSN", 1, data)):
        with pytest.raises(CorruptData):
            decode_snapshot(attempt)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_body_with_a_good_checksum_but_other_bytes_is_refused_or_whole(
    changes: list[tuple[int, int]],
) -> None:
    body = bytearray(golden("snapshot.bin")[24:])
    for place, byte in changes:
        body[place % len(body)] = byte
    try:
        found = decode_snapshot(seal(b"TLSN", 1, bytes(body)))
    except CorruptData:
        return
    assert decode_snapshot(encode_snapshot(found)) == found


@pytest.mark.parametrize(
    "bad",
    [
        replace(EXAMPLE, live_count=40),
        replace(EXAMPLE, state=replace(EXAMPLE.state, boundary=2**128)),
        replace(EXAMPLE, state=replace(EXAMPLE.state, context=CommitContext(1, 1, 0, 1, 1))),
        replace(EXAMPLE, state=replace(EXAMPLE.state, context=CommitContext(2**64, 5, 5, 1, 1))),
        replace(EXAMPLE, deletes=DeleteHorizon(72, 3)),
        replace(EXAMPLE, deletes=DeleteHorizon(0, 0)),
        replace(EXAMPLE, deletes=DeleteHorizon(64, 0)),
        replace(EXAMPLE, deletes=DeleteHorizon(1, 3)),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_never_written(bad: Snapshot) -> None:
    with pytest.raises(InvariantViolation):
        encode_snapshot(bad)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(UnsupportedVersion, match="snapshot: format version 2"):
        decode_snapshot(seal(b"TLSN", 2, b""))


def test_the_golden_snapshot_is_read_and_written_the_same() -> None:
    assert encode_snapshot(EXAMPLE) == golden("snapshot.bin")
    assert decode_snapshot(golden("snapshot.bin")) == EXAMPLE
