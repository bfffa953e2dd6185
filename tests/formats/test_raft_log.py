"""The log of a Raft node on disk: golden bytes, round trips, and what damage turns into.

The rule for damage (L2): a bad frame is a torn tail unless a whole frame behind it counts it as
durable.  So damage to a frame that was synced is told from a torn tail once something was written
after the sync, and at the latest when the store is closed.
"""

from __future__ import annotations

from struct import Struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.flips import check_damage, damaged, golden
from tests.storage.raft_stores import GROUP, NODE, entries, snapshot, voted
from tidelog.core.raft.entries import Entry, EntryKind, HardState, Index, RaftTerm, Snapshot
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats import raft_log
from tidelog.formats.checksum import crc32c
from tidelog.formats.envelope import seal
from tidelog.formats.raft_log import (
    FILE_HEADER_BYTES,
    Base,
    Body,
    Change,
    Closed,
    FileHeader,
    Frame,
    LogContent,
    NoFrame,
    decode_file,
    decode_file_header,
    decode_frame,
    decode_snapshot,
    encode_file_header,
    encode_frame,
    encode_snapshot,
    refer_to,
)
from tidelog.invariants import InvariantViolation
from tidelog.types import NodeId

SALT = 0x1122334455667788
STATE = snapshot(40, term=2)
REFERENCE = refer_to(STATE.head, encode_snapshot(STATE))
BASE = Base(voted(2, 3), REFERENCE, entries(41, 43, term=2))
CHANGES = [
    Change(voted(3, 1), ()),
    Change(None, entries(42, 44, term=3)),
    Change(voted(4), (Entry(Index(44), RaftTerm(4), EntryKind.EMPTY, b""),)),
]
DURABLE_ENDS = [1, 1, 3]
"""The first two changes were written, then there was a sync, then the third was written."""
ZEROS = 64
U64 = st.integers(0, 2**64 - 1)


def frames(bodies: list[Body], durable_ends: list[int], salt: int = SALT) -> list[bytes]:
    return [
        encode_frame(body, sequence=sequence, durable_end=durable_end, salt=salt)
        for sequence, (body, durable_end) in enumerate(zip(bodies, durable_ends, strict=True))
    ]


def file_of(parts: list[bytes], zeros: int = ZEROS) -> bytes:
    data = b"".join(parts) + bytes(zeros)
    header = FileHeader(7, SALT, GROUP, NODE, FILE_HEADER_BYTES + len(data))
    return encode_file_header(header) + data


def decode(data: bytes) -> LogContent:
    return decode_file(data, decode_file_header(data))


PARTS = frames([BASE, *CHANGES], [0, *DURABLE_ENDS])
FILE = file_of(PARTS)
ENDS = [FILE_HEADER_BYTES + sum(map(len, PARTS[: n + 1])) for n in range(len(PARTS))]
"""Where each frame ends."""


# -- round trips -------------------------------------------------------------------------------


def test_a_file_comes_back() -> None:
    assert decode(FILE) == LogContent(BASE, CHANGES, ENDS[-1], torn=False)
    assert decode_file_header(FILE) == FileHeader(7, SALT, GROUP, NODE, len(FILE))


@given(
    st.builds(HardState, U64, U64) | st.none(),
    st.lists(st.builds(Entry, U64, U64, st.sampled_from(EntryKind), st.binary(max_size=99))),
    U64,
)
def test_a_frame_comes_back(hard_state: HardState | None, log: list[Entry], salt: int) -> None:
    change = Change(hard_state, tuple(log))
    data = encode_frame(change, sequence=5, durable_end=4, salt=salt)
    assert decode_frame(data, 0, salt) == Frame(change, 5, 4, len(data))
    assert len(data) % 8 == 0


def test_the_golden_file_is_read_and_written_the_same() -> None:
    assert golden("raft_log_v1.bin") == FILE
    assert decode(golden("raft_log_v1.bin")).changes == CHANGES


def test_the_golden_snapshot_is_read_and_written_the_same() -> None:
    assert encode_snapshot(STATE) == golden("raft_snapshot.bin")
    assert decode_snapshot(golden("raft_snapshot.bin"), REFERENCE) == STATE


# -- the rules ---------------------------------------------------------------------------------


def test_a_frame_of_another_file_is_not_taken() -> None:
    stale = encode_frame(CHANGES[0], sequence=1, durable_end=1, salt=SALT + 1)
    assert decode(file_of([PARTS[0], stale])).changes == []


def test_a_bad_frame_that_was_counted_as_durable_is_damage() -> None:
    torn = bytes(len(PARTS[1]))
    with pytest.raises(CorruptData, match=f"offset {ENDS[0]}: no frame header, but frame 3"):
        decode(file_of([PARTS[0], torn, *PARTS[2:]]))


def test_a_bad_frame_that_nobody_counted_as_durable_ends_the_log() -> None:
    """A crash may keep the second of two frames that no sync covered, and lose the first."""
    torn = bytes(len(PARTS[1]))
    found = decode(file_of([PARTS[0], torn, PARTS[2]]))
    assert found == LogContent(BASE, [], ENDS[0], torn=True)


def test_a_bad_base_is_damage_though_nothing_follows_it() -> None:
    for base in (b"", bytes(80), PARTS[0][:-8], PARTS[1]):
        with pytest.raises(CorruptData):
            decode(file_of([base]))


def test_a_frame_out_of_order_is_damage() -> None:
    with pytest.raises(CorruptData, match="frame 2 where 1 was due"):
        decode(file_of([PARTS[0], PARTS[2]]))


def test_a_second_base_is_damage() -> None:
    bad = _sealed_frame(kind=1, payload=msgspec.msgpack.encode(BASE), sequence=1, durable_end=1)
    with pytest.raises(CorruptData, match="unknown content"):
        decode(file_of([PARTS[0], bad]))


