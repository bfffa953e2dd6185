"""Record batches say of each entry what records say of it, however entries are cut and joined."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BadOption
from tidelog.formats.batch import Batch, decode_batch, encode_entries, encode_values, seal_batch
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.interface.arrow import (
    DEFAULT_COLUMNS,
    ROWS,
    ROWS_MAX,
    arrow_schema,
    record_batches,
)
from tidelog.interface.arrow_columns import StreamSlice
from tidelog.interface.records import Record, records_of

ALL_COLUMNS = (*DEFAULT_COLUMNS, "blobs", "rewritten")
Page = list[StreamSlice]


def batch_of(
    entries: Sequence[Entry],
    first_llsn: int = 1,
    stream: int = 1,
    *,
    rewritten: bool = False,
    llsns: Sequence[int] | None = None,
) -> Batch:
    body = encode_entries(entries, rewritten=rewritten, llsns=llsns)
    sealed = seal_batch(body, stream=stream, term=1, first_llsn=first_llsn)
    return decode_batch(sealed + body.data)


def values_of(count: int, first_llsn: int = 1) -> Batch:
    body = encode_values([b"%d" % i for i in range(count)], timestamp_us=7)
    return decode_batch(seal_batch(body, stream=1, term=1, first_llsn=first_llsn) + body.data)


def whole(batch: Batch, glsn: int | None = None) -> StreamSlice:
    first = batch.first_llsn if glsn is None else glsn
    runs = GlsnRuns([(batch.first_llsn, first, batch.end_llsn - batch.first_llsn)])
    return batch.stream, BatchSlice(batch, 0, batch.count, runs)


def row_of(record: Record) -> dict[str, Any]:
    """What a record batch must say of a record."""
    wrapped = record.storage_id - (1 << 64 if record.storage_id >= 1 << 63 else 0)
    deletes = record.kind in (Kind.DELETE, Kind.DELETE_STORAGE)
    return {
        "glsn": record.glsn,
        "llsn": record.llsn,
        "stream": record.stream,
        "kind": record.kind.name,
        "storage_id": wrapped,
        "key": record.key or None,
        "value": None if deletes else record.value,
        "write_version": record.write_version.to_bytes(16, "big"),
        "timestamp": record.timestamp_us,
        "blobs": list(record.blobs),
        "rewritten": record.rewritten,
    }


def rows_of(pages: Sequence[Page], columns: Sequence[str] = ALL_COLUMNS) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in record_batches(pages, columns):
        assert batch.schema == arrow_schema(columns)
        assert 1 <= batch.num_rows <= ROWS_MAX
        batch.validate(full=True)
        for row in batch.to_pylist():
            if isinstance(row.get("timestamp"), datetime):
                row["timestamp"] = round(row["timestamp"].timestamp() * 1_000_000)
            rows.append(row)
    return rows


def expected(pages: Sequence[Page]) -> list[dict[str, Any]]:
    records = [
        record for page in pages for stream, piece in page for record in records_of(stream, piece)
    ]
    return [row_of(record) for record in sorted(records, key=lambda record: record.glsn)]


appends = st.builds(
    Entry,
    st.just(Kind.APPEND),
    st.binary(max_size=9),
    st.one_of(st.just(b""), st.binary(max_size=5)),
    st.sampled_from([0, 3, 1 << 63, (1 << 64) - 1]),
    st.just(None),
    st.integers(0, 1 << 50),
    st.lists(st.integers(0, 1 << 40), max_size=3).map(tuple),
)
writes = st.builds(
    Entry,
    st.sampled_from([Kind.PUT, Kind.DELETE]),
    st.binary(max_size=9),
    st.binary(min_size=1, max_size=5),
    st.sampled_from([0, 3]),
    st.just(None),
    st.integers(0, 1 << 50),
)
others = st.sampled_from([Entry(Kind.DELETE_STORAGE, storage_id=3), Entry(Kind.CONTROL, b"hidden")])
entries = st.one_of(appends, writes, others)


@st.composite
def pages_of_entries(draw: st.DrawFn) -> list[Page]:
    """A topic of up to three streams: batches of any entries, cuts anywhere, slices of them."""
    explicit = draw(st.booleans())
    pages: list[Page] = []
    glsn, llsns = 1, {1: 1, 2: 1, 3: 1}
    for _ in range(draw(st.integers(1, 3))):
        page: Page = []
        spans: list[tuple[int, Batch, GlsnRuns]] = []
        for stream in draw(st.lists(st.sampled_from([1, 2, 3]), max_size=4)):
            mine = draw(st.lists(entries, min_size=1, max_size=8))
            if explicit:
                mine = [
                    Entry(e.kind, e.value, e.key, e.storage_id, (i << 64) + 5, e.timestamp_us)
                    for i, e in enumerate(mine)
                ]
            gaps = draw(st.booleans())
            at = [llsns[stream] + i * (2 if gaps else 1) for i in range(len(mine))]
            rewritten = draw(st.booleans())
            batch = batch_of(mine, at[0], stream, rewritten=rewritten, llsns=at if gaps else None)
            llsns[stream] = batch.end_llsn
            spans.append((stream, batch, GlsnRuns()))
        # Cuts that take a few LLSNs of each stream in turn interleave the GLSNs of batches.
        step = draw(st.integers(1, 9))
        left = [(batch.first_llsn, batch.end_llsn) for _, batch, _ in spans]
        while any(begin < end for begin, end in left):
            taken: set[int] = set()
            for i, (stream, _, runs) in enumerate(spans):
                begin, end = left[i]
                if begin < end and stream not in taken:
                    count = min(step, end - begin)
                    runs.append(begin, glsn, count)
                    left[i] = begin + count, end
                    glsn += count
                    taken.add(stream)
        for stream, batch, runs in spans:
            begin = draw(st.integers(0, batch.count))
            end = draw(st.integers(begin, batch.count))
            page.append((stream, BatchSlice(batch, begin, end, runs)))
        pages.append(page)
    return pages


@given(pages_of_entries())
def test_rows_are_the_records_in_total_order(pages: list[Page]) -> None:
    assert rows_of(pages) == expected(pages)


@given(pages_of_entries(), st.permutations(ALL_COLUMNS), st.integers(1, len(ALL_COLUMNS)))
def test_any_columns_in_any_order_can_be_asked_for(
    pages: list[Page], order: list[str], count: int
) -> None:
    columns = order[:count]
    wanted = [{name: row[name] for name in columns} for row in expected(pages)]
    assert rows_of(pages, columns) == wanted


def test_the_types_are_exactly_those_that_spark_asks_for() -> None:
    types = {field.name: field.type for field in arrow_schema(ALL_COLUMNS)}
    assert types["key"] == types["value"] == types["write_version"] == pa.binary()
    assert types["glsn"] == types["llsn"] == types["stream"] == types["storage_id"] == pa.int64()
    assert types["timestamp"] == pa.timestamp("us", tz="UTC")
    assert types["kind"] == pa.string()
    assert types["blobs"] == pa.list_(pa.int64())
    assert types["rewritten"] == pa.bool_()
    assert all(field.nullable for field in arrow_schema())


def test_timestamps_are_points_in_time() -> None:
    batch = batch_of([Entry(Kind.APPEND, b"x", timestamp_us=1_700_000_000_000_001)])
    (found,) = record_batches([[whole(batch)]])
    assert found["timestamp"].to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC)]


def test_small_slices_are_joined_and_large_ones_are_cut() -> None:
    small = [whole(values_of(10, 1 + 10 * i)) for i in range(ROWS // 5)]
    assert [batch.num_rows for batch in record_batches([small])] == [16_390, 16_370]
    large = whole(values_of(2 * ROWS_MAX + 5))
    assert [batch.num_rows for batch in record_batches([[large]])] == [ROWS_MAX, ROWS_MAX, 5]
    assert rows_of([[large]], ["glsn", "value"])[ROWS_MAX + 3] == {
        "glsn": ROWS_MAX + 4,
        "value": b"%d" % (ROWS_MAX + 3),
    }


def test_slices_of_many_pages_are_joined() -> None:
    pages = [[whole(values_of(10, 1 + 10 * i))] for i in range(50)]
    (batch,) = record_batches(pages)
    assert batch["glsn"].to_pylist() == list(range(1, 501))


def test_a_large_slice_is_wrapped_where_it_lies() -> None:
    stream, piece = whole(values_of(ROWS))
    (batch,) = record_batches([[(stream, piece)]], ["value"])
    _, _, data = batch["value"].buffers()
    body = pa.py_buffer(piece.batch.data)
    assert body.address <= data.address < body.address + body.size


def test_an_interleaved_page_with_too_many_rows_is_cut_after_it_was_put_in_order() -> None:
    count = ROWS_MAX // 2 + 1000
    odd, even = values_of(count), batch_of([Entry(Kind.APPEND, b"x")] * count, stream=2)
    runs = [GlsnRuns([(i + 1, 2 * i + first, 1) for i in range(count)]) for first in (1, 2)]
    page = [(1, BatchSlice(odd, 0, count, runs[0])), (2, BatchSlice(even, 0, count, runs[1]))]
    batches = list(record_batches([page], ["glsn"]))
    assert [batch.num_rows for batch in batches] == [ROWS_MAX, 2 * count - ROWS_MAX]
    glsns = [glsn for batch in batches for glsn in batch["glsn"].to_pylist()]
    assert glsns == list(range(1, 2 * count + 1))


def test_nothing_but_control_entries_gives_no_batch() -> None:
    batch = batch_of([Entry(Kind.CONTROL, b"term")])
    assert list(record_batches([[whole(batch)]])) == []
    assert list(record_batches([[], []])) == []


def test_batches_with_and_without_keys_are_joined() -> None:
    pages = [
        [
            whole(values_of(3, 1)),
            whole(batch_of([Entry(Kind.PUT, b"v", b"k")], 4)),
            whole(batch_of([Entry(Kind.DELETE, b"", b"k")], 5)),
        ]
    ]
    assert rows_of(pages) == expected(pages)


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadOption, match="no column 'timestmp': did you mean 'timestamp'"):
        arrow_schema(["timestmp"])
