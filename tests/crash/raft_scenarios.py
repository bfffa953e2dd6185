"""What a Raft node does to its disk, for the tests that stop it at every call.

A journal has every write as an attempt.  What it has as acknowledged are ``Durable`` notes: one
when the store is open, one after each sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from tests.storage.raft_stores import (
    DIRECTORY,
    EMPTY,
    FIRST,
    entries,
    entry,
    open_store,
    snapshot,
    states,
    voted,
)
from tidelog.core.raft.entries import Stored
from tidelog.core.raft.output import Write
from tidelog.storage.raft_store import RaftStore
from tidelog.testing.crash import Check, Journal, Run
from tidelog.testing.disk import SimDisk, SimVfs

OUTCOMES_MAX: Final = 256
"""Mixtures of lost, kept and torn effects that are tried in full at one crash point.  Where there
are more, those that ``crash_outcomes`` names are tried: a number linear in the effects."""


class Call(Enum):
    """What a scenario does besides writing."""

    SYNC = "sync"
    PREPARE = "prepare"
    """A piece of the next log file."""


SYNC: Final = Call.SYNC
PREPARE: Final = Call.PREPARE
Steps: TypeAlias = Sequence[Write | Call]
"""Writes, their numbers left to the scenario, and calls."""


class Durable(NamedTuple):
    """After the first ``writes`` writes of the journal, which began from ``found``."""

    found: Stored
    writes: int


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    steps: Steps
    prepare: Steps | None = None
    closes: bool = False

    def prepared(self) -> tuple[SimDisk, Stored]:
        """A disk to begin from, and what is stored on it."""
        disk = SimDisk()
        if self.prepare is None:
            return disk, EMPTY
        store, _ = open_store(disk.vfs(), phase="prepare")
        journal = Journal()
        carry_out(store, self.prepare, journal, EMPTY)
        store.close()
        return disk, states(EMPTY, journal.attempted)[-1]

    def run(self, vfs: SimVfs, journal: Journal) -> None:
        store, found = open_store(vfs)
        carry_out(store, self.steps, journal, found)
        if self.closes:
            store.close()
            journal.acknowledged.append(Durable(found, len(journal.attempted)))


def carry_out(store: RaftStore, steps: Steps, journal: Journal, found: Stored) -> None:
    journal.acknowledged.append(Durable(found, 0))
    for step in steps:
        if step is Call.SYNC:
            store.sync()
            journal.acknowledged.append(Durable(found, len(journal.attempted)))
        elif step is Call.PREPARE:
            store.prepare()
        else:
            write = replace(step, sequence=len(journal.attempted) + 1)
            journal.attempted.append(write)
            store.write(write)


# -- the check ---------------------------------------------------------------------------------


def check_recovery(begin: Stored) -> Check:
    """What a stop left is a state that the journal allows, stays so, and can be gone on from."""

    def check(vfs: SimVfs, journal: Journal) -> None:
        found = check_start(vfs, journal, begin)
        _check_goes_on(vfs, found)

    return check


def check_start(vfs: SimVfs, journal: Journal, begin: Stored) -> Stored:
    """The state that the next start finds: after k writes, synced <= k <= written."""
    existed = bool(journal.acknowledged) or begin != EMPTY
    store, found = open_store(vfs, first=None if existed else FIRST, phase="check")
    assert found in allowed(journal, begin), f"{found} is stored"
    store.close()
    names = vfs.list_dir(DIRECTORY)
    kinds = sorted(name.rsplit(".", 1)[-1] for name in names)
    assert kinds == ["LOCK", "log", "snapshot"], f"a recovery leaves {names}"
    return found


def allowed(journal: Journal, begin: Stored) -> list[Stored]:
    if not journal.acknowledged:
        return [begin]
    durable: Durable = journal.acknowledged[-1]
    return states(durable.found, journal.attempted)[durable.writes :]


def _check_goes_on(vfs: SimVfs, found: Stored) -> None:
    """A write after the recovery survives the next power loss, and everything before it does."""
    store, again = open_store(vfs, first=None, phase="resume")
    assert again == found, "the second start finds something else"
    write = following(found)
    store.write(write)
    store.sync()
    _, left = open_store(vfs.disk.after_crash().vfs(), first=None, phase="check")
    assert left == states(found, [write])[-1]


def following(found: Stored) -> Write:
    """A write that can come next, whatever is stored."""
    last = found.entries[-1].index if found.entries else found.snapshot.head.index
    term = found.hard_state.term + 1
    return Write(1, voted(term, 3), entries=(entry(last + 1, term, b"after the stop"),))


# -- two stops ---------------------------------------------------------------------------------


def second_run(before: Journal, begin: Stored) -> Run:
    """Start again after a stop, and write on; what the start showed counts as acknowledged."""

    def run(vfs: SimVfs, journal: Journal) -> None:
        journal.attempted[:] = before.attempted
        journal.acknowledged[:] = before.acknowledged
        store, found = open_store(vfs, phase="resume")
        assert found in allowed(before, begin)
        journal.attempted.clear()
        carry_out(store, [following(found), SYNC], journal, found)

    return run


# -- the scenarios -----------------------------------------------------------------------------

SOME: Final[Steps] = [Write(0, voted(1, 2), entries=entries(1, 4)), SYNC]
"""Three entries of term 1."""
MORE_THAN_A_FILE: Final[Steps] = [
    step
    for index in range(4, 9)
    for step in (Write(0, entries=entries(index, index + 1, size=1000)), SYNC)
]
TOO_SMALL: Final[Steps] = [*MORE_THAN_A_FILE[:-4], PREPARE, *MORE_THAN_A_FILE[-4:]]
"""The file that was prepared has no room for what the next one begins with."""
PREPARED: Final[Steps] = [
    *(Write(0, entries=entries(index, index + 1)) for index in range(4, 7)),
    SYNC,
    PREPARE,
    Write(0, voted(2)),
    Write(0, snapshot=snapshot(5), entries=entries(7, 8, term=2)),
    SYNC,
    Write(0, voted(3)),
    SYNC,
]

SCENARIOS: Final = (
    Scenario("making a store", [Write(0, voted(1, 2)), SYNC]),
    Scenario("hard state", [Write(0, voted(2)), SYNC, Write(0, voted(2, 3)), SYNC], SOME),
    Scenario(
        "appends",
        [Write(0, entries=entries(4, 6)), SYNC, Write(0, entries=entries(6, 7)), SYNC],
        SOME,
    ),
    Scenario(
        "several writes and one sync",
        [
            Write(0, entries=entries(4, 5, size=600)),
            Write(0, voted(2, 1)),
            Write(0, entries=entries(5, 6, term=2)),
            SYNC,
            Write(0, voted(3, 1)),
            Write(0, entries=entries(6, 7, term=3)),
        ],
        SOME,
    ),
    Scenario(
        "truncating appends",
        [
            Write(0, voted(2, 1), entries=entries(2, 3, term=2)),
            SYNC,
            Write(0, voted(3), entries=entries(1, 4, term=3)),
            SYNC,
        ],
        SOME,
    ),
    Scenario(
        "a snapshot of our own",
        [
            Write(0, entries=entries(4, 6)),
            Write(0, snapshot=snapshot(3), entries=entries(6, 7)),
            SYNC,
            Write(0, snapshot=snapshot(6)),
            SYNC,
            Write(0, entries=entries(7, 8)),
            SYNC,
        ],
        SOME,
    ),
    Scenario(
        "a snapshot of the leader",
        [
            Write(0, voted(2)),
            Write(0, snapshot=snapshot(9, term=2), replaces_log=True),
            SYNC,
            Write(
                0,
                voted(3, 2),
                snapshot=snapshot(12, term=3, data=b"s" * 1500),
                replaces_log=True,
                entries=entries(13, 15, term=3),
            ),
            SYNC,
        ],
        SOME,
    ),
    Scenario("a full file", MORE_THAN_A_FILE, SOME),
    Scenario("a full file, and one that is too small was prepared", TOO_SMALL, SOME),
    Scenario("a snapshot, and the next file was prepared", PREPARED, SOME),
    Scenario(
        "a write larger than a file",
        [Write(0, voted(2), entries=entries(3, 12, term=2, size=1000)), SYNC, Write(0, voted(3))],
        SOME,
    ),
    Scenario("closing", [Write(0, voted(4, 1))], SOME, closes=True),
)


def scenario(name: str) -> Scenario:
    (found,) = [scenario for scenario in SCENARIOS if scenario.name == name]
    return found
