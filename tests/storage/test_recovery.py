"""What a start makes of what it finds: the verdicts, the sizes, the costs."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import pytest

from tests.storage.streams import PATH, Streams, put, puts, value, values
from tests.storage.watched import Calls
from tidelog.errors import CorruptData, NotALog, Rejected
from tidelog.formats.wal import FRAME_HEADER_BYTES
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.segments import segment_name
from tidelog.storage.wal import wal_path
from tidelog.testing.disk import Op, SimDisk


def refused(story: Streams, message: str) -> None:
    """The log does not open, says why, and nothing on the disk changes."""
    files = story.disk.files()
    with pytest.raises(CorruptData, match=message):
        story.open()
    assert story.disk.files() == files


def closed(build: Callable[[Streams], object], *, streams: int = 1) -> Streams:
    story = Streams.new(streams=streams)
    build(story)
    story.close()
    return story


def three_segments(story: Streams) -> None:
    for _ in range(3):
        story.segment(values(5))


@pytest.mark.parametrize(("number", "first"), [(1, 1), (2, 6), (3, 11)])
def test_a_missing_segment_is_named_by_the_entries_that_were_in_it(number: int, first: int) -> None:
    story = closed(three_segments)
    story.disk.vfs().unlink(f"{story.directory()}/{segment_name(number)}")
    refused(story, f"stream 1: LLSN {first} should be stored, but is missing")


def test_a_missing_segment_whose_entries_were_trimmed_is_not_missed() -> None:
    story = Streams.new()
    three_segments(story)
    story.trim(11)
    story.close()
    for number in (1, 2):
        story.disk.vfs().unlink(f"{story.directory()}/{segment_name(number)}")
    story.open()
    story.assert_whole()


def test_a_segment_of_another_stream_is_refused() -> None:
    story = Streams.new(streams=2)
    for stream in (1, 2):
        story.write(values(3), stream=stream)
    story.flush()
    story.close()
    swap(story, *(f"{story.directory(stream)}/{segment_name(1)}" for stream in (1, 2)))
    refused(story, "belongs to another log or stream")


def test_a_segment_under_the_name_of_another_is_refused() -> None:
    story = closed(three_segments)
    directory = story.directory()
    swap(story, f"{directory}/{segment_name(1)}", f"{directory}/{segment_name(2)}")
    refused(story, "says that it is segment 2")


def test_a_segment_of_another_log_is_refused() -> None:
    story, other = closed(three_segments), closed(three_segments)
    path = f"{story.directory()}/{segment_name(2)}"
    replace(story.disk, path, other.disk.files()[path])
    refused(story, "belongs to another log or stream")


def swap(story: Streams, path: str, other: str) -> None:
    vfs = story.disk.vfs()
    for source, target in ((path, "/moved"), (other, path), ("/moved", other)):
        vfs.rename(source, target)


def replace(disk: SimDisk, path: str, data: bytes) -> None:
    disk.vfs().unlink(path)
    disk.vfs().create(path).write_at(0, (data,))


def test_a_wal_that_was_cut_at_the_border_of_a_frame_after_a_clean_end_is_refused() -> None:
    story = Streams.new()
    story.write(values(3))
    border = story.node.wal._offset
    story.write(values(3))
    story.close()
    disk = story.disk
    path = wal_path(f"{PATH}/wal", 1)
    story.disk = disk.copy()
    story.disk.truncate(path, border)
    refused(story, "frames below 3 were durable: a file was cut or replaced")
    story.disk = disk.copy()
    story.disk.vfs().open(path, write=True).write_at(border, (bytes(FRAME_HEADER_BYTES),))
    refused(story, "frames below 3 were durable")


def test_a_damaged_frame_before_a_whole_one_is_refused() -> None:
    story = Streams.new()
    border = story.node.wal._offset
    story.write(values(3))
    story.write(values(3))
    story.lose()
    story.disk.flip_bit(wal_path(f"{PATH}/wal", 1), border + 100, 1)
    refused(story, "0001.wal: checksum does not match at offset .* is whole")


def test_a_damaged_last_frame_was_never_acknowledged_if_no_manifest_knows_it() -> None:
    story = Streams.new()
    story.write(values(3))
    border = story.node.wal._offset
    story.write(values(3))
    story.lose()
    story.disk.flip_bit(wal_path(f"{PATH}/wal", 1), border + 100, 1)
    story.open()
    assert list(story.read()) == [1, 2, 3]
    story.model[1] = story.read()
    story.write([value("instead")])
    story.reopen()
    story.assert_whole()


def test_a_wal_without_its_manifest_is_refused_and_not_taken_for_a_new_log() -> None:
    for build in (three_segments, lambda story: story.write(values(3))):
        story = closed(build)
        story.disk.vfs().unlink(f"{PATH}/manifest")
        refused(story, "its manifest is missing")


def test_what_is_no_log_is_left_alone() -> None:
    disk = SimDisk()
    vfs = disk.vfs()
    with pytest.raises(NotALog, match="does not exist"):
        open_node_store(vfs, PATH, StoreOptions(1 << 16, create=False))
    vfs.make_dir(PATH)
    with pytest.raises(NotALog, match="no manifest"):
        open_node_store(vfs, PATH, StoreOptions(1 << 16, create=False))
    vfs.create(f"{PATH}/letter.txt")
    with pytest.raises(NotALog, match=r"letter\.txt"):
        open_node_store(vfs, PATH, StoreOptions(1 << 16))
    assert vfs.list_dir(PATH) == ["LOCK", "letter.txt"]


def test_a_creation_that_was_interrupted_begins_anew() -> None:
    disk = SimDisk()
    disk.fail(Op.SYNC, "manifest.tmp", 5)
    with pytest.raises(Exception, match="fsync"):
        open_node_store(disk.vfs(), PATH, StoreOptions(1 << 16))
    story = Streams(disk.copy())
    story.open()
    story.add_topic("first")
    story.write(values(2))
    story.reopen()
    story.assert_whole()


def test_a_frame_that_names_an_unknown_stream_is_refused() -> None:
    story = Streams.new()
    before = story.disk.copy()
    story.add_topic("second")
    story.write(values(2), stream=2)
    story.lose()
    # The manifest of before the topic, with the WAL of after it.
    replace(story.disk, f"{PATH}/manifest", before.files()[f"{PATH}/manifest"])
    refused(story, "the WAL names stream 2, the manifest does not")


def test_a_batch_that_would_overwrite_another_is_refused_before_it_is_durable() -> None:
    story = Streams.new()
    story.write(values(5))
    late = story.batch(values(2), llsns=[5, 6])
    operations = story.disk.operations
    with pytest.raises(Rejected, match="a batch at LLSN 5 was to be written after 5"):
        story.frame(late)
    twice = story.batch(values(2)), story.batch(values(2))
    with pytest.raises(Rejected, match="a batch at LLSN 6 was to be written after 7"):
        story.frame(*twice)
    assert story.disk.operations == operations
    story.write(values(1))
    story.reopen()
    story.assert_whole()


def test_a_sparse_batch_is_told_from_a_gap_by_what_the_snapshot_knows() -> None:
    story = Streams.new()
    story.write(values(3))
    story.write(values(2), llsns=[6, 9], cut=False)
    assert list(story.read()) == [1, 2, 3, 6, 9]
    story.write([value("next")], cut=False)
    story.close()
    refused(story, "LLSN 4 should be stored, but is missing")


def test_a_sparse_batch_behind_a_trim_is_whole() -> None:
    story = Streams.new()
    story.write(values(3))
    story.write(values(2), llsns=[6, 7])
    story.trim(6)
    story.reopen()
    story.assert_whole()
    story.flush()
    story.reopen()
    story.assert_whole()


# -- several streams, and what a start costs ---------------------------------------------------


def test_streams_of_several_topics_come_back_each_with_its_own_order() -> None:
    story = Streams.new(streams=2)
    (third,) = story.add_topic("second", versions="explicit")
    for round_ in range(4):
        for stream in (1, 2):
            story.write(puts(range(3), f"{round_}"), stream=stream)
        story.write([put("k", f"{round_}", version=10 + round_)], stream=third)
        if round_ == 1:
            story.flush()
            story.snapshot(1)
            story.minor(1)
    story.boundary(11, stream=third)
    story.snapshot(third)
    contexts = {stream: store.context for stream, store in story.node.streams.items()}
    for _ in range(2):
        story.reopen()
        story.assert_live()
        assert {stream: store.context for stream, store in story.node.streams.items()} == contexts
        assert story.store(third).boundary == 11
        assert [topic.name for topic in story.node.topics.values()] == ["first", "second"]
    story.flush()
    story.reopen()
    story.assert_live()


def cost_of_a_start(empty_cuts: int, *, flushed: bool) -> Calls:
    """Calls of a start after so many cuts that gave this stream nothing."""
    story = Streams.new(streams=2, file_bytes=16 << 20)
    story.write(values(5), stream=1)
    story.flush()
    for _ in range(empty_cuts):
        story.cut(2)
    if flushed:
        story.flush()
    story.close()
    story.watcher = calls = Calls()
    story.open()
    assert story.store(2).context.version == empty_cuts + 1
    story.assert_whole()
    story.node.close()
    return calls


@pytest.mark.parametrize("flushed", [False, True])
def test_a_start_makes_as_many_calls_after_ten_empty_commits_as_after_ten_thousand(
    flushed: bool,
) -> None:
    few = cost_of_a_start(10, flushed=flushed)
    many = cost_of_a_start(10_000, flushed=flushed)
    assert few.counts == many.counts


def test_empty_commits_leave_nothing_on_the_disk_once_the_wal_was_flushed() -> None:
    sizes = []
    for cuts in (10, 3000):
        story = Streams.new(streams=2)
        story.write(values(5), stream=1)
        for _ in range(cuts):
            story.cut(2)
            if story.node.backlog:
                story.node.flush_oldest()
        story.flush()
        story.reopen()
        found = story.disk.files()
        sizes.append(sum(len(data) for path, data in found.items() if ".spare" not in path))
    assert abs(sizes[0] - sizes[1]) < 32


def test_a_thousand_streams_open_quickly_and_each_costs_the_same() -> None:
    calls: dict[int, int] = {}
    for streams in (10, 1000):
        story = Streams.new(streams=streams)
        batches = [story.batch([value("v")], stream=stream) for stream in story.model]
        story.frame(*batches, cut=tuple(story.model))
        story.flush()
        story.close()
        story.watcher = counted = Calls()
        begin = perf_counter()
        story.open()
        assert perf_counter() - begin < 20
        calls[streams] = counted.total
        assert story.read(streams) == story.model[streams]
        story.node.close()
    per_stream = (calls[1000] - calls[10]) / 990
    assert per_stream < 25
