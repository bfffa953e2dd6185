"""The bounded set of open segment files."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.storage.streams import Streams, put, puts, value
from tests.storage.watched import Calls, WatchedVfs
from tidelog.errors import CorruptData, LogClosed
from tidelog.limits import OPEN_SEGMENTS_MAX
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.segment_file import SegmentReader
from tidelog.testing.disk import Op


def story_of(segments: int) -> tuple[Streams, list[str]]:
    story = Streams.new()
    for number in range(segments):
        story.segment([value(f"{number}")])
    return story, [segment.path for segment in story.segments()]


def is_open(reader: SegmentReader) -> bool:
    try:
        return bool(list(reader.read_blocks(1, 99)))
    except (OSError, CorruptData):
        return False


def test_a_file_is_opened_once_and_shared() -> None:
    story, (path,) = story_of(1)
    calls = Calls()
    opened = OpenSegments(WatchedVfs(story.disk.vfs(), calls))
    with opened.lease(path) as first, opened.lease(path) as second:
        assert first is second
    with opened.lease(path) as third:
        assert third is first
    assert calls.counts[Op.OPEN] == 1


def test_the_least_recently_used_files_are_closed_when_too_many_are_open() -> None:
    story, paths = story_of(4)
    opened = OpenSegments(story.disk.vfs(), open_max=2)
    readers: list[SegmentReader] = []
    for path in paths[:2]:
        with opened.lease(path) as reader:
            readers.append(reader)
    with opened.lease(paths[0]):
        pass
    with opened.lease(paths[2]) as reader:
        readers.append(reader)
    assert [is_open(reader) for reader in readers] == [True, False, True]


def test_a_leased_file_is_never_closed_however_many_are_open() -> None:
    story, paths = story_of(5)
    opened = OpenSegments(story.disk.vfs(), open_max=2)
    with ExitStack() as stack:
        readers = [stack.enter_context(opened.lease(path)) for path in paths]
        assert all(map(is_open, readers))
    with opened.lease(paths[0]):
        pass
    assert sum(map(is_open, readers)) == 2


def test_the_bound_holds_over_all_streams_of_a_node() -> None:
    story = Streams.new(streams=3)
    for _ in range(3):
        for stream in (1, 2, 3):
            story.write([value("v")], stream=stream)
        story.flush()
    assert OPEN_SEGMENTS_MAX >= 9
    story.node.opened._open_max = 4
    for stream in (1, 2, 3, 1, 2, 3):
        assert len(story.read(stream)) == 3
    assert len(story.node.opened._opened) <= 4


def test_a_lease_outlives_the_file_that_is_replaced_under_it() -> None:
    story = Streams.new()
    for part in range(3):
        story.segment([value(f"{part}"), *puts(range(3), f"{part}")])
    path = story.segments()[0].path
    with story.node.opened.lease(path) as old:
        story.snapshot()
        story.major(full=True)
        with story.node.opened.lease(path) as new:
            assert new is not old
            assert new.footer.stats.entries < old.footer.stats.entries + 4
        assert [batch.count for batch in old.read_blocks(1, 5)] == [4]
    assert not is_open(old)
    assert is_open(new)


def test_a_file_that_is_forgotten_twice_is_closed_once_it_is_given_back() -> None:
    story, (path,) = story_of(1)
    opened = OpenSegments(story.disk.vfs())
    with opened.lease(path) as first:
        opened.forget(path)
        opened.forget(path)
        with opened.lease(path) as second:
            assert second is not first
            opened.forget(path)
            assert is_open(first)
            assert is_open(second)
        assert not is_open(second)
    assert not is_open(first)


def test_a_file_that_cannot_be_opened_leaves_nothing_behind() -> None:
    story = Streams.new()
    story.segment([put("k")])
    path = story.segments()[0].path
    opened = OpenSegments(story.disk.vfs())
    story.disk.flip_bit(path, 3, 0)
    for _ in range(2):
        with pytest.raises(CorruptData, match=path), opened.lease(path):
            pass
    story.disk.flip_bit(path, 3, 0)
    with opened.lease(path) as reader:
        assert is_open(reader)


def test_after_the_end_nothing_is_opened_and_leases_run_out() -> None:
    story, paths = story_of(2)
    opened = OpenSegments(story.disk.vfs())
    with opened.lease(paths[1]) as idle:
        pass
    with opened.lease(paths[0]) as used:
        opened.close()
        assert not is_open(idle)
        assert is_open(used)
        with pytest.raises(LogClosed), opened.lease(paths[1]):
            pass
    assert not is_open(used)
