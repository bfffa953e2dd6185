"""``.option("archive", DIR)``: archive and log are read as one.

What Spark asks of the source is asked here without Spark, so that every boundary can be tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from tests.pipeline.archives import ALL, MemoryTopic, Rows, archived, plain_rows
from tests.spark.nodes import Node
from tests.spark.rows import fill
from tidelog.errors import BadOption, CorruptData, MissedDeletes, Trimmed, WrongLog
from tidelog.interface import arrow
from tidelog.pipeline.archiving.progress import ArchiveSummary
from tidelog.spark import archive_reading
from tidelog.spark.archive_directory import MANIFEST
from tidelog.spark.archive_topic import ArchivedRange, ArchivedTopic, opened
from tidelog.spark.connections import CONNECTIONS
from tidelog.spark.options import batch_options, stream_options
from tidelog.spark.partitions import GlsnRange
from tidelog.spark.source import BatchReader
from tidelog.spark.stream_source import StreamReader
from tidelog.storage.os_vfs import OsVfs

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog, RemoteTopic


@pytest.fixture(autouse=True)
def hung_up() -> Iterator[None]:
    yield
    CONNECTIONS.close()


@pytest.fixture
def log(node: Node) -> Iterator[RemoteLog]:
    with node.connect() as connected:
        yield connected


class Story:
    """A topic, its archive, and what both had before anything was trimmed."""

    def __init__(self, node: Node, log: RemoteLog, topic: str, directory: Path) -> None:
        self.url = node.url(topic)
        self.topic: RemoteTopic = log.create_topic(topic, streams=2)
        self.directory = directory / "archive"
        self._log_id = log.log_id.hex()

    def fill(self, batches: int) -> None:
        for i in range(batches):
            stream = self.topic.streams[i % 2]
            self.topic.append_batch([b"%d %d" % (i, j) for j in range(1 + i % 3)], stream=stream)

    def rows(self) -> Rows:
        return [row for batch in self.topic.read_arrow(columns=ALL) for row in plain_rows(batch)]

    def archive(
        self, up_to: int | None = None, *, range_entries: int = 5, trim: bool = False, keep: int = 0
    ) -> ArchiveSummary:
        return archived(
            OsVfs(),
            self.topic,
            directory=str(self.directory),
            log_id=self._log_id,
            up_to=up_to,
            range_entries=range_entries,
            trim=trim,
            keep=keep,
        )

    def options(self, **more: str | int) -> dict[str, str]:
        given = {"endpoint": self.url, "archive": str(self.directory), **more}
        return {name: str(value) for name, value in given.items()}

    def read(self, begin: int, end: int, **more: str | int) -> Rows:
        """A batch read, checked for its partitions."""
        offsets = {"startingOffsets": begin, "endingOffsets": end}
        reader = BatchReader(batch_options(self.options(**offsets, **more)), ALL)
        return read_all(reader, reader.partitions())


def read_all(reader: BatchReader | StreamReader, partitions: object) -> Rows:
    """The rows of partitions in total order; each partition has its own in that order."""
    assert isinstance(partitions, list)
    found: Rows = []
    places = [(part.begin, part.streams) for part in partitions]
    assert places == sorted(places), "P2"
    for part in partitions:
        assert isinstance(part, GlsnRange)
        rows = [row for batch in reader.read(part) for row in plain_rows(batch)]
        glsns = [row["glsn"] for row in rows]
        assert glsns == sorted(glsns)
        assert all(part.begin <= glsn < part.end for glsn in glsns)
        found += rows
    return sorted(found, key=lambda row: int(row["glsn"]))


@pytest.fixture
def story(node: Node, log: RemoteLog, topic: str, tmp_path: Path) -> Story:
    return Story(node, log, topic, tmp_path)


# -- every boundary ----------------------------------------------------------------------------


def test_batches_equal_the_untrimmed_log_at_every_boundary(story: Story) -> None:
    story.fill(8)
    wanted = story.rows()
    assert len(wanted) == 15
    for up_to, trim, keep in ((11, False, 0), (11, True, 3), (11, True, 0), (16, True, 0)):
        story.archive(up_to, range_entries=4, trim=trim, keep=keep)
        for begin in range(1, 17):
            for end in range(begin, 17):
                rows = story.read(begin, end, minPartitions=1 + (begin + end) % 3)
                assert rows == wanted[begin - 1 : end - 1], (up_to, trim, keep, begin, end)
    assert story.topic.first_available == 16


@pytest.mark.parametrize("limit", [1, 3, 7, 0])
def test_streams_equal_the_untrimmed_log_from_every_start(story: Story, limit: int) -> None:
    story.fill(10)
    wanted = story.rows()
    story.archive(13, trim=True, keep=2)
    for begin in range(1, 21):
        options = stream_options(
            story.options(startingOffsets=begin, maxRecordsPerTrigger=limit or 1000, fetchWaitMs=0)
        )
        reader = StreamReader(options, ALL)
        bound: ReadLimit = ReadMaxRows(limit) if limit else ReadAllAvailable()
        found: list[Rows] = []
        start = reader.initialOffset()
        while (end := reader.latestOffset(start, bound)) != start:
            found.append(read_all(reader, reader.partitions(start, end)))
            assert end["glsn"] - start["glsn"] <= limit or not limit or start["glsn"] >= 13
            start = end
        assert [row for rows in found for row in rows] == wanted[begin - 1 :]
        assert reader.reportLatestOffset() == start | {"from": 20}


def test_earliest_is_the_beginning_of_the_archive(story: Story) -> None:
    story.fill(4)
    story.topic.trim(3)
    wanted = story.rows()
    story.archive(trim=True)
    story.fill(2)
    reader = BatchReader(batch_options(story.options()), ALL)
    assert read_all(reader, reader.partitions()) == wanted + story.rows()
    stream = StreamReader(stream_options(story.options(startingOffsets="earliest")), ALL)
    assert stream.initialOffset()["glsn"] == 3
    with pytest.raises(Trimmed, match=r"GLSN 2 .* was trimmed"):
        story.read(2, 5)


def test_an_archive_with_nothing_in_it_changes_nothing(story: Story) -> None:
    story.archive()
    story.fill(4)
    story.topic.trim(3)
    wanted = story.rows()
    for options in (story.options(), story.options(startingTimestamp=0)):
        reader = BatchReader(batch_options(options), ALL)
        assert read_all(reader, reader.partitions()) == wanted
    with pytest.raises(Trimmed, match=r"GLSN 2 .* was trimmed"):
        story.read(2, 5)


def test_moments_are_found_in_the_archive_and_in_the_log(story: Story) -> None:
    story.fill(9)
    wanted = story.rows()
    moments = sorted({row["timestamp"] + shift for row in wanted for shift in (-1, 0, 1)})
    before = [story.topic.find_time(moment).glsn for moment in moments]
    story.archive(9, range_entries=3, trim=True)
    with opened(batch_options(story.options())) as joined:
        assert [joined.find_time(moment).glsn for moment in moments] == before
    story.archive(trim=True)
    with opened(batch_options(story.options())) as joined:
        assert [joined.find_time(moment).glsn for moment in moments] == before


def test_bytes_bound_what_a_trigger_reads_of_the_archive(story: Story) -> None:
    for _ in range(30):
        story.topic.append(bytes(1000))
    story.archive(26, trim=True)
    options = stream_options(story.options(startingOffsets=1, maxBytesPerTrigger=3500))
    reader = StreamReader(options, ALL)
    ends, start = [], reader.initialOffset()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        ends.append(end["glsn"])
        start = end
    assert ends[-1] == 31
    assert 26 in ends
    assert all(later - sooner <= 4 for sooner, later in pairwise([1, *ends]))
    assert len(ends) <= 14


def test_a_bound_below_the_size_of_an_entry_gets_on_all_the_same(story: Story) -> None:
    for _ in range(3):
        story.topic.append(bytes(1000))
    story.archive(trim=True)
    reader = StreamReader(
        stream_options(story.options(startingOffsets=1, maxBytesPerTrigger=1)), ALL
    )
    offset = reader.initialOffset()
    for wanted in (2, 3, 4):
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        assert offset["glsn"] == wanted


def test_columns_are_chosen_and_look_as_they_do_in_the_log(story: Story) -> None:
    fill(story.topic, 40)
    story.topic.put(b"k", b"v", blobs=(4, 5))
    columns = ("blobs", "value", "rewritten", "timestamp")
    wanted = list(story.topic.read_arrow(columns=columns))
    story.archive()
    reader = BatchReader(batch_options(story.options()), columns)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {batch.schema for batch in found} == {wanted[0].schema}
    assert [row for batch in found for row in plain_rows(batch)] == plain_rows(wanted[0])


def test_small_files_share_a_partition_and_large_ones_are_split(story: Story) -> None:
    story.fill(12)
    assert story.archive(range_entries=2).files == 12
    reader = BatchReader(batch_options(story.options(maxRecordsPerPartition=8)), ALL)
    partitions = reader.partitions()
    assert [(part.begin, part.end) for part in partitions if isinstance(part, ArchivedRange)] == [
        *((1, 9), (9, 17), (17, 25))
    ]
    many = BatchReader(batch_options(story.options(minPartitions=24)), ALL)
    assert len(many.partitions()) == 24
    assert read_all(many, many.partitions()) == story.rows()


# -- while the archive grows -------------------------------------------------------------------


def test_what_is_trimmed_between_plan_and_read_comes_from_the_archive(story: Story) -> None:
    story.fill(10)
    wanted = story.rows()
    story.archive(6)
    reader = BatchReader(batch_options(story.options(minPartitions=6)), ALL)
    partitions = reader.partitions()
    assert {len(part.streams) for part in partitions if isinstance(part, GlsnRange)} == {0, 1}
    story.archive(17, trim=True)
    assert read_all(reader, partitions) == wanted


def test_a_partition_goes_on_in_the_log_behind_what_was_trimmed(story: Story) -> None:
    story.fill(10)
    wanted = story.rows()
    story.archive(6)
    reader = BatchReader(batch_options(story.options(startingOffsets=8)), ALL)
    partitions = reader.partitions()
    story.archive(12, trim=True)
    assert read_all(reader, partitions) == wanted[7:]


def test_a_page_that_was_handed_on_does_not_come_again_from_the_archive(story: Story) -> None:
    for i in range(12):
        story.topic.append(b"%d" % i, stream=story.topic.streams[0])
    story.archive(2)
    reader = BatchReader(batch_options(story.options(startingOffsets=3)), ALL)
    (partition,) = reader.partitions()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_reading, "PAGE_BYTES", 1)  # Each entry is a page,
        patch.setattr(arrow, "ROWS", 1)  # and each page a record batch.
        batches = reader.read(partition)
        found = plain_rows(next(batches))
        wanted = story.rows()[2:]
        story.archive(trim=True)
        found += [row for batch in batches for row in plain_rows(batch)]
    assert found == wanted


def test_a_query_that_looks_while_the_log_is_trimmed_finds_the_archive(story: Story) -> None:
    story.fill(10)
    story.archive(6)
    with opened(stream_options(story.options())) as joined:
        assert isinstance(joined, ArchivedTopic)
        story.archive(17, trim=True)
        assert joined.find_end(8, records_max=5).glsn == 13
        with pytest.raises(Trimmed):
            joined.live.find_end(8)


# -- what is lost is said ----------------------------------------------------------------------


def test_a_gap_between_archive_and_log_is_a_loss(story: Story) -> None:
    story.fill(10)
    wanted = story.rows()
    story.archive(6)
    story.topic.trim(12)
    assert story.read(1, 6) == wanted[:5]
    assert story.read(12, 20) == wanted[11:]
    with pytest.raises(Trimmed, match=r"GLSN 6 .* was trimmed") as raised:
        story.read(1, 7)
    assert raised.value.first_available == 12
    assert story.read(1, 20, failOnDataLoss="false") == wanted[:5] + wanted[11:]
    assert story.read(7, 9, failOnDataLoss="false") == []
    reader = StreamReader(stream_options(story.options(startingOffsets=1)), ALL)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with pytest.raises(Trimmed, match="GLSN 6 "):
        reader.partitions(start, end)


def test_deletes_that_the_log_dropped_behind_the_archive_are_missed(story: Story) -> None:
    topic = story.topic
    topic.put(b"k", b"v")
    topic.append(b"edge")
    story.archive()
    topic.delete(b"k")
    topic.append(b"end")
    whole = story.rows()
    assert story.read(1, 5) == whole
    for _ in range(3):
        topic.compact(full=True)
        topic.append(b"more")
    assert topic.stats().dropped_deletes == 1
    with pytest.raises(MissedDeletes, match="dropped deletes below GLSN 4"):
        story.read(1, 5)
    assert story.read(1, 3) == whole[:2]
    assert story.read(4, 5) == whole[3:]
    assert story.read(1, 5, failOnDataLoss="false") == [*whole[:2], whole[3]]
    assert story.archive().missed_before == 4
    with pytest.raises(MissedDeletes, match="before they were archived"):
        story.read(1, 3)
    assert story.read(4, 5) == whole[3:]


# -- what is wrong is said ---------------------------------------------------------------------


def test_an_archive_of_something_else_is_refused(
    story: Story, log: RemoteLog, node: Node, tmp_path: Path
) -> None:
    story.fill(3)
    with pytest.raises(BadOption, match="there is no archive"):
        story.read(1, 2)
    story.archive()
    log.create_topic(f"{story.topic.name}-other").append(b"x")
    options = story.options() | {"endpoint": node.url(f"{story.topic.name}-other")}
    with pytest.raises(WrongLog, match="was made from topic"):
        BatchReader(batch_options(options), ALL).partitions()
    for wrong in ("", "s3://bucket/archive"):
        with pytest.raises(BadOption, match="'archive'"):
            batch_options(story.options(archive=wrong))


def test_damage_is_said_and_not_read_over(story: Story) -> None:
    story.fill(6)
    story.archive()
    manifest = story.directory / MANIFEST
    good = manifest.read_bytes()
    manifest.write_bytes(good[:-1] + b"?")
    with pytest.raises(CorruptData, match="does not match its checksum"):
        story.read(1, 5)
    manifest.write_bytes(good)
    reader = BatchReader(batch_options(story.options()), ALL)
    partitions = reader.partitions()
    file = sorted(story.directory.glob("*.parquet"))[0]
    whole = file.read_bytes()
    file.write_bytes(whole[:50] + bytes((whole[50] ^ 1,)) + whole[51:])
    with pytest.raises(CorruptData, match="do not match the manifest"):
        read_all(reader, partitions)


def test_a_log_that_is_shorter_than_its_archive_is_not_read_with_it(
    story: Story, log: RemoteLog
) -> None:
    """As after a restore from a backup: new entries would be hidden behind archived ones."""
    story.fill(3)
    longer = MemoryTopic(50, name=story.topic.name)
    archived(
        OsVfs(), longer, directory=str(story.directory), log_id=log.log_id.hex(), range_entries=20
    )
    with pytest.raises(WrongLog, match=r"but the archive in .* goes to 50"):
        story.read(1, 7)
    reader = StreamReader(stream_options(story.options(startingOffsets="earliest")), ALL)
    with pytest.raises(WrongLog, match="put back from a backup"):
        reader.initialOffset()