@pytest.mark.parametrize(
    ("kind", "payload", "durable_end"),
    [
        (2, b"", 1),
        (2, b"\x93\xc0\x90\xc0", 1),
        (2, msgspec.msgpack.encode((None, [(1, 1, 9, b"")])), 1),
        (2, msgspec.msgpack.encode((None, [])), 2),
        (3, b"x", 1),
        (4, b"", 1),
    ],
)
def test_a_good_checksum_around_unknown_content_is_damage(
    kind: int, payload: bytes, durable_end: int
) -> None:
    bad = _sealed_frame(kind=kind, payload=payload, sequence=1, durable_end=durable_end)
    with pytest.raises(CorruptData, match=f"offset {ENDS[0]}: a valid checksum"):
        decode(file_of([PARTS[0], bad]))


def _sealed_frame(*, kind: int, payload: bytes, sequence: int, durable_end: int) -> bytes:
    tail = Struct("<IIQQQ").pack(len(payload), kind, sequence, durable_end, SALT)
    rest = tail + payload + bytes(-len(payload) & 7)
    return Struct("<4sI").pack(b"TLE\x01", crc32c(rest)) + rest


def test_a_newer_version_is_told_from_a_flipped_bit() -> None:
    newer, rest = b"TLR\x02", FILE[8:FILE_HEADER_BYTES]
    checksum = crc32c(rest, crc32c(newer)).to_bytes(4, "little")
    with pytest.raises(UnsupportedVersion, match="unknown version 2"):
        decode_file_header(newer + checksum + rest)
    with pytest.raises(CorruptData, match="checksum"):
        decode_file_header(newer + FILE[4:])


def test_only_sound_values_are_written() -> None:
    with pytest.raises(InvariantViolation, match="16 bytes"):
        encode_file_header(FileHeader(1, 1, b"short", NodeId(1), 64))
    with pytest.raises(InvariantViolation, match="L2"):
        encode_frame(CHANGES[0], sequence=1, durable_end=2, salt=SALT)


# -- damage ------------------------------------------------------------------------------------


def allowed(place: int) -> list[list[Change] | None]:
    """What a file may turn into that is damaged at a byte; None is CorruptData."""
    if place < ENDS[2]:
        return [None]  # Header, base, and changes 0 and 1, which change 2 counts as durable.
    if place < ENDS[3]:
        return [CHANGES[:2]]  # Not to be told from a frame that was torn.
    return [CHANGES]  # Zeros behind the frames.


def outcome(data: bytes) -> list[Change] | None:
    try:
        return decode(data).changes
    except CorruptData:
        return None


def test_a_flipped_bit_is_found_or_ends_the_log_where_nothing_counts_on_it() -> None:
    for bit in range(8 * len(FILE)):
        data = bytearray(FILE)
        data[bit >> 3] ^= 1 << (bit & 7)
        assert outcome(bytes(data)) in allowed(bit >> 3), f"bit {bit}"


def test_a_bit_that_is_flipped_after_the_store_was_closed_is_found() -> None:
    parts = frames([BASE, *CHANGES, Closed()], [0, *DURABLE_ENDS, 4])
    closed = file_of(parts)
    end = closed.index(parts[-1])
    for bit in range(8 * len(closed)):
        data = bytearray(closed)
        data[bit >> 3] ^= 1 << (bit & 7)
        assert outcome(bytes(data)) == (None if bit >> 3 < end else CHANGES), f"bit {bit}"


def test_a_file_that_was_cut_or_grew_is_damaged() -> None:
    for length in range(len(FILE)):
        assert outcome(FILE[:length]) is None
    for tail in (b"\0", b"\xff", bytes(8), PARTS[1]):
        assert outcome(FILE + tail) is None


def test_a_file_whose_end_was_never_written_ends_at_its_last_whole_frame() -> None:
    for end in range(FILE_HEADER_BYTES, ENDS[-1]):
        data = FILE[:end] + bytes(len(FILE) - end)
        whole = sum(data[:frame_end] == FILE[:frame_end] for frame_end in ENDS)
        assert outcome(data) == (CHANGES[: whole - 1] if whole else None), f"zeros from {end} on"


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    assert isinstance(decode_frame(data, 0, SALT), NoFrame)
    with pytest.raises(CorruptData):
        decode_file_header(data)
    assert outcome(file_of([PARTS[0], data])) in ([], None)


# -- snapshots ---------------------------------------------------------------------------------


def test_all_damage_to_a_snapshot_is_noticed() -> None:
    data = encode_snapshot(STATE)
    noticed = check_damage(data, lambda bad: decode_snapshot(bad, REFERENCE))
    assert noticed == sum(1 for _ in damaged(data))


@pytest.mark.parametrize("other", [snapshot(40, term=3), snapshot(40, term=2, data=b"other")])
def test_another_snapshot_in_place_of_the_one_that_is_meant_is_refused(other: Snapshot) -> None:
    with pytest.raises(CorruptData, match="does not build on"):
        decode_snapshot(encode_snapshot(other), REFERENCE)


def test_a_snapshot_that_makes_no_sense_is_refused() -> None:
    data = seal(b"TLRS", 1, msgspec.msgpack.encode([1, 2]))
    with pytest.raises(CorruptData, match="Raft snapshot 40"):
        decode_snapshot(data, REFERENCE)


def test_a_snapshot_that_could_not_be_read_back_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raft_log, "_SNAPSHOT_BODY_BYTES_MAX", 100)
    with pytest.raises(InvariantViolation, match="read back"):
        encode_snapshot(replace(STATE, data=bytes(100)))
