"""Segment files on a simulated disk: what is written is read back, and damage is always seen."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import CorruptData
from tidelog.formats.batch import (
    Batch,
    decode_batch,
    encode_entries,
    encode_puts,
    encode_values,
    seal_batch,
)
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import build_rows, hash_key, no_rows
from tidelog.formats.segment import decode_trailer
from tidelog.invariants import InvariantViolation
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.segment_content import SegmentContent, write_segment_file
from tidelog.storage.segment_file import IO_BYTES, SegmentReader
from tidelog.testing.disk import Op, SimDisk

PATH = "/7.segment"
LOG_ID = bytes(range(16))
STREAM, SEED = 6, 5
GOLDEN = Path(__file__).parents[1] / "formats" / "golden" / "segment_v1.bin"


def sealed(entries: list[Entry], first: int, llsns: list[int] | None = None) -> bytes:
    body = encode_entries(entries, llsns=llsns)
    return seal_batch(body, stream=STREAM, term=1, first_llsn=first) + body.data


def small_batches() -> list[bytes]:
    """A file of less than 2 KiB with all its parts: dense, sparse, keyed, special."""
    values = encode_values([b"a", b"bb"], timestamp_us=9)
    return [
        seal_batch(values, stream=STREAM, term=1, first_llsn=5) + values.data,
        sealed([Entry(Kind.PUT, b"v1", b"k"), Entry(Kind.DELETE, b"", b"l")], 7),
        sealed([Entry(Kind.CONTROL, b"c"), Entry(Kind.PUT, b"v2", b"k")], 9, [9, 12]),
    ]


SMALL_RUNS = GlsnRuns([(1, 11, 7), (8, 40, 10)])


def content_of(
    batches: list[bytes], runs: GlsnRuns, *, number: int = 7, gathered: bool = False
) -> SegmentContent:
    if gathered:
        return SegmentContent(number, STREAM, LOG_ID, iter(batches), runs, hash_seed=SEED)
    rows, _, _ = build_rows(map(decode_batch, batches), runs, SEED)
    return SegmentContent(number, STREAM, LOG_ID, batches, runs, rows)


def disk_with(batches: list[bytes], runs: GlsnRuns) -> SimDisk:
    disk = SimDisk()
    assert write_segment_file(disk.vfs(), PATH, content_of(batches, runs)) is not None
    return disk


def everything(reader: SegmentReader) -> tuple[object, ...]:
    """All that a reader gives, as values that compare."""
    rows = reader.key_rows(0, 2**64)
    hits = [reader.find_key(*hash_key(0, key, SEED)) for key in (b"k", b"l", b"m")]
    batches = [bytes(batch.data) for batch in reader.read_blocks(0, 2**64)]
    columns = tuple(column.tolist() for column in rows.columns())
    check = reader.verify(SEED)
    return batches, columns, hits, list(reader.llsns()), check, list(reader.footer.runs)


def read_all(disk: SimDisk) -> tuple[object, ...]:
    reader = SegmentReader.open(disk.vfs(), PATH)
    try:
        return everything(reader)
    finally:
        reader.close()


def test_a_segment_gives_back_what_was_written() -> None:
    batches = small_batches()
    disk = disk_with(batches, SMALL_RUNS)
    reader = SegmentReader.open(disk.vfs(), PATH)
    assert (reader.number, reader.stream, reader.log_id) == (7, STREAM, LOG_ID)
    assert reader.size_bytes == len(disk.files()[PATH]) <= 2048
    assert [bytes(batch.data) for batch in reader.read_blocks(0, 99)] == batches
    assert [batch.first_llsn for batch in reader.read_blocks(6, 8)] == [5, 7]
    assert list(reader.read_blocks(13, 99)) == []
    assert list(reader.llsns()) == [5, 6, 7, 8, 9, 12]
    assert list(reader.footer.runs) == [(5, 15, 3), (8, 40, 5)]
    # No entry has a version of its own, so the GLSN is filled in.
    hits = reader.find_key(*hash_key(0, b"k", SEED))
    assert hits == [(7, 17, Kind.PUT), (12, 44, Kind.PUT)]
    assert reader.find_key(*hash_key(0, b"l", SEED)) == [(8, 40, Kind.DELETE)]
    assert reader.find_key(*hash_key(1, b"k", SEED)) == []
    rows = reader.key_rows(0, 2**64)
    assert sorted(zip(rows.llsn.tolist(), rows.version_lo.tolist(), strict=True)) == [
        (7, 17),
        (8, 40),
        (12, 44),
    ]
    (control,) = reader.footer.specials
    assert (control.llsn, control.kind, control.version) == (9, Kind.CONTROL, 41)
    assert control.implicit
    assert reader.verify().entries == 6
    assert reader.verify(SEED).bytes == reader.size_bytes
    with pytest.raises(CorruptData, match="key index"):
        reader.verify(SEED + 1)
    reader.close()


def test_rows_that_the_writer_makes_are_the_same() -> None:
    disk, other = disk_with(small_batches(), SMALL_RUNS), SimDisk()
    content = content_of(small_batches(), SMALL_RUNS, gathered=True)
    write_segment_file(other.vfs(), PATH, content, sync=False)
    assert other.files() == disk.files()
    decoded = [decode_batch(batch) for batch in small_batches()]
    views = [memoryview(batch) for batch in small_batches()]
    for batches in (decoded, views):
        content = SegmentContent(7, STREAM, LOG_ID, batches, SMALL_RUNS, hash_seed=SEED)
        other = SimDisk()
        write_segment_file(other.vfs(), PATH, content)
        assert other.files() == disk.files()


def test_the_golden_file_is_written_and_read_on_a_real_disk(tmp_path: Path) -> None:
    reader = SegmentReader.open(OsVfs(), str(GOLDEN))
    check = reader.verify(SEED)
    assert (check.entries, check.bytes) == (7, 1160)
    batches = [bytes(batch.data) for batch in reader.read_blocks(1, 99)]
    runs = reader.footer.runs
    reader.close()
    path = str(tmp_path / "12.segment")
    write_segment_file(OsVfs(), path, content_of(batches, runs, number=12))
    assert Path(path).read_bytes() == GOLDEN.read_bytes()
    with pytest.raises(FileExistsError):
        write_segment_file(OsVfs(), path, content_of(batches, runs, number=12))
    assert Path(path).read_bytes() == GOLDEN.read_bytes()


def test_without_batches_there_is_no_file() -> None:
    disk = SimDisk()
    assert write_segment_file(disk.vfs(), PATH, content_of([], SMALL_RUNS)) is None
    assert disk.files() == {}


def test_every_bit_flip_is_seen() -> None:
    disk = disk_with(small_batches(), SMALL_RUNS)
    for byte in range(len(disk.files()[PATH])):
        for bit in range(8):
            disk.flip_bit(PATH, byte, bit)
            with pytest.raises(CorruptData, match=PATH):
                read_all(disk)
            disk.flip_bit(PATH, byte, bit)
    read_all(disk)


def test_every_truncation_and_extension_is_seen() -> None:
    disk = disk_with(small_batches(), SMALL_RUNS)
    data = disk.files()[PATH]
    for length in range(len(data)):
        cut = disk.copy()
        cut.truncate(PATH, length)
        with pytest.raises(CorruptData, match=PATH):
            SegmentReader.open(cut.vfs(), PATH)
    file = disk.vfs().open(PATH, write=True)
    file.write_at(len(data), [b"\0"])
    file.close()
    with pytest.raises(CorruptData):
        SegmentReader.open(disk.vfs(), PATH)


def replaced(disk: SimDisk, data: bytes) -> SimDisk:
    other = disk.copy()
    file = other.vfs().open(PATH, write=True)
    file.write_at(0, [data])
    file.close()
    return other


def test_parts_of_two_segments_never_pass_for_one() -> None:
    """Header, each batch and the key page of another file, at the same place, all valid."""
    disk = disk_with(small_batches(), SMALL_RUNS)
    mine = disk.files()[PATH]
    other = SimDisk()
    shifted = GlsnRuns([(1, 11, 50)])
    later = [
        sealed(decode_batch(batch).entries(), first, llsns)
        for batch, first, llsns in zip(
            small_batches(), (6, 8, 10), (None, None, [10, 13]), strict=True
        )
    ]
    write_segment_file(other.vfs(), PATH, content_of(later, shifted, number=8))
    theirs = other.files()[PATH]
    reader = SegmentReader.open(disk.vfs(), PATH)
    blocks, pages = reader.footer.blocks, reader.footer.pages
    places = [(0, 64), *zip(blocks.offset, blocks.length, strict=True)]
    places += zip(pages.offset, pages.length, strict=True)
    reader.close()
    for offset, length in places:
        mixed = mine[:offset] + theirs[offset : offset + length] + mine[offset + length :]
        assert mixed != mine
        with pytest.raises(CorruptData, match=PATH):
            read_all(replaced(disk, mixed))


def test_a_footer_that_lies_about_the_entries_is_found_by_verify() -> None:
    disk = disk_with(small_batches(), SMALL_RUNS)
    data = disk.files()[PATH]
    trailer = decode_trailer(data[-40:], len(data))
    good = read_all(disk)
    begin, end = trailer.footer_offset, trailer.footer_offset + trailer.footer_length
    # Nothing else in the file tells GLSNs: a footer may make up others.
    runs = range(96 + 3 * 32 + 2 * 16, 96 + 3 * 32 + 2 * 16 + 2 * 24)
    for word in range(0, end - begin, 4):
        body = bytearray(data[begin:end])
        body[word] ^= 1
        tail = bytearray(data[-40:])
        tail[24:28] = crc32c(bytes(body)).to_bytes(4, "little")
        tail[36:] = crc32c(bytes(tail[:36])).to_bytes(4, "little")
        changed = replaced(disk, data[:begin] + bytes(body) + bytes(tail))
        try:
            found = read_all(changed)
        except CorruptData:
            continue
        assert found[0] == good[0]
        assert found == good or word in runs, word


@pytest.mark.parametrize("failing", [Op.CREATE, Op.WRITE, Op.SYNC])
@pytest.mark.parametrize("partial", [False, True])
def test_a_write_that_fails_leaves_no_file(failing: Op, partial: bool) -> None:
    disk = SimDisk()
    disk.fail(failing, PATH, errno.ENOSPC, partial=partial)
    with pytest.raises(OSError, match="ENOSPC"):
        write_segment_file(disk.vfs(), PATH, content_of(small_batches(), SMALL_RUNS))
    assert disk.files() == {}


def test_a_source_that_fails_leaves_no_file() -> None:
    def damaged() -> Iterator[bytes]:
        yield small_batches()[0]
        raise CorruptData("the source is bad")

    disk = SimDisk()
    content = SegmentContent(7, STREAM, LOG_ID, damaged(), SMALL_RUNS)
    with pytest.raises(CorruptData, match="source"):
        write_segment_file(disk.vfs(), PATH, content)
    assert disk.files() == {}


def test_content_that_contradicts_itself_is_not_written() -> None:
    batches = small_batches()
    rows, _, _ = build_rows(map(decode_batch, batches), SMALL_RUNS, SEED)
    assert rows is not None
    wrong = [
        SegmentContent(7, STREAM + 1, LOG_ID, batches, SMALL_RUNS, rows),
        SegmentContent(7, STREAM, LOG_ID, batches[::-1], SMALL_RUNS, rows),
        SegmentContent(7, STREAM, LOG_ID, batches, SMALL_RUNS, None),
        SegmentContent(7, STREAM, LOG_ID, batches, SMALL_RUNS, rows[:2]),
        SegmentContent(7, STREAM, LOG_ID, batches, GlsnRuns([(1, 1, 8)]), rows),
        SegmentContent(7, STREAM, LOG_ID, batches, SMALL_RUNS, rows, SEED),
        SegmentContent(7, STREAM, LOG_ID, [batches[0] + batches[1]], SMALL_RUNS),
    ]
    disk = SimDisk()
    for content in wrong:
        with pytest.raises(InvariantViolation):
            write_segment_file(disk.vfs(), PATH, content)
        assert disk.files() == {}
    damaged = bytes(batches[0][:-1]) + b"x"
    with pytest.raises(CorruptData):
        write_segment_file(
            disk.vfs(), PATH, SegmentContent(7, STREAM, LOG_ID, [damaged], SMALL_RUNS)
        )
    assert disk.files() == {}


def test_a_batch_that_changed_since_it_was_decoded_is_not_written() -> None:
    data = bytearray(small_batches()[0])
    batch = decode_batch(memoryview(data))
    data[-9] ^= 1
    disk = SimDisk()
    with pytest.raises(CorruptData, match="checksum"):
        write_segment_file(disk.vfs(), PATH, SegmentContent(7, STREAM, LOG_ID, [batch], SMALL_RUNS))
    assert disk.files() == {}


def test_runs_with_holes_may_miss_what_a_sparse_batch_leaves_out() -> None:
    batch = sealed([Entry(Kind.APPEND, b"x"), Entry(Kind.APPEND, b"y")], 5, [5, 8])
    disk = disk_with([batch], GlsnRuns([(5, 5, 1), (8, 20, 1)]))
    assert read_all(disk)[3] == [5, 8]


class CountingFile:
    """A file that notes how it is read."""

    def __init__(self, disk: SimDisk) -> None:
        self._file = disk.vfs().open(PATH)
        self.reads: list[int] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.reads.append(length)
        return self._file.read_at(offset, length)


def large_segment(batches: int, values: int) -> tuple[SimDisk, list[bytes]]:
    encoded = []
    for number in range(batches):
        keys = [b"key %d" % (i % 700) for i in range(number, number + values)]
        body = encode_puts(keys, [b"v" * 500] * values, timestamp_us=number)
        first = 1 + number * values
        encoded.append(seal_batch(body, stream=STREAM, term=1, first_llsn=first) + body.data)
    runs = GlsnRuns((i * 500 + 1, i * 777 + 1, 500) for i in range(100))
    return disk_with(encoded, runs), encoded


def test_neighbours_are_read_together_but_never_too_much() -> None:
    disk, encoded = large_segment(30, 200)
    reader = SegmentReader.open(disk.vfs(), PATH)
    counting = CountingFile(disk)
    object.__setattr__(reader, "_file", counting)
    assert [bytes(batch.data) for batch in reader.read_blocks(1, 2**64)] == encoded
    assert sum(counting.reads) == sum(map(len, encoded))
    assert max(counting.reads) <= IO_BYTES
    assert len(counting.reads) == 3
    counting.reads.clear()
    assert len(list(reader.read_blocks(250, 251))) == 1
    assert counting.reads == [len(encoded[1])]
    counting.reads.clear()
    assert len(reader.find_key(*hash_key(0, b"key 3", SEED))) == 4
    assert len(counting.reads) == 1


def test_many_pages_give_all_rows_of_every_key() -> None:
    disk, encoded = large_segment(30, 200)
    reader = SegmentReader.open(disk.vfs(), PATH)
    assert len(reader.footer.pages) == 6
    rows, _, stats = build_rows(map(decode_batch, encoded), reader.footer.runs, SEED)
    assert rows is not None
    assert reader.key_rows(0, 2**64).equals(rows)
    assert stats.keyed == 6000
    assert reader.verify(SEED).entries == 6000
    borders = [0, *reader.footer.pages.fence, 2**63, int(rows.hash_hi[77]), 2**64]
    for begin in borders:
        for end in borders:
            found = reader.key_rows(begin, end)
            assert found.equals(rows.between(begin, end) if begin < end else no_rows())
    for number in range(0, 700, 13):
        high, low = hash_key(0, b"key %d" % number, SEED)
        mine = (rows.hash_hi == high) & (rows.hash_lo == low)
        assert [hit.llsn for hit in reader.find_key(high, low)] == rows.llsn[mine].tolist()
    reader.close()


def test_a_key_that_fills_many_pages_is_found_whole() -> None:
    count = 3000
    body = encode_puts([b"hot"] * count, [b""] * count, timestamp_us=1)
    batch = seal_batch(body, stream=STREAM, term=1, first_llsn=1) + body.data
    disk = disk_with([batch], GlsnRuns([(1, 1, count)]))
    reader = SegmentReader.open(disk.vfs(), PATH)
    high, low = hash_key(0, b"hot", SEED)
    assert [hit.llsn for hit in reader.find_key(high, low)] == list(range(1, count + 1))
    assert len(reader.key_rows(high, high + 1)) == count
    assert len(reader.key_rows(high + 1, 2**64)) == 0
    reader.close()


def test_many_threads_read_one_reader() -> None:
    disk, encoded = large_segment(20, 100)
    reader = SegmentReader.open(disk.vfs(), PATH)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for llsn in range(1, 2000, 97):
                (batch,) = reader.read_blocks(llsn, llsn + 1)
                assert bytes(batch.data) == encoded[(llsn - 1) // 100]
                assert reader.find_key(*hash_key(0, b"key 7", SEED))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reader.close()
    assert failures == []


KINDS = st.sampled_from([Kind.APPEND, Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE])


@st.composite
def any_batches(draw: st.DrawFn) -> list[bytes]:
    result: list[bytes] = []
    llsn = draw(st.integers(1, 5))
    for size in draw(st.lists(st.integers(1, 5), min_size=1, max_size=6)):
        entries = []
        explicit = draw(st.booleans())
        for _ in range(size):
            kind = draw(KINDS)
            key = draw(st.sampled_from([b"k", b"l"])) if kind in (2, 3) else b""
            version = draw(st.integers(0, 2**128 - 1)) if explicit else None
            storage = draw(st.integers(0, 2))
            entries.append(Entry(kind, draw(st.binary(max_size=4)), key, storage, version))
        llsns = [llsn + 3 * i for i in range(size)] if draw(st.booleans()) else None
        result.append(sealed(entries, llsn, llsns))
        llsn = decode_batch(result[-1]).end_llsn + draw(st.integers(0, 2))
    return result


@settings(max_examples=60)
@given(any_batches())
def test_any_entries_come_back(batches: list[bytes]) -> None:
    runs = GlsnRuns([(1, 50, 8), (9, 90, 200)])
    disk = disk_with(batches, runs)
    reader = SegmentReader.open(disk.vfs(), PATH)
    views: list[Batch] = list(map(decode_batch, batches))
    rows, specials, stats = build_rows(views, runs, SEED)
    assert [bytes(batch.data) for batch in reader.read_blocks(0, 2**64)] == batches
    assert list(reader.llsns()) == [llsn for view in views for llsn in view.llsns()]
    assert reader.key_rows(0, 2**64).equals(rows if rows is not None else no_rows())
    assert (reader.footer.specials, reader.footer.stats) == (tuple(specials), stats)
    assert reader.verify().entries == sum(view.count for view in views)
    reader.verify(SEED)
    for row in range(stats.keyed):
        assert rows is not None
        high, low = int(rows.hash_hi[row]), int(rows.hash_lo[row])
        hits = {(hit.llsn, hit.version, int(hit.kind)) for hit in reader.find_key(high, low)}
        assert (int(rows.llsn[row]), rows.version_at(row), int(rows.kind[row])) in hits
        assert len(hits) == int(np.sum((rows.hash_hi == high) & (rows.hash_lo == low)))
    reader.close()
