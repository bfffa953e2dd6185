"""A group in which one word in ten is changed on its way: nothing is promised then, but no replica
may fail a check of its own, or break its invariants."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import fields, replace

from tests.core.replica.protocol.disk import Disk
from tests.core.replica.protocol.operated import OPERATORS_FROM, OperatedGroup
from tests.core.replica.protocol.witness import Witness
from tidelog.core.order.commands import Report
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import ChangeKind, FollowerHead, Message, Role
from tidelog.core.replica.output import Output
from tidelog.core.replica.replica import Replica

NESTED = (EntryId, CommitContext, GlsnRun, Batch, FollowerHead)
NEAR = (1, -1, 5, -3)


class Onlooker(Witness):
    """Looks only at what each replica thinks of itself."""

    def look(self, node: int, replica: Replica, disk: Disk) -> None:
        replica.validate()

    def hear(self, node: int, disk: Disk, output: Output) -> None:
        pass

    def check_report(self, node: int, report: Report, disk: Disk) -> None:
        pass


class Corruption:
    """Changes one number, or leaves out or repeats one of several, by chance."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def of(self, message: Message) -> Message:
        names = [field.name for field in fields(message)]
        name = self.random.choice([each for each in names if each not in ("target", "stream")])
        return replace(message, **{name: self._changed(getattr(message, name))})

    def _changed(self, value: object) -> object:
        match value:
            case bool():
                return not value
            case int():
                return self.random.choice([0, *(value + step for step in NEAR)])
            case bytes():
                return value[:-1]
            case tuple() if value:
                place = self.random.randrange(len(value))
                before, each, after = value[:place], value[place], value[place + 1 :]
                changed = (*before, self._changed(each), *after)
                if isinstance(each, int):
                    return changed  # A pair stays a pair, as the wire makes sure of.
                return self.random.choice([before + after, (*before, each, each, *after), changed])
            case _ if isinstance(value, NESTED):
                name = self.random.choice([field.name for field in fields(value)])
                return replace(value, **{name: self._changed(getattr(value, name))})
            case _:
                return value


class CorruptedGroup(OperatedGroup):
    """Replicas hear one word in ten wrong."""

    def __init__(self, seed: int) -> None:
        super().__init__(1, 2, 3, spares=[9])
        self.witness = Onlooker()
        self.corruption = Corruption(seed)

    def step(self, message: Message) -> None:
        if message.target < OPERATORS_FROM and self.corruption.random.random() < 0.1:
            message = self.corruption.of(message)
        super().step(message)


@pytest.mark.parametrize("seed", range(12))
def test_a_replica_survives_what_it_hears_wrong(seed: int) -> None:
    group = CorruptedGroup(seed)
    chance = group.corruption.random
    for _ in range(60):
        group.run()
        for leader in [each for each in group.alive if group[each].role is Role.LEADER]:
            group.append(leader, b"x", count=chance.choice([1, 3]))
        if chance.random() < 0.1:
            group.restart(chance.choice(group.alive))
        if chance.random() < 0.1 and group.row.leader in (1, 2):
            group.change(ChangeKind.SWAP, old=3, new=9)
    assert any(group[each].ignored for each in group.alive)
