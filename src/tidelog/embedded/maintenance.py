"""What keeps a log small and its WAL short: flush, snapshot, compaction.

One job runs at a time, in the worker thread or inside the append that is due.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import perf_counter

from tidelog.core.compaction.plan import CompactionFacts, Strategy, Trigger, should_run
from tidelog.errors import Busy, CorruptData, DiskFull, LogClosed
from tidelog.formats.compaction_plan import StreamPlan
from tidelog.formats.manifest import TopicManifest
from tidelog.interface.figures import CompactionResult, PlanOutcome
from tidelog.storage.compaction import (
    compact_major,
    compact_minor,
    segment_facts,
    settled_index,
)
from tidelog.storage.node_store import NodeStore
from tidelog.storage.plan_check import apply_plan
from tidelog.storage.scrub import Finding, check_blocks
from tidelog.storage.shared_keys import see_topic, snapshot_topic
from tidelog.storage.stream_store import StreamStore


@dataclass(slots=True)
class StreamUpkeep:
    """What the triggers need to remember of a stream; lost at a restart without harm."""

    minors: int = 0
    idle_ticks: int = 0
    snapshot_of: tuple[int, int, int] | None = None
    """Ordered end, trim and GC boundary at the last snapshot; None: something else changed."""
    snapshot_end: int = 0
    """Where segments and memtables ended, in bytes, at the last snapshot."""
    seen_end: int = 0
    """Where the stream ended at the last tick."""


@dataclass(slots=True)
class CompactionCounters:
    """Since the log was opened."""

    minor_runs: int = 0
    major_runs: int = 0
    failures: int = 0
    deleted_segments: int = 0
    rewritten_segments: int = 0
    reclaimed_bytes: int = 0
    seconds: float = 0.0
    last_failure: str = ""

    def add(self, result: CompactionResult, seconds: float) -> None:
        self.deleted_segments += result.deleted
        self.rewritten_segments += result.rewritten
        self.reclaimed_bytes += result.reclaimed_bytes
        self.seconds += seconds
        self.failures += len(result.failures)
        if result.failures:
            self.last_failure = result.failures[-1]


@dataclass(slots=True)
class Maintenance:
    node: NodeStore
    strategy: Strategy
    snapshot_bytes: int
    counters: CompactionCounters = field(default_factory=CompactionCounters)
    snapshots: int = 0
    flushes: int = 0
    scrubbed: int = 0
    damage: dict[str, str] = field(default_factory=dict)
    """What the background scrub found wrong, by file."""
    _held: int = 0
    _upkeep: dict[int, StreamUpkeep] = field(default_factory=dict)
    _shared_of: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Topic whose streams share keys → what its last snapshot was of; gone: something changed."""
    _running: threading.RLock = field(default_factory=threading.RLock)
    _closed: bool = False

    @contextmanager
    def _job(self) -> Iterator[None]:
        """One at a time, and none once the log is closed: another process may have it open."""
        self.node.vfs.check_owner()
        with self._running:
            if self._closed:
                raise LogClosed("the log is closed")
            yield

    def close(self) -> None:
        """Wait for the job that runs and refuse all others."""
        with self._running:
            self._closed = True

    @contextmanager
    def live_sets_held(self) -> Iterator[None]:
        """Take no snapshot meanwhile: what is live now stays where it is until this ends."""
        with self._job():
            self._held += 1
        try:
            yield
        finally:
            with self._running:
                self._held -= 1

    def flush_rolled(self) -> None:
        """Move all rolled WAL files into segments, snapshotting keyed streams on the way.

        The snapshot comes first: what it finds dead need not be written.
        """
        with self._job():
            if not self.node.can_flush():
                return
            while self.node.can_flush():
                for store in list(self.node.streams.values()):
                    if self._snapshot_is_due(store):
                        self._try_snapshot(store)
                self.flushes += self.node.flush_oldest()
                for store in list(self.node.streams.values()):
                    self.compact_if_due(store)
            with suppress(DiskFull):  # A spare only saves time.
                self.node.wal.prepare_spare()

    def _try_snapshot(self, store: StreamStore) -> None:
        """One damaged segment makes its stream grow; it must not stop the flush of all others."""
        try:
            self.snapshot(store)
        except CorruptData as error:
            self.counters.failures += 1
            self.counters.last_failure = str(error)

    def snapshot(self, store: StreamStore) -> None:
        """Snapshot a stream and run phase 1 after it; all of its topic if they share keys."""
        with self._job():
            if store.shared_keys:
                self._snapshot_topic(self.node.topics[store.topic])
                return
            upkeep = self._upkeep_of(store)
            place = (store.ordered_end, store.trim_llsn_end, store.boundary)
            if self._held or store.ordered_end == 1 or upkeep.snapshot_of == place:
                return
            if self.node.half_flushed:
                return  # Entries that the flush left out as dead are in the WAL: they come back.
            store.take_snapshot()
            self.snapshots += 1
            self._note_snapshot(store)
            upkeep.snapshot_of = place
            self.minor(store)

    def _snapshot_topic(self, topic: TopicManifest) -> None:
        seen = see_topic(self.node, topic)
        if self._held or self._shared_of.get(topic.topic) == seen.place:
            return
        if snapshot_topic(self.node, seen):
            self.snapshots += 1
            self._shared_of[topic.topic] = seen.place
            stores = [stream.store for stream in seen.streams]
            for store in stores:
                self._note_snapshot(store)
            for store in stores:
                self.minor(store)

    def _note_snapshot(self, store: StreamStore) -> None:
        upkeep = self._upkeep_of(store)
        upkeep.snapshot_end = _bytes_of(store)
        upkeep.idle_ticks = 0

    def _note_gone(self, store: StreamStore) -> None:
        """Entries went, so a delete may have nothing left to hide."""
        self._upkeep_of(store).snapshot_of = None
        self._shared_of.pop(store.topic, None)

    def minor(self, store: StreamStore) -> CompactionResult:
        with self._job():
            start = perf_counter()
            result = compact_minor(store)
            store.sweep()
            self.counters.minor_runs += 1
            self.counters.add(result, perf_counter() - start)
            upkeep = self._upkeep_of(store)
            upkeep.minors += bool(result.deleted or store.snapshot.index)
            if result.deleted:
                self._note_gone(store)
            return result

    def major(self, store: StreamStore, *, full: bool = False) -> CompactionResult:
        with self._job():
            start = perf_counter()
            result = compact_major(store, full=full)
            store.sweep()
            self.counters.major_runs += 1
            self.counters.add(result, perf_counter() - start)
            upkeep = self._upkeep_of(store)
            upkeep.minors = upkeep.idle_ticks = 0
            if result.deleted or result.rewritten:
                self._note_gone(store)
            return result

    def snapshot_by_plan(self, store: StreamStore, plan: StreamPlan) -> PlanOutcome:
        """Snapshot a stream by a plan that others made, if it is true, and run phase 1 after it.

        What came behind the plan counts as live until the next snapshot of our own.
        """
        with self._job():
            if self._held or self.node.half_flushed:
                raise Busy("what is live must stay for a while: offer the plan again later")
            checked = apply_plan(store, plan, self.node.manifest.log_id)
            self.snapshots += 1
            self._upkeep_of(store).snapshot_of = None
            return PlanOutcome(
                stream=store.stream,
                claims=len(plan.dead),
                dead=checked.dead,
                doubtful=checked.doubtful,
                compaction=self.minor(store),
            )

    def compact_if_due(self, store: StreamStore) -> Trigger | None:
        """Run a major compaction if one of the strategy's triggers says so."""
        trigger = should_run(self.strategy, self.facts(store))
        if trigger is not None:
            self.major(store)
        return trigger

    def tick(self) -> None:
        """Time passes: idle streams get their snapshot and compaction, pinned files may go."""
        with self._job():
            for store in list(self.node.streams.values()):
                upkeep = self._upkeep_of(store)
                upkeep.idle_ticks = (
                    upkeep.idle_ticks + 1 if upkeep.seen_end == store.end_llsn else 0
                )
                upkeep.seen_end = store.end_llsn
                idle = self.strategy.idle_ticks
                if idle is not None and upkeep.idle_ticks >= idle:
                    self._settle_idle(store)
                store.sweep()
            self.node.sweep_abandoned()
            self.scrub_next()

    def scrub_next(self) -> Finding | None:
        """Read one more segment and check it; goes round all of them, slowly."""
        places = [
            (store, segment)
            for store in self.node.streams.values()
            for segment in store.view.segments
        ]
        if not places:
            self.damage = {}
            return None
        store, segment = places[self.scrubbed % len(places)]
        self.scrubbed += 1
        with store.pins.pinned():
            finding = check_blocks(store, segment)
        # A file that is gone, or was mended, is damaged no more.
        others = {other.path for _, other in places if other is not segment}
        damage = {path: why for path, why in self.damage.items() if path in others}
        self.damage = damage | ({finding.path: finding.problem} if finding.problem else {})
        return finding

    def _settle_idle(self, store: StreamStore) -> None:
        if any(segment.keyed for segment in store.view.segments):
            self.snapshot(store)
        if should_run(self.strategy, self.facts(store)):
            self.major(store)

    def facts(self, store: StreamStore) -> CompactionFacts:
        upkeep = self._upkeep_of(store)
        settled = settled_index(store)
        facts = [fact for fact in segment_facts(store) if fact.end_llsn <= settled + 1]
        return CompactionFacts(
            bytes=sum(fact.bytes for fact in facts),
            live_bytes=sum(fact.live_bytes for fact in facts),
            minors=upkeep.minors,
            idle_ticks=upkeep.idle_ticks,
        )

    def _snapshot_is_due(self, store: StreamStore) -> bool:
        """Keyed entries make a snapshot worth its cost once enough of them came in."""
        if store.ordered_end - 1 <= store.snapshot.index or not _is_keyed(store):
            return False
        total = _bytes_of(store)
        grown = total - self._upkeep_of(store).snapshot_end
        return grown >= max(self.snapshot_bytes, total // 2) or not store.snapshot.index

    def _upkeep_of(self, store: StreamStore) -> StreamUpkeep:
        return self._upkeep.setdefault(store.stream, StreamUpkeep())


def _bytes_of(store: StreamStore) -> int:
    view = store.view
    segments = sum(segment.size for segment in view.segments)
    return segments + sum(table.size for table in view.memtables)


def _is_keyed(store: StreamStore) -> bool:
    view = store.view
    for segment in view.segments:
        if segment.keyed or any(special.is_storage_delete for special in segment.specials):
            return True
    return any(stored.may_concern_keys for table in view.memtables for stored in table.batches)


class Worker:
    """The thread that runs maintenance.  Its failures reach whoever appends next."""

    def __init__(self, maintenance: Maintenance, tick_seconds: float) -> None:
        self._maintenance = maintenance
        self._tick_seconds = tick_seconds
        self._changed = threading.Condition()
        self._due = False
        self._trimmed: dict[int, StreamStore] = {}
        """Streams that may have segments to delete."""
        self._stopping = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tidelog-worker", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        with self._changed:
            self._due = True
            self._changed.notify_all()

    def drop_trimmed(self, store: StreamStore) -> None:
        """Delete what was trimmed, as soon as the job that runs is done."""
        with self._changed:
            self._trimmed[store.stream] = store
            self._due = True
            self._changed.notify_all()

    def wait_for_room(self, seconds: float) -> bool:
        """Wait until the backlog of WAL files is below its bound; False at the deadline."""
        node = self._maintenance.node
        with self._changed:
            return self._changed.wait_for(
                lambda: not node.backlog_is_full or self.error is not None, timeout=seconds
            )

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._due or self._stopping, timeout=self._tick_seconds
                )
                if self._stopping:
                    return
                due, self._due = self._due, False
                trimmed, self._trimmed = list(self._trimmed.values()), {}
            self._work(due, trimmed)
            with self._changed:
                self._changed.notify_all()

    def _work(self, due: bool, trimmed: Sequence[StreamStore]) -> None:
        try:
            for store in trimmed:  # First: the flush may need the room.
                self._maintenance.minor(store)
            if due:
                self._maintenance.flush_rolled()
            else:
                self._maintenance.tick()
                if self._maintenance.node.backlog:
                    self._maintenance.flush_rolled()
            self.error = None
        except DiskFull as error:
            self.error = error  # What is in the WAL stays there; the next tick tries again.
        except CorruptData as error:
            self.error = error
            self._maintenance.counters.failures += 1
            self._maintenance.counters.last_failure = str(error)
        except BaseException as error:
            self.error = error
            with self._changed:
                self._stopping = True
