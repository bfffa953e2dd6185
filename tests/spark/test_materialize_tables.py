"""Tables of both formats against a plain model, without a log: facts go in, rows are compared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.model import Row, Step, few, histories, state_of
from tidelog.errors import BadOption, CorruptData, LogError, WrongLog
from tidelog.formats.entry import Kind
from tidelog.interface.records import Record
from tidelog.pipeline import read_table
from tidelog.pipeline.materialization.changes import facts_of_entries
from tidelog.pipeline.materialization.delta_table import DeltaFacts
from tidelog.pipeline.materialization.facts import Facts
from tidelog.pipeline.materialization.parquet_table import CURRENT, ParquetFacts
from tidelog.pipeline.materialization.progress import Counts
from tidelog.pipeline.materialization.running import ENTRY_COLUMNS
from tidelog.pipeline.materialization.tables import Beginning, Origin, Table
from tidelog.pipeline.replaying.tables import open_version

ORIGIN = Origin("00" * 16, "events")
FORMATS: dict[str, Any] = {"delta": DeltaFacts, "parquet": ParquetFacts}


@pytest.fixture(params=["delta", pytest.param("parquet", marks=pytest.mark.soak)])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(spark: SparkSession, kind: str, path: Path, origin: Origin = ORIGIN) -> Table:
    table: Table = FORMATS[kind](spark, path, origin, Beginning())
    return table


def recorded(steps: Sequence[Step], *, streams: int = 2) -> list[Record]:
    """The steps at their places in a log: keys by hash, storage deletes in every stream."""
    records: list[Record] = []
    for step in steps:
        places = [sum(step.key) % streams + 1]
        if step.kind is Kind.DELETE_STORAGE:
            places = list(range(1, streams + 1))
        for stream in places:
            glsn = len(records) + 1
            version = glsn if step.version is None else step.version
            records.append(
                Record(glsn, glsn, stream, step.kind, step.key, step.value, step.storage_id,
                       version, 0)
            )  # fmt: skip
    return records


def frame(spark: SparkSession, records: Sequence[Record]) -> DataFrame:
    rows = [
        (r.glsn, r.stream, r.kind.name, r.storage_id, r.key or None,
         r.value if r.kind in (Kind.PUT, Kind.APPEND) else None,
         r.write_version.to_bytes(16, "big"), None)
        for r in records
    ]  # fmt: skip
    return spark.createDataFrame(rows, ENTRY_COLUMNS)


def take(spark: SparkSession, table: Table, records: Sequence[Record], end: int) -> Counts:
    facts = Facts(frame(spark, records))
    table.apply(facts, end)
    return facts.counts


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(
        (row.storage_id, bytes(row.key), bytes(row.value),
         int.from_bytes(row.write_version, "big"), row.glsn, row.stream)
        for row in frame.collect()
    )  # fmt: skip


@pytest.mark.parametrize("explicit", [pytest.param(False, marks=pytest.mark.soak), True])
@few()
@given(data=st.data())
def test_a_table_equals_the_model_after_every_batch(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    explicit: bool,
    data: st.DataObject,
) -> None:
    """Many keys' histories at once, in several batches; versions out of order if explicit."""
    records = recorded(data.draw(histories(explicit=explicit, size=600)))
    cuts = sorted(data.draw(st.randoms(use_true_random=True)).sample(range(1, len(records)), 2))
    for name in FORMATS:
        path = tmp_path_factory.mktemp(name) / "table"
        origin = Origin(ORIGIN.log_id, ORIGIN.topic, explicit)
        table = opened(spark, name, path, origin)
        for begin, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
            take(spark, table, records[begin:end], end + 1)
            assert rows_of(table.rows()) == state_of(records[:end])
            assert table.position == end + 1
        again = opened(spark, name, path, origin)
        assert (again.position, again.table_id) == (len(records) + 1, table.table_id)
        assert rows_of(read_table(spark, str(path))) == state_of(records)
        assert again.row_count() == len(state_of(records))


