"""Which epochs are due, and what is told of them."""

from __future__ import annotations

import pytest

from tests.core.session.pair import Pair
from tidelog.core.session.epochs import Epochs, LogSession
from tidelog.core.session.messages import GroupCommit
from tidelog.core.session.output import Durability, Notice
from tidelog.errors import WrongState
from tidelog.invariants import InvariantViolation


def test_epochs_with_log_sessions_that_overlap() -> None:
    """A log session keeps its epoch, and all later ones, from being told."""
    pair = Pair().opened()
    told: list[int] = []

    def tell() -> None:
        pair.run()
        told.append(pair.master.propagated_epoch)

    pair.master.switch(1)
    pair.master.switch(2)
    tell()
    pair.master.begin(0)
    pair.write(0, "a", end=False)
    pair.master.switch(3)
    pair.master.switch(4)
    tell()
    pair.master.begin(1)
    pair.write(1, "b", end=False)
    pair.master.switch(5)
    pair.master.switch(6)
    pair.master.write(0, (), end=True)
    tell()
    pair.master.switch(7)
    pair.master.switch(8)
    tell()
    pair.master.write(1, (), end=True)
    tell()
    pair.master.switch(9)
    tell()
    assert told == [1, 1, 3, 3, 7, 8]
    commits = [message for _, _, message in pair.requests if isinstance(message, GroupCommit)]
    assert commits == [GroupCommit(3), GroupCommit(7)]


def test_epochs_without_entries_are_told_without_a_step() -> None:
    pair = Pair().opened()
    for epoch in (1, 5, 9):
        pair.master.switch(epoch)
        pair.run()
    assert pair.epochs(Durability.STORED) == pair.epochs(Durability.PROPAGATED) == [4, 8]
    assert pair.store.epoch == pair.replicas[0].store.epoch == 0


def test_a_log_session_may_end_after_its_epoch() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.write(0, "a", end=False)
    pair.master.switch(2)
    pair.run()
    assert pair.epochs(Durability.STORED) == []
    pair.write(0, "b")
    pair.run()
    assert pair.store.committed()[0] == [(1, b"a"), (1, b"b")]
    assert pair.epochs(Durability.PROPAGATED) == [1]


def test_an_open_log_session_without_entries_keeps_its_epoch_open() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.master.switch(2)
    pair.run()
    assert pair.epochs(Durability.STORED) == []
    pair.master.write(0, (), end=True)
    pair.run()
    assert pair.epochs(Durability.PROPAGATED) == [1]
    assert pair.store.epoch == 0


def test_one_group_commit_at_a_time_and_the_next_takes_all_that_is_due() -> None:
    pair = Pair().opened()
    for epoch in range(1, 5):
        pair.master.switch(epoch)
        pair.write_session(0, str(epoch))
        while events := [event for event in pair.events() if event[2] == 0]:
            pair.happen(events[0])
    pair.master.switch(5)
    pair.run()
    commits = [message for _, _, message in pair.requests if isinstance(message, GroupCommit)]
    assert commits == [GroupCommit(1), GroupCommit(4)]
    assert pair.epochs(Durability.STORED) == pair.epochs(Durability.PROPAGATED) == [1, 4]


def test_an_aborted_log_session_needs_no_group_commit() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.write(0, "gone", end=False)
    pair.master.abort(0)
    pair.master.switch(2)
    pair.run()
    assert pair.epochs(Durability.PROPAGATED) == [1]
    assert pair.store.epoch == pair.replicas[0].store.epoch == 0


def test_an_empty_epoch_behind_a_group_commit_waits_for_it() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    pair.run_without("answer")
    pair.master.switch(3)
    pair.look()
    assert pair.epochs(Durability.PROPAGATED) == []
    pair.run()
    assert pair.epochs(Durability.STORED) == pair.epochs(Durability.PROPAGATED) == [1, 2]


# -- the parts -----------------------------------------------------------------------------------


def test_log_sessions_of_a_channel_are_finished_in_their_order() -> None:
    epochs = Epochs(0, 1)
    epochs.switch(1)
    first = epochs.begin(0, 1)
    epochs.end(0)
    second = epochs.begin(0, 1)
    with pytest.raises(InvariantViolation, match="E1"):
        epochs.finished(0, second)
    assert isinstance(first, LogSession)


def test_an_epoch_that_is_not_over_is_not_recorded() -> None:
    epochs = Epochs(0, 1)
    epochs.switch(1)
    epochs.begin(0, 1)
    epochs.switch(2)
    with pytest.raises(InvariantViolation, match="E2"):
        epochs.record(1)


def test_an_epoch_is_not_told_as_propagated_before_it_is_stored() -> None:
    epochs = Epochs(0, 1)
    epochs.switch(2)
    with pytest.raises(InvariantViolation, match="E3"):
        epochs.propagate(1)


def test_entries_that_wait_for_a_group_commit_are_not_passed_over() -> None:
    epochs = Epochs(0, 1)
    epochs.switch(1)
    session = epochs.begin(0, 1)
    session.is_empty = False
    epochs.end(0)
    epochs.finished(0, session)
    epochs.switch(2)
    assert epochs.due() == 1
    with pytest.raises(InvariantViolation, match="E2"):
        epochs.pass_empty()
    epochs.record(1)
    epochs.propagate(1)
    assert epochs.take_notices() == [
        Notice(1, Durability.STORED),
        Notice(1, Durability.PROPAGATED),
    ]
    assert epochs.take_notices() == []
    with pytest.raises(WrongState):
        epochs.session(0)
