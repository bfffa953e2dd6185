"""Random writes, syncs and stops of a Raft node's store, held against a plain model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.storage.raft_stores import EMPTY, entry, open_store, snapshot, states
from tidelog.core.raft.entries import Entry, HardState, RaftTerm, Snapshot, Stored
from tidelog.core.raft.output import Write
from tidelog.storage.raft_store import RaftStore
from tidelog.testing.disk import Choice, SimDisk
from tidelog.types import NO_NODE, NodeId

SIZES = st.sampled_from([0, 1, 7, 100, 700, 3000])
VOTES = st.sampled_from([NodeId(0), NodeId(1), NodeId(3)])


class StoreMachine(RuleBasedStateMachine):
    """``possible`` are the states that a stop may leave now; the last one is what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.possible = [EMPTY]
        self.sequence = 0
        self.store: RaftStore | None = None
        self._start(self.disk)

    @property
    def now(self) -> Stored:
        return self.possible[-1]

    @property
    def last_index(self) -> int:
        return self.now.snapshot.head.index + len(self.now.entries)

    def term_at(self, index: int) -> int:
        head = self.now.snapshot.head
        return head.term if index == head.index else self.now.entries[index - head.index - 1].term

    def _start(self, disk: SimDisk) -> None:
        self.store, found = open_store(disk.vfs(), first=EMPTY.snapshot)
        assert found in self.possible
        self.disk, self.possible, self.sequence = disk, [found], 0

    def _write(
        self,
        hard_state: HardState | None,
        log: tuple[Entry, ...] = (),
        state: Snapshot | None = None,
        replaces_log: bool = False,
    ) -> None:
        assert self.store is not None
        self.sequence += 1
        write = Write(self.sequence, hard_state, state, replaces_log, log)
        self.store.write(write)
        self.possible = [*self.possible, states(self.now, [write])[-1]]

    def _entries(self, begin: int, count: int, size: int) -> tuple[Entry, ...]:
        term = self.now.hard_state.term
        return tuple(entry(begin + i, term, bytes([i + 1]) * size) for i in range(count))

    @rule(ahead=st.integers(1, 2), vote=VOTES)
    def new_term(self, ahead: int, vote: NodeId) -> None:
        self._write(HardState(RaftTerm(self.now.hard_state.term + ahead), vote))

    @precondition(lambda self: self.now.hard_state.vote == NO_NODE)
    @rule(vote=VOTES)
    def vote(self, vote: NodeId) -> None:
        self._write(HardState(self.now.hard_state.term, vote))

    @rule(count=st.integers(1, 4), size=SIZES)
    def append(self, count: int, size: int) -> None:
        self._write(None, self._entries(self.last_index + 1, count, size))

    @precondition(lambda self: self.now.entries)
    @rule(back=st.integers(0, 5), count=st.integers(1, 4), size=SIZES, ahead=st.integers(0, 1))
    def truncate(self, back: int, count: int, size: int, ahead: int) -> None:
        begin = max(self.now.snapshot.head.index + 1, self.last_index - back)
        hard_state = HardState(RaftTerm(self.now.hard_state.term + 1)) if ahead else None
        self._write(hard_state, self._entries(begin, count, size))

    @precondition(lambda self: self.now.entries)
    @rule(back=st.integers(0, 5), size=SIZES, more=st.integers(0, 2))
    def take_snapshot(self, back: int, size: int, more: int) -> None:
        index = max(self.now.snapshot.head.index + 1, self.last_index - back)
        state = snapshot(index, self.term_at(index), b"s" * size)
        self._write(None, self._entries(self.last_index + 1, more, size), state)

    @rule(ahead=st.integers(1, 9), size=SIZES, more=st.integers(0, 2))
    def install_snapshot(self, ahead: int, size: int, more: int) -> None:
        """From a leader; it may be of an index that our log has, or had."""
        index = self.now.snapshot.head.index + ahead
        state = snapshot(index, self.now.hard_state.term, b"i" * size)
        self._write(None, self._entries(index + 1, more, size), state, replaces_log=True)

    @rule()
    def sync(self) -> None:
        assert self.store is not None
        self.store.sync()
        self.possible = [self.now]

    @rule()
    def prepare(self) -> None:
        assert self.store is not None
        self.store.prepare()

    @rule()
    def close_and_start(self) -> None:
        assert self.store is not None
        self.store.close()
        self.possible = [self.now]
        self._start(self.disk)

    @rule()
    def kill_and_start(self) -> None:
        self._start(self.disk.copy())

    @rule(data=st.data())
    def lose_power_and_start(self, data: st.DataObject) -> None:
        effects = self.disk.pending_effects()
        choices = [data.draw(st.sampled_from(effect.options)) for effect in effects]
        self._start(self.disk.after_crash(choices))

    @invariant()
    def what_is_durable_is_possible(self) -> None:
        if self.sequence % 4 == 0:
            left = self.disk.after_crash(Choice.LOST)
            _, found = open_store(left.vfs(), first=None, phase="check")
            assert found in self.possible


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=60, stateful_step_count=30)
