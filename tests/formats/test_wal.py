"""The WAL format: golden bytes, round trips, and what every kind of damage turns into."""

from __future__ import annotations

import itertools
import random
import time
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats import wal
from tidelog.formats.checksum import crc32c
from tidelog.formats.wal import (
    Frame,
    NoFrame,
    NoFrameReason,
    Record,
    RecordType,
    Trim,
    Truncate,
    Verdict,
    WalScan,
)
from tidelog.formats.wal_payloads import decode_staged_batch
from tidelog.types import Glsn, Llsn, StreamId, TopicId, Version

GOLDEN = Path(__file__).parent / "golden" / "wal_v1.bin"
LOG_ID = bytes(range(16))
SALT = 0x1122334455667788
U64 = st.integers(0, 2**64 - 1)

Content: TypeAlias = list[tuple[int, list[tuple[RecordType, int, int, bytes]]]]

CUT = CutDecided(
    version=Version(9),
    commits=(
        StreamCommit(TopicId(1), StreamId(1), Glsn(30), Glsn(20), Llsn(7), 3),
        StreamCommit(TopicId(1), StreamId(2), Glsn(30), Glsn(23), Llsn(1), 8),
    ),
)


def sample_frames() -> list[list[Record]]:
    """Three frames with every type of record in them."""
    return [
        [
            Record(RecordType.BATCH, 1, 0, (b"header--", b"some entries: 16")),
            Record(RecordType.BATCH, 2, 0, (b"eight by",)),
        ],
        [
            Record(RecordType.CUT, 0, 0, (wal.encode_cut(CUT),)),
            Record(RecordType.TRIM, 1, 9, (wal.encode_trim(Trim(1, 22, 9)),)),
        ],
        [
            Record(RecordType.TRUNCATE, 1, 9, (wal.encode_truncate(Truncate(10, 3)),)),
            Record(RecordType.BOUNDARY, 1, 9, (wal.encode_boundary(2**64 + 5),)),
            Record(RecordType.BATCH, 1, 9, (b"last entries....",)),
        ],
    ]


def make_file(frames: list[list[Record]], *, salt: int = SALT, first: int = 1) -> bytes:
    parts = [wal.encode_file_header(4, salt, LOG_ID, first)]
    parts += [wal.encode_frame(records, first + i, salt) for i, records in enumerate(frames)]
    return b"".join(parts)


def scan(data: bytes, first: int | None = None) -> WalScan:
    return wal.scan_file(data, wal.decode_file_header(data), first)


def content(scanned: WalScan) -> Content:
    return [
        (frame.sequence, [(*record[:3], bytes(record.payload)) for record in frame.records])
        for frame in scanned.frames
    ]


def assert_damage_is_seen(data: bytes, whole: Content, last_offset: int, where: int) -> None:
    """Damage at ``where`` gives the same frames, CORRUPT, or (in the last frame) a prefix."""
    try:
        found = scan(data)
    except CorruptData:
        assert where < wal.FILE_HEADER_BYTES
        return
    assert content(found) == whole[: len(found.frames)]
    if found.verdict is Verdict.CORRUPT:
        return
    if len(found.frames) == len(whole):
        return
    assert found.verdict is Verdict.TORN
    assert where >= last_offset
    assert len(found.frames) == len(whole) - 1


def test_golden_file_is_written_and_read_the_same() -> None:
    data = make_file(sample_frames())
    assert data == GOLDEN.read_bytes()
    found = scan(GOLDEN.read_bytes())
    assert found.verdict is Verdict.CLEAN
    assert [f.sequence for f in found.frames] == [1, 2, 3]
    assert found.end_offset == len(data)
    assert found.next_sequence == 4
    second, third = found.frames[1].records, found.frames[2].records
    assert wal.decode_cut(second[0].payload) == CUT
    assert wal.decode_trim(second[1].payload) == Trim(topic=1, glsn_end=22, llsn_end=9)
    assert wal.decode_truncate(third[0].payload) == Truncate(llsn_end=10, term=3)
    assert wal.decode_boundary(third[1].payload) == 2**64 + 5


RECORDS = st.builds(
    Record,
    st.sampled_from(RecordType),
    U64,
    U64,
    st.lists(st.binary(max_size=40), max_size=3).map(tuple),
)


