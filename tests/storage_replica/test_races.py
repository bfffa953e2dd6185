"""Event loop, disk thread and worker beside each other: known windows one by one, and all at once.

``Once`` acts in the middle of a call, exactly where the other thread would have come in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from tests.storage.watched import Once, WatchedVfs
from tests.storage_replica.fillings import begin_filling, end_filling, fill
from tests.storage_replica.twin import STREAM, TOPIC, Twin, entries_of, open_disk, values
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, GlsnRun
from tidelog.core.replica.output import HardState, Write
from tidelog.formats.replica_records import Order
from tidelog.formats.wal import Record
from tidelog.limits import KIB
from tidelog.storage import stream_store
from tidelog.storage.liveness import Liveness, compute_liveness
from tidelog.storage.replica_apply import Applier
from tidelog.testing.disk import Op, SimDisk
from tidelog.types import Llsn, Term


def watched(watcher: Once) -> Twin:
    sim = SimDisk()
    twin = Twin(sim=sim, vfs=WatchedVfs(sim.vfs(), watcher))
    twin.become_member()
    twin.sync()
    return twin


def restarted(twin: Twin) -> Twin:
    twin.vfs = None
    twin.crash()
    return twin


def flush_beside(action: Callable[[Twin], None], filling: bool = False) -> Twin:
    """Flush what is in the WAL; ``action`` comes when the segment is written, but not known."""
    story: list[Twin] = []
    twin = watched(Once(Op.RENAME, ".segment", lambda: action(story[0])))
    story.append(twin)
    if filling:
        twin.write(wipe=True, hard_state=HardState(Term(2), is_complete=False, had=NO_ENTRY))
        for llsn in (1, 2):
            run = GlsnRun(Llsn(llsn), llsn, 1)
            twin.write(batches=[values(1, llsn, f"stale {llsn}")], sparse=True, runs=[run])
    else:
        twin.append("old")
        twin.order()
    twin.flush()
    return twin


def test_a_filling_that_begins_anew_beside_a_flush_leaves_nothing_of_the_first() -> None:
    def begin_anew(twin: Twin) -> None:
        twin.write(truncate_to=1)
        run = GlsnRun(Llsn(1), 7, 1)
        twin.write(batches=[values(2, 1, "new")], sparse=True, runs=[run])
        twin.sync()

    twin = flush_beside(begin_anew, filling=True)
    for _ in range(2):
        assert [entry.value for _, _, entry in twin.read().values()] == [b"new"]
        twin.flush()
        restarted(twin)


def test_entries_that_are_truncated_beside_a_flush_never_come_back() -> None:
    """Nothing follows them that would be written under the same name."""

    def truncate(twin: Twin) -> None:
        twin.write(truncate_to=1)
        twin.sync()

    twin = flush_beside(truncate, filling=True)
    twin.flush()
    restarted(twin)
    assert not twin.read()


def test_a_wipe_beside_a_flush_leaves_nothing_of_the_old_log() -> None:
    def wipe(twin: Twin) -> None:
        fill(twin)
        twin.sync()

    twin = flush_beside(wipe)
    twin.check()
    twin.flush()
    restarted(twin)
    twin.check()


def test_a_wipe_beside_a_snapshot_leaves_the_new_log_without_one() -> None:
    story: list[Twin] = []

    def wipe() -> None:
        twin = story[0]
        twin.write(wipe=True, hard_state=HardState(Term(2), is_complete=False, had=NO_ENTRY))
        twin.sync()

    twin = watched(Once(Op.RENAME, ".snapshot", wipe))
    story.append(twin)
    twin.append("a")
    twin.order()
    twin.flush()
    twin.snapshot()
    assert twin.store().snapshot.index == 0
    restarted(twin)
    assert twin.store().snapshot.index == 0
    twin.check_stored()


def test_an_append_beside_a_sync_is_kept_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    twin = Twin()
    twin.become_member()
    twin.sync()
    wal = twin.disk.node.wal
    write = wal.append

    def append_beside(records: Sequence[Record]) -> None:
        monkeypatch.setattr(wal, "append", write)
        twin.append("second")
        write(records)

    monkeypatch.setattr(wal, "append", append_beside)
    twin.append("first")
    number = twin.disk.sync()
    assert twin.disk.has_begun
    twin.check_seen()
    assert twin.disk.sync() == number + 1
    twin.check_seen()


class Threads:
    """A disk thread and a worker that do nothing but their work, until they are stopped."""

    def __init__(self, *work: Callable[[], object]) -> None:
        self._stop = threading.Event()
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in work]
        for thread in self._threads:
            thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        try:
            while not self._stop.is_set():
                work()
        except BaseException as error:
            self.errors.append(error)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def test_a_reader_beside_syncs_and_flushes_always_finds_all_that_was_begun() -> None:
    disk = open_disk(SimDisk().vfs())
    chance = Random(5)
    fetched: list[Callable[[], None]] = []
    disk.set_fetching(fetched.append, lambda _: None)
    disk.begin(STREAM, TOPIC, Write(1, hard_state=HardState(Term(1), is_complete=True)))
    disk.sync()
    threads = Threads(disk.sync, disk.node.flush_oldest)
    end, context, answers = 1, NONE, 0
    try:
        for number in range(2, 30_000):
            if number >= 300 and disk.node.streams[STREAM].view.segments:
                break  # On a busy machine the threads have had their turn late.
            text = f"{end}" * 40
            write = Write(number, batches=(values(1, end, *[text] * 3),))
            disk.begin(STREAM, TOPIC, write)
            end += 3
            if number % 5 == 0:
                length = end - context.llsn_end
                run = GlsnRun(context.llsn_end, context.llsn_end, length)
                version = context.version + 1
                context = CommitContext(version, end - 1, run.glsn_begin, run.llsn_begin, length)
                disk.begin(STREAM, TOPIC, Write(number, runs=(run,), context=context))
            begin = Llsn(chance.randrange(1, end))
            found = disk.reader(STREAM).batches(begin, 4 * KIB)
            while found is None:
                fetched.pop(0)()
                found = disk.reader(STREAM).batches(begin, 4 * KIB)
            answers += 1
            rows = entries_of(found)
            assert [llsn for llsn, _, _ in rows] == list(range(begin, begin + len(rows)))
            assert rows, f"nothing from {begin} on, the log ends at {end}"
            for llsn, _, entry in rows:
                first = llsn - (llsn - 1) % 3
                assert entry.value == (f"{first}" * 40).encode()
            assert not threads.errors
    finally:
        threads.stop()
    assert not threads.errors, threads.errors
    assert disk.node.streams[STREAM].view.segments
    assert answers >= 298


def test_a_snapshot_that_a_filling_overtakes_is_not_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """N4: it would take away what tells that entries were left out, and they would be missed."""
    twin = Twin()
    twin.become_member()
    begin_filling(twin)
    twin.sync()
    compute = compute_liveness

    def overtaken(*sources: Any, **options: Any) -> Liveness:
        found = compute(*sources, **options)
        end_filling(twin)
        twin.sync()
        return found

    monkeypatch.setattr(stream_store, "compute_liveness", overtaken)
    twin.store().take_snapshot()
    assert twin.store().snapshot.index == 5
    twin.check_stored()
    restarted(twin)
    twin.check_stored()


def test_a_snapshot_waits_until_a_filling_is_applied_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between its order and its end it looks like a log whose dead entries nobody dropped."""
    twin = Twin()
    twin.become_member()
    begin_filling(twin)
    twin.sync()
    order_entries = Applier.order
    worker = threading.Thread(target=twin.store().take_snapshot)
    waited: list[bool] = []

    def snapshot_beside(applier: Applier, stream: int, order: Order) -> None:
        order_entries(applier, stream, order)
        if order.context is not None:
            worker.start()
            worker.join(0.2)
            waited.append(worker.is_alive())

    monkeypatch.setattr(Applier, "order", snapshot_beside)
    end_filling(twin)
    twin.sync()
    worker.join()
    assert waited == [True]
    twin.check_stored()
