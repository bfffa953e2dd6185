"""Stores of a Raft node for tests, and a plain model of what they must hold."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, count
from typing import Final

from tidelog.core.raft.entries import (
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    RaftTerm,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.output import Write
from tidelog.storage.raft_store import RaftStore
from tidelog.storage.vfs import Vfs
from tidelog.types import NO_NODE, NodeId

NODE: Final = NodeId(2)
GROUP: Final = bytes(range(16))
VOTERS: Final = Membership((NodeId(1), NodeId(2), NodeId(3)))
FIRST: Final = Snapshot(SnapshotHead(NO_INDEX, NO_TERM, VOTERS), b"")
EMPTY: Final = Stored(HardState(), FIRST, ())
DIRECTORY: Final = "/raft"
ROOM_BYTES: Final = 4096
"""The least that is allowed, so that a few writes fill a file."""

SALTS: Final = {"prepare": 1 << 32, "run": 2 << 32, "check": 3 << 32, "resume": 4 << 32}
"""Where the salts of each phase of a test begin: the same in each run, and never twice."""


def open_store(
    vfs: Vfs,
    *,
    first: Snapshot | None = FIRST,
    phase: str = "run",
    node: NodeId = NODE,
    group: bytes = GROUP,
) -> tuple[RaftStore, Stored]:
    """Open the store in the directory that all tests use."""
    salts = count(SALTS[phase])
    return RaftStore.open(
        vfs,
        DIRECTORY,
        node=node,
        group=group,
        first=first,
        room_bytes=ROOM_BYTES,
        new_salt=lambda: next(salts),
    )


def entry(index: int, term: int = 1, data: bytes = b"") -> Entry:
    return Entry(Index(index), RaftTerm(term), EntryKind.COMMAND, data or b"entry %d" % index)


def entries(begin: int, end: int, term: int = 1, size: int = 0) -> tuple[Entry, ...]:
    """Entries ``[begin, end)``, each of ``size`` bytes if that is not 0."""
    return tuple(entry(index, term, bytes([index]) * size) for index in range(begin, end))


def voted(term: int, vote: int = NO_NODE) -> HardState:
    return HardState(RaftTerm(term), NodeId(vote))


def snapshot(index: int, term: int = 1, data: bytes = b"") -> Snapshot:
    head = SnapshotHead(Index(index), RaftTerm(term), VOTERS)
    return Snapshot(head, data or b"state at %d" % index)


def numbered(writes: Iterable[Write]) -> list[Write]:
    """The same writes with sequence numbers from 1 on."""
    return [
        Write(number, write.hard_state, write.snapshot, write.replaces_log, write.entries)
        for number, write in enumerate(writes, 1)
    ]


def after(stored: Stored, write: Write) -> Stored:
    """What must be stored after one more write, told in the plainest way."""
    log = {entry.index: entry for entry in stored.entries}
    base = stored.snapshot
    if write.snapshot is not None:
        base = write.snapshot
        log = {} if write.replaces_log else {i: e for i, e in log.items() if i > base.head.index}
    if write.entries:
        log = {i: e for i, e in log.items() if i < write.entries[0].index}
        log |= {entry.index: entry for entry in write.entries}
    return Stored(write.hard_state or stored.hard_state, base, tuple(log[i] for i in sorted(log)))


def states(begin: Stored, writes: Iterable[Write]) -> list[Stored]:
    """What must be stored after none, one, two, ... of the writes."""
    return list(accumulate(writes, after, initial=begin))
