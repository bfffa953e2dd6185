"""Readers that lag behind compaction end with exactly the keys that are there, or start anew.

A smaller world than that of ``test_compaction_machine``, in which deletes are dropped all the time:
few keys, and every second step makes compaction get further.
"""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
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
from tidelog import Entry, Kind, Log, Options
from tidelog.core.compaction.horizon import NOTHING_DROPPED, DeleteHorizon
from tidelog.core.compaction.plan import Strategy
from tidelog.testing.disk import Choice, SimDisk

OPTIONS = Options(
    wal_file_bytes=64 << 10,
    background=False,
    compaction=Strategy(minors=None, dead_ratio=None),
)
kinds = st.sampled_from([Kind.PUT, Kind.DELETE])
keys = st.sampled_from([b"a", b"b", b"c"])
storages = st.sampled_from([0, 0, 9])
aheads = st.integers(1, 4)
"""Explicit versions, as distances from the boundary."""


class LaggingMachine(RuleBasedStateMachine):
    versions = "log"

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.model = TopicModel(explicit=self.versions == "explicit")
        self.readers = [LaggingReader(), LaggingReader()]
        self.horizon: DeleteHorizon = NOTHING_DROPPED

    @initialize()
    def open(self) -> None:
        self.log: Log = tidelog.open(
            "/log", versions=self.versions, options=OPTIONS, vfs=self.disk.vfs()
        )

    def write(self, *entries: Entry) -> None:
        self.model.take(self.log, self.log.write(entries), entries)

    def version(self, ahead: int) -> int | None:
        return self.model.boundary + ahead if self.model.explicit else None

    # -- histories -------------------------------------------------------------------------

    @rule(kind=kinds, key=keys, storage=storages, ahead=aheads)
    def write_key(self, kind: Kind, key: bytes, storage: int, ahead: int) -> None:
        value = b"%d" % self.model.high if kind is Kind.PUT else b""
        self.write(Entry(kind, value, key, storage, self.version(ahead)))

    @rule(key=keys, ahead=aheads)
    def put_and_delete(self, key: bytes, ahead: int) -> None:
        """The two lie in different segments, so that the one can go before the other."""
        self.write_key(Kind.PUT, key, 0, ahead)
        self.flush()
        self.write_key(Kind.DELETE, key, 0, ahead)

    @rule(storage=storages, ahead=aheads)
    def delete_storage(self, storage: int, ahead: int) -> None:
        receipts = self.log.delete_storage(storage, write_version=self.version(ahead))
        self.model.take(self.log, receipts, [Entry(Kind.DELETE_STORAGE, b"", b"", storage)])

    @rule(part=st.sampled_from([0.2, 0.6]))
    def trim(self, part: float) -> None:
        before = max(1, int(part * (self.model.high + 1)))
        self.log.trim(before)
        self.model.first = max(self.model.first, before)

    # -- compaction ------------------------------------------------------------------------

    def flush(self) -> None:
        self.log.engine.roll()
        self.log.engine.maintenance.flush_rolled()

    @rule(rounds=st.integers(1, 3))
    def compact(self, rounds: int) -> None:
        """What is deleted goes in the first round, its delete in the next ones."""
        if self.model.explicit:
            self.model.boundary += 4
            self.log.set_gc_boundary(self.model.boundary)
        for _ in range(rounds):
            entry = Entry(Kind.APPEND, b"no key")
            self.model.take(self.log, [self.log.append(entry.value)], [entry])
            assert not self.log.compact(full=True).failures

    @rule()
    def snapshot(self) -> None:
        self.log.snapshot()

    @rule(entries_max=st.sampled_from([1, 2]))
    def rewrite(self, entries_max: int) -> None:
        self.model.take_copies(self.log, self.log.rewrite(entries_max=entries_max))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()

    @rule(kept=st.sampled_from([Choice.LOST, Choice.KEPT]))
    def crash(self, kept: Choice) -> None:
        self.disk = self.disk.after_crash(kept)
        self.open()

    # -- readers ---------------------------------------------------------------------------

    @rule(which=st.sampled_from([0, 1]), count=st.sampled_from([1, 2, 3, 6]))
    def read_on(self, which: int, count: int) -> None:
        self.readers[which].read_on(self.log, count)

    @invariant()
    def whoever_lags_ends_with_what_is_live(self) -> None:
        readers = [reader.copy() for reader in self.readers]
        for reader in [*readers, *readers_before_what_is_gone(self.log, self.model)]:
            reader.catch_up(self.log)
            check_table(self.model, reader.seen)

    @invariant()
    def the_horizon_never_goes_back(self) -> None:
        now = horizon_of(self.log)
        assert self.horizon.glsn <= now.glsn <= self.model.high + 1
        assert self.horizon.dropped <= now.dropped
        self.horizon = now

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


class ExplicitMachine(LaggingMachine):
    versions = "explicit"


@pytest.mark.parametrize("machine", [LaggingMachine, ExplicitMachine])
def test_a_reader_that_lags_keeps_no_deleted_key(machine: type[LaggingMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(stateful_step_count=20))
