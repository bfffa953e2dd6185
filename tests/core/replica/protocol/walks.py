"""Random walks over replicas with real operators: all that may happen to them, in any order.

Messages are lost, late, repeated and reordered, long after their time; nodes and operators crash;
disks hold back; logs are lost, trimmed and compacted; people ask for elections and other
ensembles.  The witness looks on at every step.  In the end all heals, and the stream must work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

from tests.core.replica.protocol.harness import entry
from tests.core.replica.protocol.operated import OperatedGroup
from tidelog.core.order.commands import Quorum
from tidelog.core.replica.messages import ChangeKind, Message, Role
from tidelog.core.replica.options import ReplicaOptions
from tidelog.errors import Busy, ProducerConflict
from tidelog.types import NO_NODE, ProducerId

LATE_MAX = 200
"""So many late messages are kept; the oldest are lost."""


class Walk:
    """One walk; its seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        draw = self.draw
        size = draw.choice((1, 2, 3, 3, 3, 4, 5))
        quorum = Quorum.ALL if draw.random() < 0.15 else Quorum.MAJORITY
        options = ReplicaOptions(
            message_bytes_max=draw.choice((1, 100, 200, 4096)),
            inflight_bytes_max=draw.choice((1, 300, 10_000)),
            recent_bytes_max=draw.choice((1, 200, 5_000)),
            uncommitted_bytes_max=draw.choice((200, 10_000)),
            promises_max=draw.choice((2, 1_024)),
        )
        self.group = OperatedGroup(
            *range(1, size + 1),
            spares=(9, 10) if draw.random() < 0.8 else (),
            operators=draw.choice((1, 1, 2)),
            quorum=quorum,
            replica_options=options,
        )
        is_slow = draw.random() < 0.3
        for member in self.group.members.values():
            member.disk.is_slow = is_slow
        self.appends = 0
        self.late: list[Message] = []
        self.loss = draw.choice((0, 0, 0.05, 0.2))
        self.lateness = draw.choice((0, 0.1, 0.3))
        self.repetition = draw.choice((0, 0.1, 0.3))
        changes = draw.choice((0, 0.01, 0.03))
        # One log is lost at most, and nobody is removed then: a majority has all.
        self.losable = 1 if size >= 3 and not changes else 0
        self.actions: list[tuple[float, Callable[[], None]]] = [
            (0.4, self.deliver),
            (0.12, self.tick),
            (0.1, self.append),
            (0.08, self.order),
            (0.08, self.tick_operator),
            (0.06, self.sync),
            (0.02, self.restart_a_dead_node),
            (draw.choice((0, 0.005, 0.02)), self.crash),
            (changes, self.change),
            (draw.choice((0, 0.003, 0.01)), self.elect),
            (draw.choice((0, 0.01, 0.05)), self.shorten),
            (draw.choice((0, 0.01, 0.05)), self.hold_back),
            (draw.choice((0, 0.002)), self.replace_operator),
            (draw.choice((0, 0.01)), self.blind_an_operator),
            (draw.choice((0, 0.01)), self.cut_off),
            (draw.choice((0, 0.002)), self.lose_log),
        ]

    def go(self, steps: int) -> None:
        """Take so many steps, then heal all and see whether the stream works."""
        weights = [weight for weight, _ in self.actions]
        for _, action in self.draw.choices(self.actions, weights, k=steps):
            action()
        self.heal()

    def heal(self) -> None:
        """End all troubles: the stream elects, orders and fills up whoever needs it."""
        group = self.group
        self.late.clear()
        group.wire.clear()
        group.heal()
        group.blind.clear()
        for number in group.members:
            if number not in group.alive:
                group.restart(number)
            group.release(number)
        llsn = self._append_in_the_end()
        for _ in range(400):
            group.run()
            if group.is_steady and all(
                group.image(number).context.llsn_end > llsn and group[number].is_complete
                for number in group.row.ensemble
            ):
                return
        raise AssertionError(f"the stream does not work: {group.row}")

    def _append_in_the_end(self) -> int:
        """Append when a quorum has taken enough of what was appended before."""
        for _ in range(100):
            with suppress(Busy):
                return self.group.append(self.group.run_until_steady(400), b"in the end")
            self.group.run()
        raise AssertionError("the stream is busy for ever")

    # -- what happens ------------------------------------------------------------------------

    def deliver(self) -> None:
        for _ in range(self.draw.randrange(1, 6)):
            if self.late and self.draw.random() < 0.1:
                self._arrive(self.draw.choice(self.late))
            elif self.group.wire:
                self._take_from_wire()

    def _take_from_wire(self) -> None:
        wire, draw = self.group.wire, self.draw
        message = wire.pop(0 if draw.random() < 0.7 else draw.randrange(len(wire)))
        if draw.random() < self.loss:
            return
        is_late = draw.random() < self.lateness
        if is_late or draw.random() < self.repetition:
            self.late = [*self.late[1 - LATE_MAX :], message]
        if not is_late:
            self._arrive(message)

    def _arrive(self, message: Message) -> None:
        if message.target in self.group.operators or message.target in self.group.members:
            self.group.step(message)

    def tick(self) -> None:
        for number in self.group.alive:
            if self.draw.random() < 0.8:
                self.group.tick(number)

    def append(self) -> None:
        group, draw = self.group, self.draw
        leaders = [number for number in group.alive if group[number].role is Role.LEADER]
        if not leaders:
            return
        self.appends += 1
        leader, producer = draw.choice(leaders), draw.choice((0, 0, 7, 8))
        data = b"%d" % self.appends + b" " * draw.choice((0, 50))
        sequence = self.appends if producer else 0
        try:
            group[leader].append(
                data, draw.choice((1, 1, 3)), producer=ProducerId(producer), sequence=sequence
            )
        except (ProducerConflict, Busy):
            pass  # Another leader appended a later one of this producer, or too much waits.
        group.collect(leader)

    def order(self) -> None:
        group, draw = self.group, self.draw
        for number in group.alive:
            if draw.random() < 0.8:
                group.report(number)
        if draw.random() < 0.7:
            group.cut()
        for number in group.alive:
            if draw.random() < 0.7:
                group.tell_cuts(number)

    def crash(self) -> None:
        number = self.draw.choice(list(self.group.members))
        self.group.crash(number)
        if self.draw.random() < 0.8:
            self.group.restart(number)

    def restart_a_dead_node(self) -> None:
        dead = [number for number in self.group.members if number not in self.group.alive]
        if dead:
            self.group.restart(self.draw.choice(dead))

    def cut_off(self) -> None:
        """Cut a node off from the other replicas, or reconnect all."""
        if self.draw.random() < 0.5:
            self.group.isolate(self.draw.choice(list(self.group.members)))
        else:
            self.group.heal()

    def hold_back(self) -> None:
        if self.group.alive:
            number = self.draw.choice(self.group.alive)
            if self.draw.random() < 0.5:
                self.group.hold_back(number)
            else:
                self.group.release(number)

    def sync(self) -> None:
        waiting = [number for number in self.group.alive if self.group.members[number].disk.waiting]
        if waiting:
            self.group.sync(self.draw.choice(waiting), 1)

    # -- operators and those who ask them ----------------------------------------------------

    def tick_operator(self) -> None:
        self.group.tick_operator(self.draw.choice(list(self.group.operators)))

    def replace_operator(self) -> None:
        self.group.start_operator(self.draw.choice(list(self.group.operators)))

    def blind_an_operator(self) -> None:
        """Have an operator act on rows of the past, or see again."""
        number = self.draw.choice(list(self.group.operators))
        if self.draw.random() < 0.4:
            self.group.blind.add(number)
        else:
            self.group.blind.discard(number)

    def elect(self) -> None:
        self.group.elect_by(self.draw.choice(list(self.group.operators)))

    def change(self) -> None:
        group, draw = self.group, self.draw
        kind = draw.choice(list(ChangeKind))
        strangers = [number for number in group.members if number not in group.row.ensemble]
        followers = [number for number in group.row.ensemble if number != group.row.leader]
        if (kind is not ChangeKind.CONTRACT and not strangers) or (
            kind is not ChangeKind.EXPAND and not followers
        ):
            return
        group.change(
            kind,
            old=NO_NODE if kind is ChangeKind.EXPAND else draw.choice(followers),
            new=NO_NODE if kind is ChangeKind.CONTRACT else draw.choice(strangers),
            operator=draw.choice(list(group.operators)),
        )

    # -- logs --------------------------------------------------------------------------------

    def lose_log(self) -> None:
        number = self.draw.choice(list(self.group.members))
        if self.losable and self.group.image(number).hard_state is not None:
            self.losable -= 1
            self.group.lose_log(number)

    def shorten(self) -> None:
        """Trim or compact what is ordered and durable, where a batch begins or ends."""
        if not self.group.alive:
            return
        number = self.draw.choice(self.group.alive)
        disk = self.group.members[number].disk
        if disk.waiting or self.group[number].head == entry(0, 0):
            return
        end, image = disk.durable.context.llsn_end, disk.durable
        batches = [batch for batch in image.batches if batch.llsn_end <= end]
        if not batches:
            return
        batch = self.draw.choice(batches)
        if self.draw.random() < 0.5:
            self.group.trim(number, batch.llsn_begin)
        elif batch.llsn_end > image.snapshot_index:
            dead = [
                llsn
                for each in batches
                if each.llsn_end <= batch.llsn_end and self.draw.random() < 0.5
                for llsn in range(each.llsn_begin, each.llsn_end)
            ]
            segment = self.draw.choice((1, 10, 100))
            self.group.compact(number, batch.llsn_end - 1, *dead, segment=segment)
