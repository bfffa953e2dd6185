"""Schedules that go wrong in systems of this kind; each is named after what must hold."""

from __future__ import annotations

from itertools import product

import pytest

from tests.core.session.connections import (
    CONTROL_CONNECTION,
    DONE,
    begin,
    begun,
    code,
    whole,
    with_channels,
)
from tests.core.session.pair import Pair, Replica
from tests.core.session.stores import Store, batch
from tidelog.core.session.messages import (
    Ack,
    ErrorCode,
    GroupCommit,
    LogChannelCreate,
    LogEntryWrite,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import CONTROL, Durability
from tidelog.core.session.replica_session import ReplicaState
from tidelog.errors import ReplicaRefused

EVERY_OPTION = [
    MasterOptions(
        parallel_append=append, parallel_flush=flush, parallel_commit=commit, flush_at=flush_at
    )
    for append, flush, commit, flush_at in product(
        (True, False), (True, False), (True, False), FlushAt
    )
]


def in_short(options: MasterOptions) -> str:
    pairs = (options.parallel_append, options.parallel_flush, options.parallel_commit)
    return " ".join(["parallel" if each else "serial" for each in pairs] + [options.flush_at.value])


def commits(pair: Pair) -> list[int]:
    return [message.epoch for _, _, message in pair.requests if isinstance(message, GroupCommit)]


def test_s1_entries_that_were_flushed_but_not_committed_do_not_show() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    assert pair.replicas[0].store.flushed[0] == 1
    assert pair.replicas[0].store.committed() == [[], []]
    assert pair.store.committed() == [[], []]


@pytest.mark.parametrize("flush_at", FlushAt)
def test_s2_a_group_commit_does_not_overtake_the_last_flush(flush_at: FlushAt) -> None:
    pair = Pair(options=MasterOptions(flush_at=flush_at)).opened()
    pair.master.switch(1)
    pair.write_session(1, "quick")
    pair.run()
    pair.write_session(0, "slow")
    pair.master.switch(2)
    pair.run_without("work")
    assert pair.replicas[0].lanes() == [0]
    assert pair.master.take(CONTROL) == []
    assert commits(pair) == []
    pair.run()
    assert commits(pair) == [1]
    assert pair.replicas[0].store.committed() == [[(1, b"slow")], [(1, b"quick")]]


@pytest.mark.parametrize("flush_at", FlushAt)
def test_s2_a_group_commit_does_not_overtake_the_local_append(flush_at: FlushAt) -> None:
    pair = Pair(options=MasterOptions(flush_at=flush_at)).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.master.switch(2)
    assert pair.events() == [("do", 0, 0)]
    pair.happen(("do", 0, 0))
    for kind in ("deliver", "work", "answer"):
        pair.happen((kind, 0, 0))
    assert pair.store.channels[0] == []
    assert pair.master.take(CONTROL) == []
    pair.run()
    assert pair.store.committed()[0] == [(1, b"a")]


def test_s3_propagated_waits_for_stored_when_the_replica_answers_first() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    assert pair.events() == [("do", 0, CONTROL)]
    pair.happen(("do", 0, CONTROL))
    for kind in ("deliver", "work", "answer"):
        pair.happen((kind, 0, CONTROL))
    assert pair.replicas[0].store.epoch == 1
    assert pair.notices == []
    pair.happen(("do", 0, CONTROL))
    assert [notice.durability for notice in pair.notices] == [
        Durability.STORED,
        Durability.PROPAGATED,
    ]


@pytest.mark.parametrize("ahead", ["master", "replica"])
def test_s4_sides_that_stopped_inside_a_group_commit_do_not_begin_a_session(ahead: str) -> None:
    pair = Pair(options=MasterOptions(parallel_commit=ahead == "replica")).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    assert pair.events()
    pair.happen(("do", 0, CONTROL))
    if ahead == "replica":
        pair.happen(("deliver", 0, CONTROL))
        pair.happen(("work", 0, CONTROL))
    epochs = {"master": pair.store.epoch, "replica": pair.replicas[0].store.epoch}
    assert epochs == {"master": int(ahead == "master"), "replica": int(ahead == "replica")}
    again = Pair(master=pair.store, stores=[pair.replicas[0].store])
    again.master.open()
    again.run()
    assert isinstance(again.master.failure, ReplicaRefused)
    assert again.master.failure.code == ErrorCode.WRONG_POSITION
    assert not again.master.is_open


def test_s4_sides_that_were_masters_apart_do_not_begin_a_session() -> None:
    """Each made the same epoch alone; only their stamps tell."""
    mine = Store(configuration_id="c1", epoch=5, stamp="a")
    other = Store(configuration_id="c1", epoch=5, stamp="b")
    pair = Pair(master=mine, stores=[other])
    pair.master.open()
    pair.run()
    assert isinstance(pair.master.failure, ReplicaRefused)
    assert pair.master.failure.code == ErrorCode.WRONG_POSITION
    other.stamp = "a"
    Pair(master=mine, stores=[other]).opened()


def test_s5_a_session_may_follow_an_ended_one() -> None:
    replica, _ = with_channels()
    replica.connect(9)
    assert code(replica.ask(9, begin())) is ErrorCode.SESSION_OPEN
    assert replica.ask(CONTROL_CONNECTION, SessionEnd()) == Ack()
    assert isinstance(replica.ask(CONTROL_CONNECTION, begin()), SessionBegun)


def test_s5_a_session_may_follow_a_dead_one() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(1), (batch(1),)) == DONE
    replica.core.lost(CONTROL_CONNECTION)
    replica.carry_out()
    assert replica.hung == [1, 2]
    begun(replica, 9)
    assert replica.store.channels == [[], []]


