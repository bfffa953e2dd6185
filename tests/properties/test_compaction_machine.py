"""Compaction against a set: after every step all that is live is readable, and dead stays dead.

Two topics, one with GLSNs and one with explicit write versions, in which the same few keys are
written, deleted, trimmed, compacted and copied over many small segments.  Readers lag behind it
all, and what they end with is right nevertheless: the delete horizon tells when to start anew.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import tidelog
from tests.properties.lagging_reader import (
    LaggingReader,
    check_table,
    horizon_of,
    readers_before_what_is_gone,
)
from tests.properties.log_model import TopicModel
from tidelog import Entry, Kind, Log, Options, Topic
from tidelog.core.compaction.horizon import NOTHING_DROPPED
from tidelog.core.compaction.plan import Strategy
from tidelog.storage.compaction import compact_major
from tidelog.storage.stream_store import StreamStore
from tidelog.testing.disk import Choice, SimDisk

PATH = "/log"
OPTIONS = Options(
    wal_file_bytes=64 << 10,
    background=False,
    compaction=Strategy(minors=None, dead_ratio=None),
)
PLAIN, EXPLICIT = "plain", "explicit"
KEYS = [b"a", b"b"]
STORAGES = [0, 9]

names = st.sampled_from([PLAIN, EXPLICIT])
kinds = st.sampled_from([Kind.PUT, Kind.PUT, Kind.PUT, Kind.DELETE])
storages = st.sampled_from([0, 0, 0, 9])
writes = st.lists(
    st.tuples(kinds, st.sampled_from(KEYS), storages, st.integers(1, 6)), min_size=1, max_size=4
)


class CompactionMachine(RuleBasedStateMachine):
    """Explicit versions are given relative to the boundary, so that few are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.models = {PLAIN: TopicModel(), EXPLICIT: TopicModel(explicit=True)}
        self.log: Log | None = None
        self.written = 0
        self.gone: dict[str, set[int]] = {PLAIN: set(), EXPLICIT: set()}
        """GLSNs that a read did not find any more."""
        self.dead: dict[int, set[int]] = {}
        """Log stream → LLSNs that a snapshot called dead."""
        self.readers = {name: [LaggingReader(), LaggingReader()] for name in (PLAIN, EXPLICIT)}
        self.horizons = dict.fromkeys((PLAIN, EXPLICIT), NOTHING_DROPPED)

    @initialize()
    def create(self) -> None:
        self.open()
        assert self.log is not None
        self.log.create_topic(EXPLICIT, versions="explicit")

    def open(self) -> None:
        self.log = tidelog.open(PATH, topic=PLAIN, options=OPTIONS, vfs=self.disk.vfs())

    def topic(self, name: str) -> Topic:
        assert self.log is not None
        return self.log.topic(name)

    def stores(self, name: str) -> list[StreamStore]:
        assert self.log is not None
        return [self.log.engine.node.streams[stream] for stream in self.topic(name).streams]

    # -- histories -------------------------------------------------------------------------

    @rule(name=names, batches=st.lists(writes, min_size=1, max_size=4))
    def write_segments(self, name: str, batches: list[list[tuple[Kind, bytes, int, int]]]) -> None:
        """Each batch goes to a segment of its own."""
        for batch in batches:
            self.write(name, batch)
            self.flush()

    @rule(name=names, batch=writes)
    def write(self, name: str, batch: list[tuple[Kind, bytes, int, int]]) -> None:
        model = self.models[name]
        entries = []
        for kind, key, storage, ahead in batch:
            self.written += 1
            value = f"{self.written}".encode() if kind is Kind.PUT else b""
            version = model.boundary + ahead if model.explicit else None
            entries.append(Entry(kind, value, key, storage, version))
        model.take(self.topic(name), self.topic(name).write(entries), entries)

    @rule(name=names, storage=storages, ahead=st.integers(1, 6))
    def delete_storage(self, name: str, storage: int, ahead: int) -> None:
        model = self.models[name]
        version = model.boundary + ahead if model.explicit else None
        receipts = self.topic(name).delete_storage(storage, write_version=version)
        model.take(self.topic(name), receipts, [Entry(Kind.DELETE_STORAGE, b"", b"", storage)])

    @rule(name=names)
    def append(self, name: str) -> None:
        receipt = self.topic(name).append(b"no key")
        self.models[name].take(self.topic(name), [receipt], [Entry(Kind.APPEND, b"no key")])

    @rule(ahead=st.integers(0, 7))
    def move_the_boundary(self, ahead: int) -> None:
        model = self.models[EXPLICIT]
        model.boundary += ahead
        self.topic(EXPLICIT).set_gc_boundary(model.boundary)

    @rule(name=names, part=st.sampled_from([0.2, 0.5, 0.9, 1.0]))
    def trim(self, name: str, part: float) -> None:
        model = self.models[name]
        before = max(1, int(part * (model.high + 1)))
        self.topic(name).trim(before)
        model.first = max(model.first, before)

    # -- files -----------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        assert self.log is not None
        self.log.engine.roll()
        self.log.engine.maintenance.flush_rolled()

    @rule(name=names)
    def snapshot(self, name: str) -> None:
        self.topic(name).snapshot()

    @rule(name=names)
    def minor(self, name: str) -> None:
        assert self.log is not None
        for store in self.stores(name):
            self.log.engine.maintenance.minor(store)

    @rule(name=names, full=st.booleans(), bytes_max=st.sampled_from([600, 2000, 1 << 20]))
    def major(self, name: str, full: bool, bytes_max: int) -> None:
        for store in self.stores(name):
            assert not compact_major(store, full=full, bytes_max=bytes_max).failures
            store.sweep()

    @rule(name=names)
    def compact_fully(self, name: str) -> None:
        """Below the newest segment nothing is left that could have gone."""
        assert not self.topic(name).compact(full=True).failures
        model = self.models[name]
        if model.explicit and model.first > 1:
            return  # A trim may have taken what a smaller version died of.
        dead = model.dead()
        for store in self.stores(name):
            newest = store.view.segments[-1].first_llsn if store.view.segments else 1
            left = [
                record
                for record in self.topic(name).read()
                if record.stream == store.stream and record.llsn < newest and record.glsn in dead
            ]
            assert not [record for record in left if record.kind is Kind.PUT]

    @rule(name=names, entries_max=st.sampled_from([1, 2, 100]))
    def rewrite(self, name: str, entries_max: int) -> None:
        copied = self.topic(name).rewrite(entries_max=entries_max)
        self.models[name].take_copies(self.topic(name), copied)

    @rule()
    def reopen(self) -> None:
        assert self.log is not None
        self.log.close()
        self.open()

    @rule(kept=st.sampled_from([Choice.LOST, Choice.KEPT]))
    def crash(self, kept: Choice) -> None:
        """Files whose deletion was not durable come back, with dead entries in them."""
        self.gone = {PLAIN: set(), EXPLICIT: set()}
        self.disk = self.disk.after_crash(kept)
        self.open()

    @rule(name=names, which=st.sampled_from([0, 1]), count=st.sampled_from([1, 2, 3, 5, 100]))
    def read_on(self, name: str, which: int, count: int) -> None:
        self.readers[name][which].read_on(self.topic(name), count)

    # -- what holds ------------------------------------------------------------------------

    @invariant()
    def live_is_readable_and_gone_stays_gone(self) -> None:
        if self.log is None or EXPLICIT not in self.log.topics():
            return
        for name, model in self.models.items():
            topic = self.topic(name)
            records = list(topic.read())
            model.check_read(records, model.first, model.high + 1)
            present = {record.glsn for record in records}
            assert not present & self.gone[name]
            self.gone[name] |= set(range(1, model.high + 1)) - present
            for key in KEYS:
                for storage in STORAGES:
                    model.check_get(topic.get(key, storage_id=storage), storage, key)

    @invariant()
    def dead_stays_dead(self) -> None:
        if self.log is None:
            return
        for stream, store in self.log.engine.node.streams.items():
            dead = self.dead.setdefault(stream, set())
            assert not dead & set(store.snapshot.live)
            dead |= set(store.snapshot.dead())

    @invariant()
    def whoever_lags_ends_with_what_is_live(self) -> None:
        if self.log is None or EXPLICIT not in self.log.topics():
            return
        for name, model in self.models.items():
            topic = self.topic(name)
            readers = [reader.copy() for reader in self.readers[name]]
            for reader in [*readers, *readers_before_what_is_gone(topic, model)]:
                reader.catch_up(topic)
                check_table(model, reader.seen)

    @invariant()
    def the_delete_horizon_never_goes_back(self) -> None:
        if self.log is None or EXPLICIT not in self.log.topics():
            return
        for name, before in self.horizons.items():
            now = horizon_of(self.topic(name))
            assert before.glsn <= now.glsn <= self.models[name].high + 1
            assert before.dropped <= now.dropped
            self.horizons[name] = now

    @invariant()
    def explanations_name_every_stored_write(self) -> None:
        if self.log is None or EXPLICIT not in self.log.topics():
            return
        for name, model in self.models.items():
            for key in KEYS:
                stored = {
                    record.llsn
                    for record in self.topic(name).read()
                    if (record.key, record.storage_id) == (key, 0)
                }
                told = self.topic(name).explain(key)
                for llsn in stored:
                    assert any(f"at LLSN {llsn} " in sentence for sentence in told), (model, told)

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()


def test_compaction_keeps_exactly_what_is_live() -> None:
    examples = settings().max_examples * 7 // 10
    bounds = settings(max_examples=examples, stateful_step_count=25)
    run_state_machine_as_test(CompactionMachine, settings=bounds)