@given(
    frames=st.lists(st.lists(RECORDS, max_size=4), max_size=4),
    salt=U64,
    first=st.integers(1, 2**63),
    zeros=st.integers(0, 200),
)
def test_any_frames_come_back(
    frames: list[list[Record]], salt: int, first: int, zeros: int
) -> None:
    data = make_file(frames, salt=salt, first=first) + bytes(zeros)
    for expected in (first, None):
        found = scan(data, expected)
        assert found.verdict is Verdict.CLEAN
        assert found.end_offset == len(data) - zeros
        got = [(r.type, r.stream, r.previous_llsn) for f in found.frames for r in f.records]
        assert got == [(r.type, r.stream, r.previous_llsn) for f in frames for r in f]
        for record, decoded in zip(
            itertools.chain(*frames),
            itertools.chain(*(f.records for f in found.frames)),
            strict=True,
        ):
            payload = b"".join(record.parts)
            assert bytes(decoded.payload) == payload + bytes(-len(payload) & 7)


@given(number=U64, salt=U64, log_id=st.binary(min_size=16, max_size=16), first=U64)
def test_any_file_header_comes_back(number: int, salt: int, log_id: bytes, first: int) -> None:
    header = wal.decode_file_header(wal.encode_file_header(number, salt, log_id, first) + b"more")
    assert header == wal.WalFileHeader(number, salt, log_id, first)


@given(version=U64, rows=st.lists(st.tuples(U64, U64, U64, U64, U64, U64), max_size=5), high=U64)
def test_any_payload_comes_back(
    version: int, rows: list[tuple[int, int, int, int, int, int]], high: int
) -> None:
    commits = [
        StreamCommit(TopicId(a), StreamId(b), Glsn(c), Glsn(d), Llsn(e), f)
        for a, b, c, d, e, f in rows
    ]
    cut = CutDecided(Version(version), tuple(commits))
    assert wal.decode_cut(wal.encode_cut(cut)) == cut
    boundary = high << 64 | version
    assert wal.decode_boundary(wal.encode_boundary(boundary)) == boundary
    assert wal.decode_trim(wal.encode_trim(Trim(version, high, 3))) == Trim(version, high, 3)
    assert wal.decode_truncate(wal.encode_truncate(Truncate(high, 3))) == Truncate(high, 3)


@given(st.binary(max_size=120))
def test_payload_decoders_raise_nothing_but_corrupt_data(data: bytes) -> None:
    for decode in (
        wal.decode_cut,
        wal.decode_trim,
        decode_staged_batch,
        wal.decode_truncate,
        wal.decode_boundary,
        wal.decode_file_header,
    ):
        try:
            decode(data)
        except CorruptData:
            pass


@given(data=st.binary(max_size=400), zeros=st.integers(0, 64))
def test_garbage_is_never_a_frame_nor_an_exception(data: bytes, zeros: int) -> None:
    header = wal.WalFileHeader(1, SALT, LOG_ID, 1)
    found = wal.scan_file(bytes(64) + data + bytes(zeros), header, 1)
    assert found.frames == []
    expected = Verdict.CLEAN if data.count(0) == len(data) else Verdict.TORN
    assert found.verdict is expected


@pytest.mark.parametrize("zeros", [0, 512])
def test_every_bit_flip_is_seen(zeros: int) -> None:
    data = make_file(sample_frames())
    whole = content(scan(data))
    last_offset = scan(data).frames[-1].offset
    for where in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data) + bytes(zeros)
            flipped[where] ^= 1 << bit
            assert_damage_is_seen(bytes(flipped), whole, last_offset, where)


def test_every_truncation_gives_the_frames_that_are_whole() -> None:
    """A file cut short cannot be told from one that was written less far; it is never wrong."""
    data = make_file(sample_frames())
    whole = content(scan(data))
    ends = [frame.end_offset for frame in scan(data).frames]
    for length in range(wal.FILE_HEADER_BYTES):
        with pytest.raises(CorruptData):
            scan(data[:length])
    for length in range(wal.FILE_HEADER_BYTES, len(data)):
        found = scan(data[:length])
        assert content(found) == whole[: sum(end <= length for end in ends)]
        at_frame = length in [64, *ends]
        assert found.verdict is (Verdict.CLEAN if at_frame else Verdict.TORN)


