"""The replicas of one stream in one place, for failure stories told step by step.

Nothing happens by itself: messages wait on the wire until they are delivered or dropped, ticks are
given out one by one, a disk that holds back syncs when it is told to.  After every step a
``Witness`` looks at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec

from tests.core.replica.protocol.disk import Disk, Image
from tests.core.replica.protocol.witness import Witness
from tidelog.core.replica.entries import NO_PRODUCER, EntryId
from tidelog.core.replica.messages import (
    Message,
    ToReplica,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.core.replica.output import Output
from tidelog.core.replica.replica import Appended, Replica, Stored
from tidelog.types import Llsn, NodeId, ProducerId, StreamId, Term

STREAM = StreamId(1)
OPERATOR = NodeId(90)
Which: TypeAlias = Callable[[Message], bool]
Answer = TypeVar("Answer", bound=Message)


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in sorted(numbers))


def entry(term: int, llsn: int) -> EntryId:
    return EntryId(Term(term), Llsn(llsn))


def of(*kinds: type[msgspec.Struct], source: int | None = None, target: int | None = None) -> Which:
    """Messages of these kinds, from and to these nodes."""

    def which(message: Message) -> bool:
        return (
            (not kinds or isinstance(message, kinds))
            and source in (None, message.source)
            and target in (None, message.target)
        )

    return which


class Member:
    """One node: its replica while it runs, its disk, and what its clients were told."""

    def __init__(self, number: int, options: ReplicaOptions) -> None:
        self.node = NodeId(number)
        self.options = options
        self.disk = Disk()
        self.replica: Replica | None = None
        self.start()

    def start(self) -> None:
        self.replica = Replica(
            self.node, STREAM, stored(self.disk.durable), self.disk, self.options
        )
        self.stored = self.propagated = self.ordered = Llsn(0)
        self.deposed = 0

    def tell_clients(self, output: Output) -> None:
        self.stored = output.stored or self.stored
        self.propagated = output.propagated or self.propagated
        self.ordered = output.ordered or self.ordered
        self.deposed += output.deposed


def stored(image: Image) -> Stored:
    """What a host finds on a disk, as it tells it to a replica."""
    return Stored(
        hard_state=image.hard_state,
        first=image.first,
        end=image.end,
        terms=image.terms,
        context=image.context,
        snapshot_index=image.snapshot_index,
        producers=image.producers,
    )


class Replicas:
    """Nodes, their disks, the messages between them, and a witness."""

    def __init__(self, *numbers: int, options: ReplicaOptions | None = None) -> None:
        self.options = options or ReplicaOptions()
        self.wire: list[Message] = []
        self.sent: list[Message] = []
        self.witness = Witness()
        self._cut: set[tuple[int, int]] = set()
        self.members = {number: Member(number, self.options) for number in numbers}

    # -- who is there ------------------------------------------------------------------------

    def __getitem__(self, number: int) -> Replica:
        replica = self.members[number].replica
        assert replica is not None, f"node {number} is down"
        return replica

    @property
    def alive(self) -> list[int]:
        return [number for number, member in self.members.items() if member.replica is not None]

    def image(self, number: int) -> Image:
        """What is on a node's disk."""
        return self.members[number].disk.durable

    def log(self, number: int) -> list[tuple[int, int, bytes]]:
        """Term, LLSN and data of each batch that a node can read."""
        batches = self.members[number].disk.seen.batches
        return [(batch.term, batch.llsn_begin, batch.data) for batch in batches]

    def data(self, number: int) -> list[bytes]:
        """What a node can read and clients have written."""
        batches = self.members[number].disk.seen.batches
        return [batch.data for batch in batches if not batch.is_control]

    # -- messages ----------------------------------------------------------------------------

    def deliver(self, which: Which | None = None, *, rounds: int = 1000) -> None:
        """Deliver what is on its way, and what follows from it, until nothing is.

        With ``which``, only those messages; the others wait.  Answers to the operator wait always.
        """
        for _ in range(rounds):
            self.collect()
            ready = [
                message
                for message in self.wire
                if message.target != OPERATOR and (which is None or which(message))
            ]
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
        if member is not None and member.replica is not None:
            member.replica.step(as_request(message))
            self.collect(message.target)

    def collect(self, *numbers: int) -> None:
        """Carry out what replicas want done; messages then wait on the wire."""
        for number in numbers or self.alive:
            replica, member = self[number], self.members[number]
            while replica.has_output:
                self._carry_out(member, replica.take())
            self.witness.look(number, replica, member.disk)

    def _carry_out(self, member: Member, output: Output) -> None:
        if output.write is not None:
            member.disk.take(output.write)
        self.witness.hear(member.node, member.disk, output)
        self.put(*output.messages)
        member.tell_clients(output)
        if not member.disk.holds_back:
            self._sync(member, len(member.disk.waiting))

    def _sync(self, member: Member, count: int) -> None:
        if member.disk.waiting and count and member.replica is not None:
            member.replica.written(member.disk.sync(count))

    def put(self, *messages: Message) -> None:
        """Put messages on the wire."""
        self.wire += messages
        self.sent += messages

    def take_messages(self, which: Which = lambda _: True) -> list[Message]:
        """Take messages off the wire, to deliver them later, twice or never."""
        self.collect()
        taken = [message for message in self.wire if which(message)]
        self.wire = [message for message in self.wire if not which(message)]
        return taken

    def take_one(self, kind: type[Answer], *, source: int | None = None) -> Answer:
        """Take the only message of a kind off the wire."""
        taken = self.take_messages(of(kind, source=source))
        assert len(taken) == 1, f"there are {len(taken)} messages instead of one {kind.__name__}"
        assert isinstance(taken[0], kind)
        return taken[0]

    def drop(self, which: Which = lambda _: True) -> None:
        """Lose messages that are on their way."""
        self.take_messages(which)

    def isolate(self, *numbers: int) -> None:
        """Cut nodes off from the other replicas, from now on."""
        others = [number for number in self.members if number not in numbers]
        self._cut.update((a, b) for a in numbers for b in others)
        self._cut.update((b, a) for a in numbers for b in others)

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

    # -- clients -----------------------------------------------------------------------------

    def append(
        self, number: int, *data: bytes, count: int = 1, producer: int = NO_PRODUCER, seq: int = 0
    ) -> Llsn:
        """Append batches at a leader; return where the last one begins.  Messages wait."""
        begin = Llsn(0)
        for each in data:
            appended = self[number].append(each, count, producer=ProducerId(producer), sequence=seq)
            assert isinstance(appended, Appended), appended
            begin = appended.llsn_begin
            self.collect(number)
        return begin

    # -- disks and crashes -------------------------------------------------------------------

    def hold_back(self, *numbers: int) -> None:
        """Let disks keep writes to themselves until they are told to sync."""
        for number in numbers:
            self.members[number].disk.holds_back = True

    def sync(self, number: int, count: int | None = None) -> None:
        """Sync the first writes that a disk held back, or all; it goes on holding back."""
        member = self.members[number]
        self._sync(member, len(member.disk.waiting) if count is None else count)
        self.collect(number)

    def release(self, *numbers: int) -> None:
        """Let disks sync at once, now and from now on."""
        for number in numbers:
            self.members[number].disk.holds_back = False
            self.sync(number)

    def crash(self, *numbers: int) -> None:
        """Stop nodes: what was not synced is gone; messages stay on their way."""
        for number in numbers:
            member = self.members[number]
            member.replica = None
            member.disk.crash()
            member.disk.holds_back = False
            self.witness.forget_life(number)

    def restart(self, *numbers: int) -> None:
        """Start nodes from what is on their disks, crashed before or not."""
        for number in numbers:
            self.crash(number)
            self.members[number].start()
            self.collect(number)

    def lose_log(self, number: int) -> None:
        """A node finds its log damaged when it starts: it knows its term, and that it lacks much.

        A node that lost even its term does not come back: its id was on the same disk.
        """
        self.crash(number)
        self.members[number].disk.lose_log(None)
        self.restart(number)

    def give_up_log(self, number: int) -> None:
        """A node starts as one that gave its log up to be filled up: it knows what it had."""
        self.crash(number)
        disk = self.members[number].disk
        disk.lose_log(disk.durable.head)
        self.restart(number)

    def lose_disk(self, number: int, successor: int) -> None:
        """A node loses its disk; another one, of another id, takes its machine."""
        self.crash(number)
        self.isolate(number)
        self.members[successor] = Member(successor, self.options)

    def compact(self, number: int, snapshot_index: int, *dead: int, segment: int = 1) -> None:
        """A node takes a snapshot: of the entries up to it, the dead ones are gone."""
        disk = self.members[number].disk
        state = b"state up to %d" % snapshot_index
        disk.compact(Llsn(snapshot_index), frozenset(dead), state, segment)
        self[number].compacted(Llsn(snapshot_index))
        self.collect(number)

    def trim(self, number: int, llsn: int) -> None:
        self[number].trim(Llsn(llsn))
        self.collect(number)


def as_request(message: Message) -> ToReplica:
    """A message as a replica takes it; answers to operators never reach one."""
    assert isinstance(message, ToReplica), message
    return message