def test_s6_the_secret_of_an_earlier_session_is_refused() -> None:
    replica, old = with_channels()
    replica.ask(CONTROL_CONNECTION, SessionEnd())
    new = begun(replica, 8)
    assert new != old
    replica.connect(9)
    assert code(replica.ask(9, LogChannelCreate(old, 0))) is ErrorCode.WRONG_SECRET
    replica.connect(10)
    assert replica.ask(10, LogChannelCreate(new, 0)) == Ack()


def test_s7_two_channels_at_different_epochs() -> None:
    replica, _ = with_channels()
    assert replica.ask(1, whole(3), (batch(1, label="three"),)) == DONE
    assert replica.ask(2, LogEntryWrite(4, session_begin=True), (batch(1, label="four"),)) == DONE
    assert replica.ask(CONTROL_CONNECTION, GroupCommit(3)) == DONE
    assert replica.store.committed() == [[(3, b"three")], []]
    assert code(replica.ask(1, whole(3), (batch(2),))) is ErrorCode.EPOCH_COMMITTED
    assert replica.ask(2, LogEntryWrite(4, session_end=True, flush=True)) == DONE
    assert replica.ask(CONTROL_CONNECTION, GroupCommit(4)) == DONE
    assert replica.store.committed() == [[(3, b"three")], [(4, b"four")]]


def tell_a_story(pair: Pair) -> None:
    for epoch in (1, 2, 5):
        pair.master.switch(epoch)
        pair.write_session(0, f"a{epoch}")
        pair.master.begin(1)
        pair.write(1, f"b{epoch}", end=False)
        pair.run()
        if epoch == 2:
            pair.master.abort(1)
        else:
            pair.write(1, f"c{epoch}")
    pair.master.switch(6)
    pair.run()
    pair.master.close()
    pair.run()


@pytest.mark.parametrize("options", EVERY_OPTION, ids=in_short)
def test_s10_serial_and_parallel_steps_leave_the_same_state(options: MasterOptions) -> None:
    pair, plain = Pair(options=options, replicas=2), Pair(replicas=2)
    for each in (pair, plain):
        tell_a_story(each.opened())
    assert pair.store.committed() == plain.store.committed()
    for mine, other in zip(pair.replicas, plain.replicas, strict=True):
        assert mine.store.committed() == other.store.committed() == pair.store.committed()
        assert mine.store.epoch == pair.store.epoch == 5
    assert pair.epochs(Durability.PROPAGATED) == plain.epochs(Durability.PROPAGATED) == [1, 4, 5]


# -- steps of a session that is gone -------------------------------------------------------------


def dead_while(request: LogEntryWrite | GroupCommit) -> Replica:
    """A replica whose master dies while the store is at work, and comes back at once."""
    replica, _ = with_channels(Store(configuration_id="c1"))
    lane = CONTROL_CONNECTION if isinstance(request, GroupCommit) else 1
    replica.receive(lane, request, (batch(1),))
    replica.core.lost(CONTROL_CONNECTION)
    replica.carry_out()
    replica.connect(9)
    replica.receive(9, begin())
    assert not replica.answers[9]
    return replica


def test_a_write_of_a_dead_session_does_not_reach_the_next_one() -> None:
    """The store drops what was not committed only when it writes nothing of it any more."""
    replica = dead_while(whole(1))
    assert replica.lanes() == [0]
    replica.work_on(0)
    assert len(replica.store.channels[0]) == 1
    replica.work_all()
    assert isinstance(replica.answer(9), SessionBegun)
    assert replica.store.channels == [[], []]


def test_a_group_commit_of_a_dead_session_counts_for_the_next_one() -> None:
    replica = dead_while(GroupCommit(3))
    replica.work_all()
    assert replica.core.epoch == 3
    assert code(replica.answer(9)) is ErrorCode.WRONG_POSITION
    assert replica.hung[-1] == 9
    begun(replica, 10, epoch=3)


def test_a_failed_step_of_a_dead_session_lets_the_next_one_begin() -> None:
    replica = dead_while(whole(1))
    replica.fail(0)
    replica.work_all()
    assert isinstance(replica.answer(9), SessionBegun)
    assert replica.core.state is ReplicaState.OPEN


def test_a_session_that_waits_for_the_store_is_forgotten_with_its_connection() -> None:
    replica = dead_while(whole(1))
    replica.connect(10)
    replica.receive(10, begin())
    assert code(replica.answer(10)) is ErrorCode.SESSION_OPEN
    replica.core.lost(9)
    replica.work_all()
    assert not replica.answers[9]
    begun(replica, 11)


def test_a_master_that_dies_while_the_store_is_prepared_leaves_its_configuration() -> None:
    replica = Replica()
    replica.connect(0)
    replica.receive(0, begin(configuration_id="c1"))
    replica.core.lost(0)
    replica.work_all()
    assert not replica.answers[0]
    assert replica.core.configuration_id == "c1"
    assert replica.core.state is ReplicaState.LISTENING
    replica.connect(1)
    assert code(replica.ask(1, begin(configuration_id="c2"))) is ErrorCode.WRONG_CONFIGURATION


def test_a_store_that_cannot_be_prepared_for_a_dead_master_is_asked_again() -> None:
    replica = Replica()
    replica.connect(0)
    replica.receive(0, begin())
    replica.core.lost(0)
    replica.fail(CONTROL)
    assert replica.hung == []
    begun(replica, 1)
