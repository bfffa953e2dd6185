"""What one thread does between two calls of another: each window once, without any thread.

``Once`` acts in the middle of a call, exactly where the other thread would have come in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import pytest

from tests.storage.streams import Streams, put, puts, value, values
from tests.storage.watched import Once
from tidelog.core.replica.producers import ProducerState, ProducerTable
from tidelog.formats.snapshot import decode_snapshot
from tidelog.limits import SNAPSHOT_BYTES_MAX
from tidelog.storage.atomic_file import read_file
from tidelog.storage.liveness import MemorySource
from tidelog.storage.memtable import Memtable
from tidelog.testing.disk import Op


def later(story: list[Streams], action: Callable[[Streams], object]) -> Callable[[], object]:
    """An action on a story that does not exist yet when its watcher is made."""
    return lambda: action(story[0])


@dataclass(slots=True)
class SlowLock:
    """A lock that lets something happen to whoever waits for it the first time."""

    meanwhile: Callable[[], object]
    inner: threading.RLock = field(default_factory=threading.RLock)
    done: bool = False

    def __enter__(self) -> bool:
        if not self.done:
            self.done = True
            self.meanwhile()
        return bool(self.inner.acquire())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.inner.release()


def test_a_flush_beside_the_first_batch_of_a_new_file_does_not_bring_its_memtable_back() -> None:
    story = Streams.new()
    story.write(values(5))
    story.roll()
    # The committing thread looks for its memtable; before it gets the lock, the worker flushes.
    story.store().lock = SlowLock(lambda: story.node.flush_oldest())  # type: ignore[assignment]
    story.write(values(3))
    assert [table.wal_file for table in story.store().view.memtables] == [2]
    story.assert_whole()
    story.flush()
    story.store().sweep()
    story.reopen()
    story.assert_whole()


def test_a_truncation_beside_a_flush_leaves_the_flushed_memtable_gone() -> None:
    stories: list[Streams] = []
    during = Once(Op.CREATE, ".segment.tmp", later(stories, lambda story: story.truncate(6)))
    story = Streams.new(watcher=during)
    stories.append(story)
    story.write(values(5))
    story.roll()
    story.write(values(2), cut=False)
    assert story.node.flush_oldest()
    assert during.done
    # Only entries that are not ordered were cut; those in the segment stand in no memtable.
    assert [table.wal_file for table in story.store().view.memtables if table.batches] == []
    assert story.numbers() == [1]
    story.store().sweep()
    story.assert_whole()
    story.reopen()
    story.assert_whole()


def test_entries_that_come_while_a_segment_is_written_stay_in_memory() -> None:
    stories: list[Streams] = []
    during = Once(Op.SYNC, ".segment.tmp", later(stories, lambda story: story.write(values(4))))
    story = Streams.new(watcher=during)
    stories.append(story)
    story.write(values(5))
    story.flush()
    assert during.done
    assert [table.end_llsn for table in story.store().view.memtables] == [10]
    story.assert_whole()
    story.power_loss()
    story.assert_whole()


def test_a_snapshot_that_ends_in_the_middle_of_a_flush_does_not_change_that_segment() -> None:
    stories: list[Streams] = []
    during = Once(Op.SYNC, ".segment.tmp", later(stories, lambda story: story.snapshot()))
    story = Streams.new(watcher=during)
    stories.append(story)
    story.write(puts(range(5)))
    story.write(puts(range(4), "w"))
    story.flush()
    assert during.done
    # The segment was made from the state before: it still holds what died meanwhile.
    assert story.segments()[0].entries == 9
    story.assert_live()
    story.reopen()
    story.assert_live()
    story.segment([put("other")])
    story.major(full=True)
    story.assert_live()


def test_a_snapshot_and_its_state_are_of_one_moment() -> None:
    """A commit that comes between two looks at the state must not be half in the snapshot."""
    story = Streams.new()
    story.write(puts(range(3)))
    story.write(puts(range(3), "w"), cut=False)

    class Interrupted(ProducerTable):
        __slots__ = ()

        def freeze(self) -> tuple[ProducerState, ...]:
            if story.store().ordered_end == 4:
                story.cut(1)
            return super().freeze()

    story.store().producers = Interrupted()
    published = story.snapshot()
    name = story.names(suffix=".snapshot")[0]
    data = read_file(story.disk.vfs(), f"{story.directory()}/{name}", SNAPSHOT_BYTES_MAX)
    snapshot = decode_snapshot(data or b"")
    assert snapshot.state.context.llsn_end == snapshot.index + 1 == published.index + 1
    story.store().producers = ProducerTable()
    story.assert_live()


def test_appends_do_not_wait_for_a_snapshot_that_sorts_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes meanwhile, an older write of it or not, is the business of the next one."""
    story = Streams.new()
    story.write(puts(range(10), "old"))
    look = MemorySource.of
    waited: list[bool] = []

    def beside(memtables: Sequence[Memtable], index: int, hash_seed: int) -> MemorySource:
        writer = threading.Thread(target=lambda: story.write(puts(range(5), "new")))
        writer.start()
        writer.join(5)
        waited.append(writer.is_alive())
        return look(memtables, index, hash_seed)

    monkeypatch.setattr(MemorySource, "of", beside)
    assert list(story.snapshot().live) == list(range(1, 11))
    assert waited == [False]
    monkeypatch.undo()
    assert list(story.snapshot().live) == list(range(6, 16))
    story.flush()
    story.reopen()
    story.assert_live()