@pytest.mark.parametrize("old", ["zeros", "recycled"])
def test_a_torn_frame_is_cut_whatever_sectors_of_it_are_missing(old: str) -> None:
    rng = random.Random(7)
    big = Record(RecordType.BATCH, 1, 0, (rng.randbytes(4000),))
    frames = [*sample_frames()[:2], [big, Record(RecordType.BATCH, 2, 0, (rng.randbytes(64),))]]
    data = make_file(frames)
    stale_records = [[Record(RecordType.BATCH, 1, 0, (rng.randbytes(120),))] for _ in range(40)]
    stale = make_file(stale_records, salt=SALT + 1)
    disk = (bytes(8192) if old == "zeros" else stale.ljust(8192, b"\0"))[: len(data) + 1024]
    whole = content(scan(data))
    begin = scan(data).frames[-1].offset
    sectors = range(begin // 512, -(-len(data) // 512))
    assert len(sectors) >= 9
    for missing in itertools.product([False, True], repeat=len(sectors)):
        torn = bytearray(data + disk[len(data) :])
        for sector, is_missing in zip(sectors, missing, strict=True):
            if is_missing:
                low, high = max(sector * 512, begin), sector * 512 + 512
                torn[low:high] = disk[low:high]
        found = scan(bytes(torn))
        if not any(missing):
            assert content(found) == whole
        else:
            assert content(found) == whole[:2]
        assert found.verdict is not Verdict.CORRUPT, (missing, found.detail)


def test_frames_of_an_earlier_use_of_the_file_are_never_taken() -> None:
    old = make_file(sample_frames(), salt=SALT ^ 1)
    new = make_file(sample_frames()[:1])
    # The old frames have the same lengths, so an old second frame follows directly.
    found = scan(new + old[len(new) :])
    assert [frame.sequence for frame in found.frames] == [1]
    assert found.verdict is Verdict.CLEAN
    only_header = new[:64]
    found = scan(only_header + old[64:])
    assert found.frames == []
    assert found.verdict is Verdict.CLEAN


def test_an_earlier_use_behind_a_torn_frame_does_not_make_it_corruption() -> None:
    old = make_file(sample_frames(), salt=SALT ^ 1)
    new = bytearray(make_file(sample_frames()[:2]))
    new[-1] ^= 1
    found = scan(bytes(new) + old[len(new) :])
    assert [frame.sequence for frame in found.frames] == [1]
    assert found.verdict is Verdict.TORN


@pytest.mark.parametrize("shift", range(8))
def test_a_frame_inside_a_value_does_not_fool_the_scan(shift: int) -> None:
    """A user may append bytes that are a frame; they cannot know the salt."""
    inner = wal.encode_frame(sample_frames()[0], 99, SALT ^ (1 << 40))
    record = Record(RecordType.BATCH, 1, 0, (bytes(shift) + inner + bytes(8 - shift),))
    data = bytearray(make_file([*sample_frames(), [record]]))
    assert len(scan(bytes(data)).frames) == 4
    data[scan(bytes(data)).frames[3].offset + 8] ^= 1
    found = scan(bytes(data))
    assert len(found.frames) == 3
    assert found.verdict is Verdict.TORN


def test_a_bad_frame_before_a_whole_one_is_corruption_even_after_a_hole() -> None:
    frames = [wal.encode_frame(r, i + 1, SALT) for i, r in enumerate(sample_frames())]
    header = wal.encode_file_header(1, SALT, LOG_ID, 1)
    hole = bytes(3 << 20)
    found = scan(header + frames[0] + hole + frames[2])
    assert found.verdict is Verdict.CORRUPT
    assert len(found.frames) == 1
    assert "frame 3" in found.detail
    # One that is out of alignment was not written as a frame.
    found = scan(header + frames[0] + bytes(12) + frames[2])
    assert found.verdict is Verdict.TORN


def test_a_gap_in_the_sequence_is_corruption() -> None:
    frames = [wal.encode_frame(r, i + 1, SALT) for i, r in enumerate(sample_frames())]
    header = wal.encode_file_header(1, SALT, LOG_ID, 1)
    for order, kept in (([0, 2], 1), ([0, 0], 1), ([1, 2], 0)):
        found = scan(header + b"".join(frames[i] for i in order))
        assert found.verdict is Verdict.CORRUPT
        assert len(found.frames) == kept
    assert scan(header + frames[1] + frames[2], 2).verdict is Verdict.CLEAN
    assert scan(header + frames[1] + frames[2], None).verdict is Verdict.CORRUPT


def test_the_salt_of_a_frame_can_be_read_before_the_header_of_its_file() -> None:
    data = make_file(sample_frames())
    assert wal.frame_salt(data, 64) == SALT
    assert wal.frame_salt(data, 72) == 0
    assert wal.frame_salt(data, len(data) - 8) == 0


def raw_frame(payload: bytes, count: int, *, sequence: int = 1, zero: int = 0) -> bytes:
    tail = wal._FRAME_TAIL.pack(len(payload), count, sequence, SALT, zero) + payload
    return wal._FRAME_START.pack(wal.FRAME_MAGIC, crc32c(tail)) + tail


MALFORMED = {
    "unknown type": raw_frame(wal._RECORD.pack(77, 0, 0, 0, 1, 0), 1),
    "type 0": raw_frame(wal._RECORD.pack(0, 0, 0, 0, 1, 0), 1),
    "reserved byte": raw_frame(wal._RECORD.pack(1, 1, 0, 0, 1, 0), 1),
    "reserved word": raw_frame(wal._RECORD.pack(1, 0, 1, 0, 1, 0), 1),
    "too long": raw_frame(wal._RECORD.pack(1, 0, 0, 8, 1, 0), 1),
    "odd length": raw_frame(wal._RECORD.pack(1, 0, 0, 4, 1, 0) + bytes(8), 1),
    "left over": raw_frame(wal._RECORD.pack(1, 0, 0, 0, 1, 0) + bytes(8), 1),
    "too many": raw_frame(wal._RECORD.pack(1, 0, 0, 0, 1, 0), 2),
    "half a header": raw_frame(wal._RECORD.pack(1, 0, 0, 24, 1, 0) + bytes(32), 2),
    "odd frame": raw_frame(bytes(4), 0),
    "sequence 0": raw_frame(b"", 0, sequence=0),
    "reserved number": raw_frame(b"", 0, zero=1),
}


@pytest.mark.parametrize("frame", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_frame_that_makes_no_sense_under_its_checksum_is_corruption(frame: bytes) -> None:
    header = wal.encode_file_header(1, SALT, LOG_ID, 1)
    found = wal.decode_frame(header + frame, 64, SALT)
    assert isinstance(found, NoFrame)
    assert found.reason is NoFrameReason.MALFORMED
    assert scan(header + frame).verdict is Verdict.CORRUPT
    assert scan(header + b"garbage." + frame).verdict is Verdict.CORRUPT


def test_unknown_versions_of_the_file_are_named_so() -> None:
    data = bytearray(make_file([]))
    data[3] = 2
    with pytest.raises(UnsupportedVersion):
        wal.decode_file_header(bytes(data))
    data[3] = 1
    data[0] = ord("X")
    with pytest.raises(CorruptData, match="magic"):
        wal.decode_file_header(bytes(data))


def test_records_are_read_only_views() -> None:
    data = make_file(sample_frames())
    found = wal.decode_frame(bytearray(data), 64, SALT)
    assert isinstance(found, Frame)
    assert found.records[0].payload.readonly


def test_a_large_file_is_scanned_fast() -> None:
    """Zeros, garbage and bytes full of frame magics behind a few frames: C speed for all."""
    start = make_file(sample_frames())
    torn = wal.encode_frame(sample_frames()[0], 4, SALT)[:-8] + b"damaged!"
    size = 64 << 20
    tails = [bytes(size), torn + random.Random(1).randbytes(1 << 20) * 64]
    for tail in [*tails, torn + (wal.FRAME_MAGIC * 2) * (size // 8)]:
        data = start + tail
        begin = time.perf_counter()
        found = scan(data)
        elapsed = time.perf_counter() - begin
        assert len(found.frames) == 3
        assert found.verdict is not Verdict.CORRUPT
        assert elapsed < 2.0, elapsed


def test_bytes_made_to_look_like_frames_do_not_stall_the_scan() -> None:
    start = make_file(sample_frames())
    fake = wal._FRAME.pack(wal.FRAME_MAGIC, 1, 1 << 19, 1, 9, SALT, 0)
    begin = time.perf_counter()
    found = scan(start + b"x" * 8 + fake * ((1 << 20) // len(fake)))
    assert time.perf_counter() - begin < 2.0
    assert found.verdict is Verdict.CORRUPT
    assert "too many" in found.detail
