"""Rows of Arrow become the entries that the row-wise encoder makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import BadEntry, KeyTooLarge, ValueTooLarge
from tidelog.formats.batch import Batch, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.appends import Part
from tidelog.interface.arrow_appends import ArrowAppends
from tidelog.interface.routing import stream_of_key
from tidelog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

NOW = 1_700_000_000_000_000


def topic(streams: int = 1, *, versions: str = "log", added: int = 0) -> TopicManifest:
    return TopicManifest(1, "t", tuple(range(5, 5 + streams + added)), streams, versions)


def parts_of(batch: pa.RecordBatch, of: TopicManifest, **options: int) -> list[list[Part]]:
    options.setdefault("home", of.streams[0])
    return list(ArrowAppends(of, **options).chunks([batch]))


def opened(part: Part) -> Batch:
    head = seal_batch(part.body, stream=part.stream, term=1, first_llsn=1)
    return decode_batch(head + part.body.data)


def entries_of(chunks: Sequence[Sequence[Part]]) -> dict[int, list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for chunk in chunks:
        assert len({part.stream for part in chunk}) == len(chunk)
        for part in chunk:
            found.setdefault(part.stream, []).extend(opened(part).entries())
    return found


def rows(entries: Sequence[Entry], *, versions: bool) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "kind": pa.array([entry.kind.name for entry in entries], pa.string()),
        "key": pa.array([entry.key or None for entry in entries], pa.binary()),
        "value": pa.array(
            [entry.value if entry.kind <= Kind.PUT else None for entry in entries], pa.binary()
        ),
        "storage_id": pa.array(
            [entry.storage_id - (entry.storage_id >> 63 << 64) for entry in entries], pa.int64()
        ),
        "timestamp": pa.array([entry.timestamp_us for entry in entries], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
        "blobs": pa.array([list(entry.blobs) for entry in entries], pa.list_(pa.int64())),
    }
    if versions:
        columns["write_version"] = pa.array(
            [(entry.write_version or 0).to_bytes(16, "big") for entry in entries], pa.binary()
        )
    return pa.RecordBatch.from_pydict(columns)


@st.composite
def entries(draw: st.DrawFn, *, versions: bool) -> Entry:
    kind = draw(st.sampled_from([Kind.APPEND, Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE]))
    key = b""
    if kind is not Kind.DELETE_STORAGE:
        key = draw(st.binary(min_size=0 if kind is Kind.APPEND else 1, max_size=9))
    version = draw(st.integers(0, (1 << 128) - 1)) if versions and kind > Kind.APPEND else None
    return Entry(
        kind,
        draw(st.binary(max_size=20)) if kind <= Kind.PUT else b"",
        key,
        draw(st.sampled_from([0, 1, (1 << 64) - 1])),
        version,
        draw(st.sampled_from([NOW, NOW + 1, -5])),
        tuple(draw(st.lists(st.integers(0, (1 << 63) - 1), max_size=2))),
    )


@given(st.lists(entries(versions=False), min_size=1, max_size=30), st.integers(1, 3), st.data())
def test_rows_become_the_entries_that_they_describe(
    given_entries: list[Entry], streams: int, data: st.DataObject
) -> None:
    """Every stream gets its entries in order (A1), storage deletes too (A3)."""
    of = topic(streams, added=1)
    # One that was added since somebody asked is a home as well.
    home = data.draw(st.sampled_from([*of.streams, 99]))
    chunk_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]))
    found = entries_of(parts_of(rows(given_entries, versions=False), of, home=home,
                                chunk_bytes=chunk_bytes))  # fmt: skip
    expected: dict[int, list[Entry]] = {}
    for entry in given_entries:
        targets = [stream_of_key(of, entry.key) if entry.key else home]
        if entry.kind is Kind.DELETE_STORAGE:
            targets = list(of.streams[: of.key_streams])
        for stream in targets:
            expected.setdefault(stream, []).append(entry)
    assert found == expected


@given(st.lists(entries(versions=True), min_size=1, max_size=30))
def test_explicit_versions_are_kept_and_appends_have_none(given_entries: list[Entry]) -> None:
    chunks = parts_of(rows(given_entries, versions=True), topic(versions="explicit"))
    parts = [part for chunk in chunks for part in chunk]
    keyed = [entry for entry in given_entries if entry.kind is not Kind.APPEND]
    appended = [entry for entry in given_entries if entry.kind is Kind.APPEND]
    found = [entry for part in parts for entry in opened(part).entries()]
    assert found == appended + keyed
    least = [part.version_min for part in parts if part.version_min is not None]
    assert least == ([min(entry.write_version or 0 for entry in keyed)] if keyed else [])


@given(st.lists(entries(versions=False), min_size=1, max_size=12))
def test_the_bytes_are_those_of_the_row_wise_encoder(given_entries: list[Entry]) -> None:
    ((part,),) = parts_of(rows(given_entries, versions=False), topic())
    assert part.body == encode_entries(given_entries)


def test_a_slice_of_an_array_gives_its_own_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"bb", b"ccc"], "key": [b"x", b"", b"z"]})
    ((part,),) = parts_of(batch.slice(1, 2), topic())
    assert [(e.kind, e.key, e.value) for e in opened(part).entries()] == [
        (Kind.APPEND, b"", b"bb"),
        (Kind.PUT, b"z", b"ccc"),
    ]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary(), pa.binary_view()]
)
def test_text_and_every_layout_of_bytes_are_taken(kind: pa.DataType) -> None:
    values = pa.array([b"some text", b""], pa.binary()).cast(kind)
    ((part,),) = parts_of(pa.RecordBatch.from_pydict({"value": values}), topic())
    assert opened(part).values() == [b"some text", b""]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7, 8], pa.int64()),
        pa.array([7, 8], pa.int32()),
        pa.array([Decimal(7), Decimal(8)], pa.decimal128(38, 0)),
        pa.array([(7).to_bytes(16, "big"), (8).to_bytes(16, "big")], pa.binary(16)),
    ],
)
def test_versions_may_be_bytes_decimals_or_longs(column: Any) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b"], "key": [b"k", b"l"], "write_version": column}
    )
    ((part,),) = parts_of(batch, topic(versions="explicit"))
    assert [entry.write_version for entry in opened(part).entries()] == [7, 8]
    assert part.version_min == 7


def test_columns_of_the_log_itself_are_left_out() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"glsn": [9], "llsn": [9], "stream": [9], "key": [b"k"], "value": [b"v"],
         "write_version": [(9).to_bytes(16, "big")]}
    )  # fmt: skip
    ((part,),) = parts_of(batch, topic())
    (entry,) = opened(part).entries()
    assert (entry.kind, entry.key, entry.write_version) == (Kind.PUT, b"k", None)


def test_large_input_is_cut_into_chunks_of_about_the_asked_size() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [bytes(1000)] * 1000})
    chunks = list(ArrowAppends(topic(), home=5, chunk_bytes=100_000).chunks([batch] * 2))
    sizes = [len(part.body.data) for chunk in chunks for part in chunk]
    assert sum(part.body.count for chunk in chunks for part in chunk) == 2000
    assert max(sizes) <= 125_000
    assert len(chunks) == 18


def test_small_batches_share_a_chunk() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"x"]})
    ((part,),) = list(ArrowAppends(topic(), home=5).chunks([batch] * 50))
    assert part.body.count == 50


def test_no_rows_make_no_chunks() -> None:
    assert parts_of(pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())}), topic()) == []


@pytest.mark.parametrize(
    ("columns", "versions", "message"),
    [
        ({"valeu": [b"x"]}, "log", "no column valeu"),
        ({"key": [b"x"]}, "log", "no column value"),
        ({"value": [1]}, "log", "column value is int64"),
        ({"value": [b"x"], "key": [1]}, "log", "column key is int64"),
        ({"value": [b"x"], "kind": ["UPSERT"]}, "log", "'UPSERT' does not exist"),
        ({"value": [b"x"], "kind": ["CONTROL"]}, "log", "'CONTROL' does not exist"),
        ({"value": [b"x"], "kind": [2]}, "log", "column kind is int64"),
        ({"value": [b"x"], "kind": ["PUT"]}, "log", "a PUT entry needs a key"),
        ({"kind": ["DELETE"]}, "log", "a DELETE entry needs a key"),
        ({"kind": ["DELETE_STORAGE"], "key": [b"k"]}, "log", "DELETE_STORAGE entry has no key"),
        ({"value": pa.array([None], pa.binary())}, "log", "has no value"),
        ({"value": [b"x"], "storage_id": ["1"]}, "log", "column storage_id is string"),
        ({"value": [b"x"], "timestamp": [1]}, "log", "column timestamp is int64"),
        ({"value": [b"x"], "blobs": [1]}, "log", "column blobs is int64"),
        ({"value": [b"x"], "blobs": [[None, 1]]}, "log", "blobs holds a null"),
        ({"value": [b"x"], "key": [b"k"], "write_version": [1]}, "log", "GLSNs as write versions"),
        ({"value": [b"x"], "key": [b"k"]}, "explicit", "no write_version"),
        ({"value": [b"x"], "key": [b"k"], "write_version": [-1]}, "explicit", "is negative"),
        ({"value": [b"x"], "key": [b"k"], "write_version": [b"1"]}, "explicit", "16 bytes"),
        ({"value": [b"x"], "key": [b"k"], "write_version": [1.5]}, "explicit", "write_version is"),
    ],
)
def test_what_does_not_fit_is_named(columns: dict[str, Any], versions: str, message: str) -> None:
    with pytest.raises(BadEntry, match=message):
        parts_of(pa.RecordBatch.from_pydict(columns), topic(versions=versions))


def test_keys_and_values_have_their_limits() -> None:
    long_key = {"key": [b"k" * (KEY_BYTES_MAX + 1)], "value": [b""]}
    with pytest.raises(KeyTooLarge):
        parts_of(pa.RecordBatch.from_pydict(long_key), topic())
    with pytest.raises(ValueTooLarge):
        parts_of(pa.RecordBatch.from_pydict({"value": [bytes(VALUE_BYTES_MAX + 1)]}), topic())