def test_a_batch_taken_again_changes_nothing(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    """As after a crash, and with copies that compaction made of older entries."""
    steps = [Step(Kind.PUT, b"a", b"1"), Step(Kind.PUT, b"b", b"2"), Step(Kind.DELETE, b"a")]
    records = recorded(steps)
    copy = Record(9, 9, records[0].stream, Kind.PUT, b"a", b"1", 0, 1, 0, (), True)
    table = opened(spark, kind, tmp_path / "table")
    take(spark, table, records, 4)
    take(spark, table, records[:1], 4)  # Skipped: the table is there already.
    take(spark, table, [*records, copy], 10)  # From before it: known, and harmless.
    assert rows_of(table.rows()) == state_of(records)
    assert table.position == 10


def test_a_late_write_stays_dead(spark: SparkSession, kind: str, tmp_path: Path) -> None:
    """T3, for a key and for a whole storage, batches later."""
    steps = [
        Step(Kind.PUT, b"a", b"old", version=1),
        Step(Kind.DELETE, b"a", version=7),
        Step(Kind.DELETE_STORAGE, storage_id=1, version=7),
        Step(Kind.PUT, b"a", b"late", version=6),
        Step(Kind.PUT, b"c", b"late", storage_id=1, version=6),
        Step(Kind.PUT, b"c", b"new", storage_id=1, version=8),
        Step(Kind.PUT, b"a", b"new", version=8),
    ]
    records = recorded(steps)
    table = opened(spark, kind, tmp_path / "table", Origin(ORIGIN.log_id, ORIGIN.topic, True))
    for begin, end in ((0, 1), (1, 4), (4, 6)):
        take(spark, table, records[begin:end], end + 1)
    assert rows_of(table.rows()) == []
    take(spark, table, records[6:], len(records) + 1)
    assert [row[2] for row in rows_of(table.rows())] == [b"new", b"new"]


def test_entries_without_keys_are_counted_and_move_the_position(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    table = opened(spark, kind, tmp_path / "table")
    records = recorded([Step(Kind.APPEND, value=b"x")] * 3)
    assert take(spark, table, records, 4) == Counts(appends=3)
    assert take(spark, table, [], 9) == Counts()
    assert (table.position, table.row_count()) == (9, 0)
    assert opened(spark, kind, tmp_path / "table").position == 9


@pytest.mark.parametrize("rows", [0, pytest.param(3, marks=pytest.mark.soak)])
def test_a_rebuilt_table_holds_the_new_facts_alone(
    spark: SparkSession, kind: str, tmp_path: Path, rows: int
) -> None:
    """Rows and removals of before are gone, in one commit with position and beginning (P3)."""
    path = tmp_path / "table"
    table = opened(spark, kind, path)
    old = [Step(Kind.PUT, b"a", b"1"), Step(Kind.PUT, b"b", b"2"), Step(Kind.DELETE, b"b")]
    take(spark, table, recorded(old), 4)
    steps = [Step(Kind.PUT, b"new %d" % number, b"3") for number in range(rows)]
    steps += [Step(Kind.PUT, b"x", b"4", 1), Step(Kind.DELETE_STORAGE, storage_id=1)]
    records = recorded(steps)
    table.rebuild(facts_of_entries(frame(spark, records)), 20, Beginning(3, 7))
    again = opened(spark, kind, path)
    for one in (table, again):
        assert (one.position, one.beginning) == (20, Beginning(3, 7))
        assert rows_of(one.rows()) == state_of(records)
        assert one.row_count() == rows
    assert again.table_id == table.table_id
    # It goes on like any other table, and what was removed stays known.
    late = Record(21, 21, records[-1].stream, Kind.PUT, b"x", b"4", 1, 1, 0)
    more = Record(22, 22, 1, Kind.PUT, b"a", b"5", 0, 22, 0)
    take(spark, again, [late, more], 23)
    assert rows_of(again.rows()) == sorted([*state_of(records), (0, b"a", b"5", 22, 22, 1)])
    assert not [left.name for left in path.rglob("_overwrite")]


def test_a_delta_table_may_be_tidied_up_between_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As by a job that runs every night while the table follows the log."""
    path = tmp_path / "table"
    records = recorded([Step(Kind.PUT, b"%d" % (i % 7), b"value") for i in range(12)])
    table = opened(spark, "delta", path)
    for begin in range(0, 12, 3):
        take(spark, table, records[begin : begin + 3], begin + 4)
        others = DeltaTable(path)
        others.optimize.z_order(["key"])
        others.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert rows_of(read_table(spark, str(path))) == state_of(records)
    table.rebuild(facts_of_entries(frame(spark, records)), 20, Beginning())
    assert rows_of(read_table(spark, str(path))) == state_of(records)


def test_a_table_of_another_topic_is_refused(
    spark: SparkSession, kind: str, tmp_path: Path
) -> None:
    opened(spark, kind, tmp_path / "table")
    with pytest.raises(WrongLog, match="other"):
        opened(spark, kind, tmp_path / "table", Origin(ORIGIN.log_id, "other"))


def test_a_crash_before_the_pointer_moves_leaves_the_old_version(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    records = recorded([Step(Kind.PUT, b"a", b"1"), Step(Kind.PUT, b"b", b"2")])
    table = opened(spark, "parquet", path)
    take(spark, table, records[:1], 2)
    before = (path / CURRENT).read_bytes()
    take(spark, table, records[1:], 3)
    (path / CURRENT).write_bytes(before)  # As if the second batch had got this far only.
    half_done = path / "v-99"
    half_done.mkdir()
    (half_done / "part-0.parquet").write_bytes(b"half a file")

    reopened = opened(spark, "parquet", path)
    assert rows_of(reopened.rows()) == state_of(records[:1])
    assert not half_done.exists()
    take(spark, reopened, records[1:], 3)
    assert rows_of(reopened.rows()) == state_of(records)


def test_only_the_version_before_stays_beside_the_current_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = opened(spark, "parquet", tmp_path / "table")
    for record in recorded([Step(Kind.PUT, b"%d" % Random(i).randrange(9)) for i in range(4)]):
        take(spark, table, [record], record.glsn + 1)
    assert sorted(p.name for p in (tmp_path / "table").glob("v-*")) == ["v-4", "v-5"]


def test_other_files_are_not_taken_for_a_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear reader")
    with pytest.raises(BadOption, match="something else"):
        opened(spark, "parquet", tmp_path)
    with pytest.raises(BadOption, match="no table"):
        read_table(spark, str(tmp_path))
    write_deltalake(tmp_path, pa.table({"key": [b"a"], "day": [1]}))
    with pytest.raises(BadOption, match="did not make"):
        read_table(spark, str(tmp_path))


@pytest.mark.parametrize("place", ["*.parquet", "_tombstones/*.parquet"])
def test_a_file_that_is_gone_is_not_taken_for_no_rows(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    path = tmp_path / "table"
    records = recorded([Step(Kind.PUT, b"a"), Step(Kind.DELETE, b"b"), Step(Kind.PUT, b"c")])
    table = opened(spark, "parquet", path)
    take(spark, table, records[:2], 3)
    for file in (path / "v-3").glob(place):
        file.unlink()
    with pytest.raises(CorruptData, match="have 0 rows, but the table has 1"):
        take(spark, table, records[2:], 4)
    again = opened(spark, "parquet", path)
    assert (again.position, again.row_count()) == (3, 1)
    if place == "*.parquet":
        with pytest.raises(CorruptData, match="have 0 rows"):
            read_table(spark, str(path))
        with pytest.raises(CorruptData, match="have 0 rows"):
            open_version(path)


def test_a_damaged_delta_table_is_told_by_its_path(spark: SparkSession, tmp_path: Path) -> None:
    take(spark, opened(spark, "delta", tmp_path), recorded([Step(Kind.PUT, b"a")]), 2)
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        commit.write_text("{")
    told = f"the Delta table at {re.escape(str(tmp_path))}: .*[^\\n]$"
    with pytest.raises(LogError, match=told):
        read_table(spark, str(tmp_path))
    with pytest.raises(LogError, match=told):
        open_version(tmp_path)


def test_a_damaged_pointer_is_told(spark: SparkSession, tmp_path: Path) -> None:
    opened(spark, "parquet", tmp_path)
    (tmp_path / CURRENT).write_bytes(b"{")
    with pytest.raises(CorruptData, match="_current"):
        opened(spark, "parquet", tmp_path)
