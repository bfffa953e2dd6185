"""The segment format: golden bytes, round trips of the footer, and damage to each part."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats import segment
from tidelog.formats.batch import decode_batch, encode_entries, encode_puts, seal_batch
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.key_index import build_rows, encode_key_pages
from tidelog.formats.segment import (
    BlockColumns,
    PageColumns,
    SegmentFooter,
    SegmentHeader,
    SegmentStats,
    SegmentTrailer,
    SpecialEntry,
)
from tidelog.limits import SEGMENT_FOOTER_BYTES_MAX

GOLDEN = Path(__file__).parent / "golden" / "segment_v1.bin"
LOG_ID = bytes(range(16))
SEED = 5
RUNS = GlsnRuns([(10, 100, 4), (14, 200, 20)])
U64 = st.integers(0, 2**64 - 1)


def sample_batches() -> list[bytes]:
    """Puts, then a sparse batch of every kind, with explicit versions."""
    puts = encode_puts([b"k1", b"k2"], [b"one", b"two"], timestamp_us=50, storage_id=3)
    entries = [
        Entry(Kind.APPEND, b"value", b"", 0, 1, 60),
        Entry(Kind.PUT, b"new", b"k1", 3, 2**64 + 9, 40),
        Entry(Kind.DELETE, b"", b"k2", 3, 7, 70),
        Entry(Kind.DELETE_STORAGE, b"", b"", 4, 8, 60),
        Entry(Kind.CONTROL, b"term", b"", 0, 9, 60),
    ]
    sparse = encode_entries(entries, llsns=[13, 14, 17, 18, 20])
    return [
        seal_batch(puts, stream=6, term=1, first_llsn=10, producer=4, sequence=2) + puts.data,
        seal_batch(sparse, stream=6, term=2, first_llsn=13) + sparse.data,
    ]


def assemble(batches: list[bytes]) -> tuple[bytes, SegmentFooter]:
    """A whole segment file made by hand, and its footer."""
    views = [decode_batch(data) for data in batches]
    rows, specials, stats = build_rows(views, RUNS, SEED)
    assert rows is not None
    first, end = views[0].first_llsn, views[-1].end_llsn
    runs = RUNS.restrict(first, end)
    pages = list(encode_key_pages(rows, first, runs))
    offsets = [64]
    for piece in [*batches, *(page.data for page in pages)]:
        offsets.append(offsets[-1] + len(piece))
    count = len(batches)
    footer = SegmentFooter(
        number=12,
        stream=6,
        blocks=BlockColumns(
            first_llsn=[view.first_llsn for view in views],
            end_llsn=[view.end_llsn for view in views],
            offset=offsets[:count],
            term=[view.term for view in views],
            length=[view.length for view in views],
            count=[view.count for view in views],
        ),
        runs=runs,
        pages=PageColumns(
            offset=offsets[count:-1],
            fence=[page.fence for page in pages],
            length=[len(page.data) for page in pages],
            rows=[page.rows for page in pages],
        ),
        specials=tuple(specials),
        stats=stats,
    )
    header = segment.encode_segment_header(12, 6, LOG_ID)
    parts = [header, *batches, *(page.data for page in pages), segment.encode_footer(footer)]
    return b"".join(parts), footer


def read_footer(data: bytes) -> SegmentFooter:
    trailer = segment.decode_trailer(data[-40:], len(data))
    begin, length = trailer.footer_offset, trailer.footer_length
    return segment.decode_footer(data[begin : begin + length], trailer)


def plain(footer: SegmentFooter) -> tuple[object, ...]:
    """A footer as values that compare."""
    blocks, pages = footer.blocks, footer.pages
    columns = (
        *(blocks.first_llsn, blocks.end_llsn, blocks.offset, blocks.term),
        *(blocks.length, blocks.count, pages.offset, pages.fence, pages.length, pages.rows),
    )
    rest = (footer.number, footer.stream, footer.runs, footer.specials, footer.stats)
    return (*rest, *(list(column) for column in columns))


def test_golden_file_is_written_and_read_the_same() -> None:
    data, footer = assemble(sample_batches())
    assert len(data) <= 2048
    assert data == GOLDEN.read_bytes()
    found = read_footer(GOLDEN.read_bytes())
    assert plain(found) == plain(footer)
    assert segment.decode_segment_header(data) == SegmentHeader(12, 6, LOG_ID)
    assert (found.first_llsn, found.end_llsn) == (10, 21)
    assert list(found.runs) == [(10, 100, 4), (14, 200, 7)]
    assert found.stats == SegmentStats(
        entries=7,
        keyed=4,
        data_bytes=26,
        min_timestamp_us=40,
        max_timestamp_us=70,
        max_version=2**64 + 9,
    )
    assert found.specials == (
        SpecialEntry(18, Kind.DELETE_STORAGE, 4, 8, False),
        SpecialEntry(20, Kind.CONTROL, 0, 9, False),
    )
    assert [special.is_storage_delete for special in found.specials] == [True, False]


@st.composite
def footers(draw: st.DrawFn) -> SegmentFooter:
    """Footers of all sizes whose parts fit together."""
    small = st.integers(1, 9)
    first, end, offset, length, count = [], [], [64], [], []
    llsn = draw(st.integers(1, 2**60))
    begin = llsn
    for gap, span in draw(st.lists(st.tuples(st.integers(0, 3), small), min_size=1, max_size=6)):
        first.append(llsn + gap)
        llsn += gap + span
        end.append(llsn)
        count.append(draw(st.integers(1, span)))
        length.append(88 + 8 * draw(small))
        offset.append(offset[-1] + length[-1])
    page_length = draw(st.lists(st.integers(0, 2**20), max_size=4))
    page_rows = draw(st.lists(small, min_size=len(page_length), max_size=len(page_length)))
    page_offset = [offset[-1]]
    for size in page_length:
        page_offset.append(page_offset[-1] + size)
    count[0] += max(0, sum(page_rows) - sum(count))
    end[0], first[1:], end[1:] = (
        end[0] + count[0],
        [value + count[0] for value in first[1:]],
        [value + count[0] for value in end[1:]],
    )
    llsns = sorted(draw(st.sets(st.integers(first[0], end[-1] - 1), max_size=4)))
    kinds = st.sampled_from([Kind.DELETE_STORAGE, Kind.CONTROL])
    version = st.integers(0, 2**128 - 1)
    i64 = st.integers(-(2**63), 2**63 - 1)
    return SegmentFooter(
        number=draw(U64),
        stream=draw(U64),
        blocks=BlockColumns(first, end, offset[:-1], [draw(U64) for _ in first], length, count),
        runs=GlsnRuns([(begin, draw(st.integers(1, 2**60)), llsn - begin)]),
        pages=PageColumns(
            page_offset[:-1], sorted(draw(U64) for _ in page_rows), page_length, page_rows
        ),
        specials=tuple(
            SpecialEntry(n, draw(kinds), draw(U64), draw(version), draw(st.booleans()))
            for n in llsns
        ),
        stats=SegmentStats(
            sum(count), sum(page_rows), draw(U64), draw(i64), draw(i64), draw(version)
        ),
    )


@given(footers())
def test_any_footer_comes_back(footer: SegmentFooter) -> None:
    data = segment.encode_footer(footer)
    file_length = footer.pages_end + len(data)
    trailer = segment.decode_trailer(data[-40:], file_length)
    assert trailer.footer_offset == footer.pages_end
    assert plain(segment.decode_footer(data[:-40], trailer)) == plain(footer)


@given(footers(), st.integers(0, 60), st.integers(0, 60))
def test_blocks_are_found_by_llsn(footer: SegmentFooter, begin: int, end: int) -> None:
    base = footer.first_llsn - 5
    begin, end = base + begin, base + end
    spans = list(zip(footer.blocks.first_llsn, footer.blocks.end_llsn, strict=True))
    overlapping = [i for i, (low, high) in enumerate(spans) if low < end and high > begin]
    expected = overlapping if begin < end else []
    assert [i for i in footer.blocks_between(begin, end) if begin < end] == expected
    behind = [i for i, (_, high) in enumerate(spans) if high > begin]
    assert footer.block_for(begin) == min(behind, default=len(spans))


def test_pages_are_found_by_hash_also_when_a_key_straddles_them() -> None:
    _, footer = assemble(sample_batches())
    pages = PageColumns(offset=[0] * 4, fence=[5, 9, 9, 12], length=[0] * 4, rows=[1] * 4)
    footer = replace(footer, pages=pages)
    assert list(footer.pages_between(0, 5)) == []
    assert list(footer.pages_between(5, 6)) == [0]
    assert list(footer.pages_between(8, 9)) == [0]
    assert list(footer.pages_between(9, 10)) == [0, 1, 2]
    assert list(footer.pages_between(11, 2**64)) == [2, 3]
    assert list(footer.pages_between(13, 14)) == [3]
    assert list(footer.pages_between(0, 2**64)) == [0, 1, 2, 3]


@given(number=U64, stream=U64, log_id=st.binary(min_size=16, max_size=16))
def test_any_header_comes_back(number: int, stream: int, log_id: bytes) -> None:
    data = segment.encode_segment_header(number, stream, log_id)
    assert len(data) == segment.HEADER_BYTES
    assert segment.decode_segment_header(data + b"x") == SegmentHeader(number, stream, log_id)


def test_every_bit_flip_and_truncation_of_header_footer_and_trailer_is_seen() -> None:
    data, footer = assemble(sample_batches())
    for where in [*range(64), *range(footer.pages_end, len(data))]:
        for bit in range(8):
            flipped = bytearray(data)
            flipped[where] ^= 1 << bit
            with pytest.raises(CorruptData):  # noqa: PT012 - either part may be the damaged one
                segment.decode_segment_header(flipped)
                read_footer(bytes(flipped))
    for length in range(len(data)):
        with pytest.raises(CorruptData):
            read_footer(data[:length])
    for extra in (1, 8, 40):
        with pytest.raises(CorruptData):
            read_footer(data + bytes(extra))
    for length in range(64):
        with pytest.raises(CorruptData):
            segment.decode_segment_header(data[:length])


def resealed(body: bytes, offset: int) -> tuple[bytes, SegmentTrailer]:
    return body, SegmentTrailer(offset, len(body), crc32c(body))


def test_structure_is_checked_behind_a_valid_checksum() -> None:
    """Any word of the footer replaced: it still decodes to something safe, or is corrupt."""
    data, footer = assemble(sample_batches())
    body = data[footer.pages_end : -40]
    rng = random.Random(11)
    accepted = 0
    for _ in range(4000):
        changed = array("I", body)
        for _ in range(rng.randint(1, 2)):
            old = rng.randrange(len(changed))
            changed[old] = rng.choice(
                [0, 1, 7, changed[old] ^ 1, 2**32 - 1, rng.getrandbits(32), rng.choice(changed)]
            )
        try:
            found = segment.decode_footer(*resealed(changed.tobytes(), footer.pages_end))
        except CorruptData:
            continue
        accepted += 1
        assert found.pages_end == footer.pages_end
        assert found.first_llsn >= 1
    assert 0 < accepted < 3000


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_a_footer_or_corrupt(data: bytes, prefixed: bool) -> None:
    if prefixed:
        data = segment.FOOTER_MAGIC + b"\1\0\0\0" + data
    for decode in (
        lambda: segment.decode_footer(*resealed(data, 64)),
        lambda: segment.decode_trailer(data[-40:], len(data)),
        lambda: segment.decode_segment_header(data),
    ):
        try:
            decode()
        except CorruptData:
            pass


def test_footers_that_do_not_fit_together_are_corrupt() -> None:
    _, footer = assemble(sample_batches())
    blocks, stats, pages = footer.blocks, footer.stats, footer.pages
    control = footer.specials[1]
    wrong = {
        "overlap": replace(footer, blocks=replace(blocks, end_llsn=[14, 21])),
        "empty block": replace(footer, blocks=replace(blocks, end_llsn=[10, 21])),
        "llsn 0": replace(footer, blocks=replace(blocks, first_llsn=[0, 13])),
        "counts": replace(footer, stats=replace(stats, entries=8)),
        "keyed": replace(footer, stats=replace(stats, keyed=5)),
        "too many": replace(footer, blocks=replace(blocks, count=[3, 4])),
        "hole": replace(footer, blocks=replace(blocks, offset=[64, blocks.offset[1] + 8])),
        "begin": replace(footer, blocks=replace(blocks, offset=[72, blocks.offset[1]])),
        "page": replace(footer, pages=replace(pages, offset=[pages.offset[0] + 8])),
        "special": replace(footer, specials=(replace(control, llsn=21),)),
        "special order": replace(footer, specials=(control, control)),
    }
    for name, changed in wrong.items():
        body = segment.encode_footer(changed)[:-40]
        with pytest.raises(CorruptData):
            print(name, segment.decode_footer(*resealed(body, footer.pages_end)))
    # All counts 0, and no columns.
    empty = body[:8] + bytes(16) + body[24:96]
    with pytest.raises(CorruptData, match="S1"):
        segment.decode_footer(*resealed(empty, 64))


def test_unknown_versions_are_named_so() -> None:
    data, footer = assemble(sample_batches())
    header = bytearray(data[:64])
    header[3] = 9
    with pytest.raises(UnsupportedVersion):
        segment.decode_segment_header(header)
    body = bytearray(data[footer.pages_end : -40])
    body[4] = 2
    with pytest.raises(UnsupportedVersion):
        segment.decode_footer(*resealed(bytes(body), footer.pages_end))


def test_a_footer_beyond_the_limit_is_refused_before_it_is_read() -> None:
    length = SEGMENT_FOOTER_BYTES_MAX + 8
    tail = segment._TRAILER.pack(64, length, length + 104, 0, 0, segment.TRAILER_MAGIC, 0)[:-4]
    tail += crc32c(tail).to_bytes(4, "little")
    with pytest.raises(CorruptData, match="a footer of"):
        segment.decode_trailer(tail, length + 104)
