"""A Raft group in one place, for failure stories told step by step.

Nothing happens by itself: messages wait until they are delivered or dropped, ticks are given out
one by one, and a disk that was told to hold back completes its writes when it is told to.  After
every step each node's invariants are checked, and so is what the group promises as a whole: one
leader per term, and one entry per index for all that was ever applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

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
from tidelog.core.raft.messages import Message
from tidelog.core.raft.node import Change, Raft, RaftOptions, Refused, Role
from tidelog.core.raft.output import Output, Write
from tidelog.core.raft.status import FollowerStatus
from tidelog.types import NO_NODE, NodeId

ELECTION_TICKS = 10
"""After so long without a word, a leader may be replaced."""
CAMPAIGN_TICKS = 2 * ELECTION_TICKS - 1
"""After so long without a word, a node tries to; chance draws the highest for all."""
Which: TypeAlias = Callable[[Message], bool]


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def first_snapshot(voters: Iterable[int], learners: Iterable[int] = ()) -> Snapshot:
    membership = Membership(nodes(*voters), nodes(*learners))
    return Snapshot(SnapshotHead(NO_INDEX, NO_TERM, membership), b"")


def stored(voters: Iterable[int], *entries: Entry, term: int = 0, vote: int = NO_NODE) -> Stored:
    hard_state = HardState(RaftTerm(term), NodeId(vote))
    return Stored(hard_state, first_snapshot(voters), entries)


def command(index: int, term: int, data: bytes = b"") -> Entry:
    return Entry(Index(index), RaftTerm(term), EntryKind.COMMAND, data)


class Disk:
    """What survives a crash: the writes that were completed, in order."""

    def __init__(self, image: Stored) -> None:
        self.image = image
        self.waiting: list[Write] = []
        self.holds_back = False

    def complete(self, count: int) -> int:
        """Make the first writes durable; return the sequence number of the last."""
        for write in self.waiting[:count]:
            self.image = after_write(self.image, write)
        done = self.waiting[:count]
        del self.waiting[:count]
        return done[-1].sequence


def after_write(image: Stored, write: Write) -> Stored:
    snapshot, entries = image.snapshot, image.entries
    if write.snapshot is not None:
        snapshot = write.snapshot
        index = snapshot.head.index
        kept = () if write.replaces_log else entries
        entries = tuple(entry for entry in kept if entry.index > index)
    if write.entries:
        first = write.entries[0].index
        entries = (*(entry for entry in entries if entry.index < first), *write.entries)
    return Stored(write.hard_state or image.hard_state, snapshot, entries)


class Member:
    """One node with its disk and its state machine: the list of applied commands."""

    def __init__(self, node: NodeId, image: Stored, options: RaftOptions) -> None:
        self.disk = Disk(image)
        self.options = options
        self.node = node
        self.raft: Raft | None = None
        self.start()

    def start(self) -> None:
        image = self.disk.image
        self.raft = Raft(self.node, image, self.options, lambda n: n - 1)
        self.applied = decode_state(image.snapshot.data)
        self.reads: dict[int, int] = {}
        self.lost_reads: list[int] = []

    def apply(self, output: Output) -> None:
        if output.install is not None:
            self.applied = decode_state(output.install.data)
        self.applied += [
            entry.data for entry in output.committed if entry.kind is EntryKind.COMMAND
        ]
        self.reads |= {read.context: read.index for read in output.reads}
        self.lost_reads += output.lost_reads


def decode_state(data: bytes) -> list[bytes]:
    return msgspec.msgpack.decode(data, type=list[bytes]) if data else []


def encode_state(state: Sequence[bytes]) -> bytes:
    return msgspec.msgpack.encode(list(state))


class Group:
    """Nodes, the messages between them, and who saw what."""

    def __init__(
        self,
        *voters: int,
        learners: Sequence[int] = (),
        options: RaftOptions | None = None,
        images: dict[int, Stored] | None = None,
    ) -> None:
        self.options = options or RaftOptions()
        self.wire: list[Message] = []
        self.sent: list[Message] = []
        self.writes: list[tuple[int, Write]] = []
        self._cut: set[tuple[int, int]] = set()
        self._leaders: dict[int, int] = {}
        self._history: dict[int, Entry] = {}
        self.members: dict[int, Member] = {}
        for number in (*voters, *learners):
            image = Stored(HardState(), first_snapshot(voters, learners), ())
            self.join(number, (images or {}).get(number, image))

    # --- who is there ---

    def __getitem__(self, number: int) -> Raft:
        raft = self.members[number].raft
        assert raft is not None, f"node {number} is down"
        return raft

    def join(self, number: int, image: Stored | None = None) -> None:
        """Start a node; without an image, one that knows nothing of the group yet."""
        empty = Stored(HardState(), first_snapshot(()), ())
        self.members[number] = Member(NodeId(number), image or empty, self.options)

    @property
    def leader(self) -> int:
        """The leader of the latest term."""
        leading = [n for n in self.alive if self[n].role is Role.LEADER]
        assert leading, "nobody leads"
        return max(leading, key=lambda n: self[n].term)

    @property
    def alive(self) -> list[int]:
        return [n for n, member in self.members.items() if member.raft is not None]

    def follower_of(self, leader: int, follower: int) -> FollowerStatus:
        status = self[leader].status()
        return next(each for each in status.followers if each.node == follower)

    def log(self, number: int) -> list[tuple[int, bytes]]:
        """Term and data of each entry that a node has in memory."""
        log = self[number]._state.log
        return [
            (entry.term, entry.data)
            for entry in log.slice(log.snapshot_index + 1, log.last_index + 1)
        ]

    # --- what happens ---

    def deliver(self, which: Which | None = None, *, rounds: int = 1000) -> None:
        """Deliver what is on its way, and what follows from it, until nothing is.

        With ``which``, only those messages; the others wait.
        """
        for _ in range(rounds):
            self.collect()
            ready = [each for each in self.wire if which is None or which(each)]
            if not ready:
                return
            for message in ready:
                self.wire.remove(message)
                self.step(message)
        raise AssertionError("the group does not come to rest")

    def step(self, message: Message) -> None:
        """Deliver one message, unless the way or the target is cut off."""
        if (message.source, message.target) in self._cut:
            return
        member = self.members.get(message.target)
        if member is not None and member.raft is not None:
            member.raft.step(message)
            self.collect(message.target)

    def collect(self, *numbers: int) -> None:
        """Carry out what nodes want done; messages then wait on the wire."""
        for number in numbers or self.alive:
            raft = self[number]
            while raft.has_output:
                self._carry_out(number, raft.take())
            raft.validate()
            self._check_leader(number)

    def _carry_out(self, number: int, output: Output) -> None:
        member = self.members[number]
        self.wire += output.messages
        self.sent += output.messages
        self._check_history(output)
        member.apply(output)
        if output.write is not None:
            self.writes.append((number, output.write))
            member.disk.waiting.append(output.write)
            if not member.disk.holds_back:
                self._complete(number, len(member.disk.waiting))

    def _complete(self, number: int, count: int) -> None:
        member = self.members[number]
        if member.disk.waiting:
            sequence = member.disk.complete(count)
            self[number].written(sequence)

    def _check_leader(self, number: int) -> None:
        raft = self[number]
        if raft.role is Role.LEADER:
            leader = self._leaders.setdefault(raft.term, number)
            assert leader == number, f"term {raft.term} has leaders {leader} and {number}"

    def _check_history(self, output: Output) -> None:
        for entry in output.committed:
            known = self._history.setdefault(entry.index, entry)
            assert known == entry, f"{known} was applied before {entry}"

    def take_messages(self, which: Which) -> list[Message]:
        """Take messages off the wire, to deliver them later, twice or never."""
        self.collect()
        taken = [message for message in self.wire if which(message)]
        self.wire = [message for message in self.wire if not which(message)]
        return taken

    def drop(self, which: Which = lambda _: True) -> None:
        """Lose messages that are on their way."""
        self.take_messages(which)

    def cut(self, *pairs: tuple[int, int]) -> None:
        """Lose all messages of these ways, from now on."""
        self._cut.update(pairs)

    def isolate(self, *numbers: int) -> None:
        """Cut nodes off from all others."""
        others = [n for n in self.members if n not in numbers]
        self.cut(*((a, b) for a in numbers for b in others))
        self.cut(*((b, a) for a in numbers for b in others))

    def heal(self) -> None:
        self._cut.clear()

    def tick(self, *numbers: int, times: int = 1) -> None:
        """Let time pass for these nodes, or all; messages wait."""
        for _ in range(times):
            for number in numbers or self.alive:
                self[number].tick()
                self.collect(number)

    def pass_time(self, ticks: int) -> None:
        """Let time pass for all, delivering messages between ticks."""
        for _ in range(ticks):
            self.tick()
            self.deliver()

    def elect(self, number: int) -> None:
        """Have a node elected: the others have lost patience, but it asks first."""
        others = [n for n in self.alive if n != number and self[n].role is not Role.LEADER]
        self.tick(*others, times=ELECTION_TICKS if others else 0)
        self.campaign(number)
        self.deliver()
        assert self[number].role is Role.LEADER, f"node {number} was not elected"

    def campaign(self, number: int) -> None:
        """Let so much time pass for one node that it asks for an election."""
        self.tick(number, times=CAMPAIGN_TICKS)

    def propose(self, number: int, *data: bytes) -> Index:
        """Propose commands; messages wait."""
        for each in data:
            index = self[number].propose(each)
            assert not isinstance(index, Refused), index
        self.collect(number)
        return self[number].last_index

    def change(self, number: int, change: Change) -> Index | Refused:
        result = self[number].change_membership(change)
        self.collect(number)
        return result

    def read(self, number: int, context: int) -> None:
        self[number].read(context)
        self.collect(number)

    def compact(self, number: int) -> Index:
        """Have a node replace its log by a snapshot of all that it has applied."""
        raft, member = self[number], self.members[number]
        raft.compact(raft.applied, encode_state(member.applied))
        self.collect(number)
        return raft.applied

    # --- disks and crashes ---

    def hold_back(self, *numbers: int) -> None:
        """Let disks keep writes to themselves until they are told to complete them."""
        for number in numbers:
            self.members[number].disk.holds_back = True

    def complete(self, number: int, count: int | None = None) -> None:
        """Complete the first writes that a disk held back, or all; it goes on holding back."""
        disk = self.members[number].disk
        self._complete(number, len(disk.waiting) if count is None else count)
        self.collect(number)

    def release(self, number: int) -> None:
        """Let a disk complete all writes, now and from now on."""
        self.members[number].disk.holds_back = False
        self.complete(number)

    def crash(self, number: int) -> None:
        """Stop a node: what its disk had not completed is gone; messages stay on their way."""
        member = self.members[number]
        member.raft = None
        member.disk.waiting.clear()
        member.disk.holds_back = False

    def restart(self, number: int) -> None:
        """Start a node from what is on its disk, crashed before or not."""
        self.crash(number)
        self.members[number].start()

    # --- what can be asked ---

    def applied(self, number: int) -> list[bytes]:
        """The commands that a node's state machine has applied."""
        return self.members[number].applied

    def roles(self) -> dict[int, str]:
        return {number: self[number].role.name for number in self.alive}


def of(*kinds: type[Message], source: int | None = None, target: int | None = None) -> Which:
    """Messages of these kinds, from and to these nodes."""

    def which(message: Message) -> bool:
        return (
            (not kinds or isinstance(message, kinds))
            and source in (None, message.source)
            and target in (None, message.target)
        )

    return which
