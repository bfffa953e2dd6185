"""A change that others overtake, or whose outcome is unknown, is seen to by its next try."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.net.pairs import run
from tidelog.core.metadata.commands import (
    Batch,
    Change,
    RegisterNode,
    Request,
    SetPaused,
    UnregisterNode,
)
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.view import MetadataView
from tidelog.core.metadata.wishes import paused, registered, unregistered
from tidelog.errors import BadOption, DeadlineExceeded, RevisionConflict
from tidelog.runtime.metadata_changes import bring_about
from tidelog.types import NO_VERSION, NodeId, Revision

NODE = NodeId(7)
PAUSED = partial(paused, is_paused=True)


class Repository:
    """One in memory; ``before`` and ``after`` happen around changes that are asked for, in turn."""

    def __init__(self) -> None:
        self.machine = MetadataMachine()
        self.before: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []
        self.asked: list[Change] = []

    async def read(self, *, seconds: float) -> MetadataView:
        machine = self.machine
        return MetadataView(
            number=machine.changes,
            version=NO_VERSION,
            topics=(),
            streams=(),
            nodes=tuple(machine.nodes.values()),
            members=(),
            is_paused=machine.is_paused,
            paused_revision=machine.paused_revision,
            absent_revision=machine.absent_revision,
        )

    async def ask(self, change: Change, *, seconds: float) -> None:
        self.asked.append(change)
        if self.before:
            self.before.pop(0)()
        self.make(change)
        if self.after:
            self.after.pop(0)()

    def make(self, change: Change) -> None:
        error = self.machine.apply(Batch((Request(NodeId(1), 1, change),))).answers[0].error
        if error is not None:
            raise error


def lost() -> None:
    raise DeadlineExceeded("nobody answered")


def test_what_holds_already_is_not_asked_for() -> None:
    repository = Repository()
    run(bring_about(repository, PAUSED, seconds=5))
    run(bring_about(repository, PAUSED, seconds=5))
    run(bring_about(repository, partial(unregistered, node=NODE), seconds=5))
    assert repository.asked == [SetPaused(is_paused=True, revision=Revision(0))]


def test_who_is_overtaken_by_another_wish_asks_again() -> None:
    repository = Repository()
    wish = partial(registered, node=NODE, address="mine")
    repository.before = [
        lambda: repository.make(RegisterNode(NODE, "another")),
        lambda: repository.make(
            RegisterNode(NODE, "a third", repository.machine.nodes[NODE].revision)
        ),
    ]
    run(bring_about(repository, wish, seconds=5))
    assert repository.machine.nodes[NODE].address == "mine"
    assert len(repository.asked) == 3


def test_who_is_overtaken_by_the_same_wish_is_done() -> None:
    repository = Repository()
    repository.make(RegisterNode(NODE, "a"))
    change = UnregisterNode(NODE, repository.machine.nodes[NODE].revision)
    repository.before = [lambda: repository.make(change)]
    run(bring_about(repository, partial(unregistered, node=NODE), seconds=5))
    assert not repository.machine.nodes
    assert repository.asked == [change]


def test_an_unknown_outcome_is_looked_up_and_what_was_not_made_is_asked_for_again() -> None:
    made, not_made = Repository(), Repository()
    made.after, not_made.before = [lost], [lost]
    for repository, asked in ((made, 1), (not_made, 2)):
        run(bring_about(repository, PAUSED, seconds=5))
        assert repository.machine.is_paused
        assert len(repository.asked) == asked


def test_a_try_of_unknown_outcome_that_comes_late_undoes_nothing() -> None:
    repository = Repository()
    repository.before = [lost]
    run(bring_about(repository, PAUSED, seconds=5))
    run(bring_about(repository, partial(paused, is_paused=False), seconds=5))
    with pytest.raises(RevisionConflict):
        repository.make(repository.asked[0])
    assert not repository.machine.is_paused


def test_a_refusal_that_no_other_try_changes_is_told() -> None:
    repository = Repository()
    with pytest.raises(BadOption):
        run(bring_about(repository, partial(registered, node=NodeId(0), address="a"), seconds=5))
    assert len(repository.asked) == 1


def test_who_is_overtaken_for_ever_gives_up_in_time() -> None:
    async def main() -> None:
        repository = Repository()

        def somebody_goes_on() -> None:
            repository.before.append(somebody_goes_on)
            repository.make(SetPaused(is_paused=False, revision=repository.machine.paused_revision))

        somebody_goes_on()
        with pytest.raises(DeadlineExceeded):
            await bring_about(repository, PAUSED, seconds=0.05)
        assert len(repository.asked) > 1
        assert not repository.machine.is_paused

    run(main())