def test_a_flush_that_overtakes_a_compaction_keeps_both_results() -> None:
    stories: list[Streams] = []

    def arrive(story: Streams) -> None:
        story.write([value("late")])
        story.flush()

    during = Once(Op.SYNC, ".compacting", later(stories, arrive))
    story = Streams.new(watcher=during)
    stories.append(story)
    for part in range(3):
        story.segment([value(f"kept {part}"), *puts(range(4), f"{part}")])
    story.snapshot()
    result = story.major(full=True)
    assert during.done
    assert result.groups == 1
    assert story.numbers() == [1, 3, 4]
    story.assert_live()
    story.reopen()
    story.assert_live()


def test_a_snapshot_that_advances_during_a_compaction_is_used_by_the_next_one() -> None:
    stories: list[Streams] = []

    def advance(story: Streams) -> None:
        story.write(puts(range(8), "new"))
        story.snapshot()

    during = Once(Op.SYNC, ".compacting", later(stories, advance))
    story = Streams.new(watcher=during)
    stories.append(story)
    for part in range(3):
        story.segment([value(f"kept {part}"), *puts(range(4 * part, 4 * part + 4), f"{part}")])
    story.segment([value("end")])
    story.write(puts(range(4), "again"))
    story.snapshot()
    assert story.major(full=True).groups == 1
    assert during.done
    assert story.segments()[0].entries == 3 + 8
    story.assert_live()
    assert story.major(full=True).groups == 1
    assert story.segments()[0].entries == 3 + 4
    story.assert_live()


def test_a_spare_that_is_made_during_a_roll_does_not_take_the_name_of_a_retired_file() -> None:
    """Else a retired file could replace the spare that a roll has just opened."""
    stories: list[Streams] = []
    during = Once(Op.CREATE, ".spare.tmp", later(stories, lambda story: story.roll()))
    story = Streams.new(watcher=during)
    stories.append(story)
    story.write(values(2))
    assert story.node.wal.prepare_spare()
    assert during.done
    before = set(story.disk.vfs().list_dir("/log/wal"))
    assert story.node.flush_oldest()
    after = story.disk.vfs().list_dir("/log/wal")
    assert len([name for name in after if name.endswith(".spare")]) == 2
    assert {name for name in before if name.endswith(".spare")} < set(after)


def test_a_retired_file_never_replaces_the_spare_that_a_roll_holds() -> None:
    """The roll opened a spare; before it renames it, the worker retires a file."""
    stories: list[Streams] = []
    prepare = Once(Op.CREATE, ".spare.tmp", later(stories, lambda story: story.roll()))
    retire = Once(
        Op.RENAME, "0000000000000003.wal", later(stories, lambda story: story.node.flush_oldest())
    )

    def both(operation: Op, path: str) -> None:
        prepare(operation, path)
        retire(operation, path)

    story = Streams.new(watcher=both)
    stories.append(story)
    story.write(values(2))
    story.node.wal.prepare_spare()
    story.roll()
    assert retire.done
    story.write(values(3))
    story.power_loss()
    story.assert_whole()
