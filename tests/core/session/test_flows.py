"""The flows of a session: how it begins, how entries and epochs travel, how it ends."""

from __future__ import annotations

import pytest

from tests.core.session.pair import Pair
from tidelog.core.session.epochs import BOUNDARY_END
from tidelog.core.session.messages import (
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogChannelFlush,
    LogEntryWrite,
    SessionBegin,
    SessionEnd,
)
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    ChannelBatch,
    Durability,
    MasterOutput,
    Send,
    SendBlob,
)
from tidelog.core.session.replica_session import ReplicaState
from tidelog.errors import BadOption, ReplicationFailed, WrongState
from tidelog.invariants import InvariantViolation


def name(output: MasterOutput) -> str:
    """An output in one word: of requests their name, with their flags."""
    if not isinstance(output, Send):
        return type(output).__name__
    message = output.message
    if not isinstance(message, LogEntryWrite):
        return type(message).__name__
    flags = {"begin": message.session_begin, "end": message.session_end, "flush": message.flush}
    return "+".join(["write", *(flag for flag, is_set in flags.items() if is_set)])


def steps_of(pair: Pair, lane: int) -> list[list[str]]:
    """What a lane hands out, each time that it was told of everything before."""
    stages: list[list[str]] = []
    while not pair.master.is_idle(lane):
        pair.fetch(lane)
        outputs = list(pair.todo[lane])
        pair.todo[lane].clear()
        assert outputs, "a lane that is not idle has something to do"
        stages.append([name(output) for output in outputs])
        for output in outputs:
            pair.carry_out(output)
        pair.run_without("do")
    return stages


def test_a_session_from_begin_to_end() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.write_session(1, "b")
    pair.run()
    pair.master.switch(2)
    pair.run()
    assert pair.epochs(Durability.STORED) == [1]
    assert pair.epochs(Durability.PROPAGATED) == [1]
    expected = [[(1, b"a")], [(1, b"b")]]
    assert pair.replicas[0].store.committed() == pair.store.committed() == expected
    pair.master.close()
    pair.run()
    assert pair.master.is_ended
    assert pair.replicas[0].core.state is ReplicaState.LISTENING


# -- opening -------------------------------------------------------------------------------------


def test_log_channels_are_made_when_the_session_has_begun() -> None:
    pair = Pair(channels=2)
    pair.store.epoch = 0
    pair.master.open()
    assert pair.master.take(0) == pair.master.take(1) == []
    assert not pair.master.is_open
    pair.run()
    requests = [message for _, _, message in pair.requests]
    assert isinstance(requests[0], SessionBegin)
    assert requests[0].log_channel_count == 2
    assert requests[0].configuration_id == "c1"
    assert requests[1:] == [LogChannelCreate("secret 1", 0), LogChannelCreate("secret 1", 1)]
    assert pair.master.is_open


def test_a_master_is_open_when_every_replica_has_all_its_lanes() -> None:
    pair = Pair(channels=1, replicas=2)
    pair.master.open()
    pair.run(lambda events: next((e for e in events if e[1] == 0), events[0]))
    assert pair.master.is_open
    assert [r.core.state for r in pair.replicas] == [ReplicaState.OPEN, ReplicaState.OPEN]


def test_without_replicas_a_master_is_open_at_once_and_everything_is_propagated() -> None:
    pair = Pair(replicas=0).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    pair.run()
    assert pair.epochs(Durability.STORED) == pair.epochs(Durability.PROPAGATED) == [1]
    pair.master.close()
    assert pair.master.is_ended


def test_a_master_is_opened_once() -> None:
    pair = Pair().opened()
    with pytest.raises(WrongState):
        pair.master.open()


def test_a_replica_hears_the_boundary_of_its_master_when_the_session_opens() -> None:
    pair = Pair()
    pair.store.boundary = 77
    again = Pair(master=pair.store, stores=[pair.replicas[0].store]).opened()
    assert again.replicas[0].store.boundary == 77


# -- what may be called when ---------------------------------------------------------------------


def test_nothing_is_taken_before_the_session_is_open() -> None:
    pair = Pair()
    pair.master.open()
    for call in (
        lambda: pair.master.switch(1),
        lambda: pair.master.begin(0),
        lambda: pair.master.write(0, ()),
        lambda: pair.master.abort(0),
        lambda: pair.master.set_boundary(1),
        pair.master.close,
    ):
        with pytest.raises(WrongState):
            call()


def test_a_log_session_needs_an_epoch() -> None:
    pair = Pair().opened()
    with pytest.raises(WrongState):
        pair.master.begin(0)
    pair.master.switch(3)
    assert pair.master.begin(0) == 3
    with pytest.raises(WrongState):
        pair.master.begin(0)
    assert pair.master.begin(1) == 3


def test_entries_need_a_log_session() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    with pytest.raises(WrongState):
        pair.write(0, "a")
    with pytest.raises(WrongState):
        pair.master.abort(0)


@pytest.mark.parametrize("channel", [-1, 2])
def test_there_are_no_other_log_channels(channel: int) -> None:
    pair = Pair(channels=2).opened()
    pair.master.switch(1)
    with pytest.raises(BadOption):
        pair.master.begin(channel)


@pytest.mark.parametrize("epoch", [-1, 0, 5, 6, 1 << 63])
def test_epochs_grow(epoch: int) -> None:
    pair = Pair().opened()
    pair.master.switch(6)
    with pytest.raises(BadOption):
        pair.master.switch(epoch)
    assert pair.master.epoch == 6


def test_the_first_epoch_lies_beyond_the_last_group_commit() -> None:
    pair = Pair()
    pair.store.epoch = pair.replicas[0].store.epoch = 5
    again = Pair(master=pair.store, stores=[pair.replicas[0].store]).opened()
    assert again.master.stored_epoch == again.master.propagated_epoch == 5
    with pytest.raises(BadOption):
        again.master.switch(5)
    again.master.switch(6)


def test_batches_of_a_channel_are_dense() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    with pytest.raises(InvariantViolation, match="M1"):
        pair.master.write(0, (ChannelBatch(2, 3, b""),))


# -- orders of steps -----------------------------------------------------------------------------

ALL_PARALLEL = ["write+begin+end+flush", "AppendLocally", "FlushLocally"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (MasterOptions(), [ALL_PARALLEL]),
        (
            MasterOptions(parallel_append=False),
            [["AppendLocally", "write+begin+end+flush", "FlushLocally"]],
        ),
        (
            MasterOptions(parallel_flush=False),
            [["write+begin+end", "AppendLocally"], ["FlushLocally"], ["LogChannelFlush"]],
        ),
        (
            MasterOptions(parallel_append=False, parallel_flush=False),
            [["AppendLocally", "write+begin+end"], ["FlushLocally"], ["LogChannelFlush"]],
        ),
        (
            MasterOptions(flush_at=FlushAt.GROUP_COMMIT),
            [["write+begin+end", "AppendLocally"]],
        ),
        (
            MasterOptions(flush_at=FlushAt.GROUP_COMMIT, parallel_append=False),
            [["AppendLocally", "write+begin+end"]],
        ),
    ],
)
def test_a_log_session_takes_its_steps_as_the_options_say(
    options: MasterOptions, expected: list[list[str]]
) -> None:
    pair = Pair(options=options).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    assert steps_of(pair, 0) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (MasterOptions(), [["GroupCommit", "RecordLocally"]]),
        (MasterOptions(parallel_commit=False), [["RecordLocally"], ["GroupCommit"]]),
    ],
)
def test_a_group_commit_takes_its_steps_as_the_options_say(
    options: MasterOptions, expected: list[list[str]]
) -> None:
    pair = Pair(options=options).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    assert steps_of(pair, CONTROL) == expected


def test_with_a_serial_group_commit_stored_is_told_before_the_replica_is_asked() -> None:
    pair = Pair(options=MasterOptions(parallel_commit=False)).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    pair.run_without("deliver")
    assert pair.epochs(Durability.STORED) == [1]
    assert pair.epochs(Durability.PROPAGATED) == []
    assert pair.replicas[0].store.epoch == 0
    pair.run()
    assert pair.epochs(Durability.PROPAGATED) == [1]


def test_a_log_session_begins_with_its_first_entries_and_ends_with_its_last() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    assert pair.master.is_idle(0)
    pair.write(0, "a", end=False)
    pair.write(0, "b", end=False)
    pair.master.write(0, ())
    pair.master.write(0, (), end=True)
    assert steps_of(pair, 0) == [
        [
            "write+begin",
            "AppendLocally",
            "write",
            "AppendLocally",
            "write+end+flush",
            "FlushLocally",
        ]
    ]


def test_a_log_session_without_entries_sends_nothing() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.master.write(0, (), end=True)
    pair.master.begin(1)
    pair.master.abort(1)
    assert pair.master.is_idle(0)
    assert pair.master.is_idle(1)
    assert pair.master.begin(0) == 1


def test_every_replica_is_sent_everything() -> None:
    pair = Pair(channels=1, replicas=3).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    assert steps_of(pair, 0) == [[ALL_PARALLEL[0]] * 3 + ALL_PARALLEL[1:]]
    pair.master.switch(2)
    assert steps_of(pair, CONTROL) == [["GroupCommit"] * 3 + ["RecordLocally"]]
    pair.look()
    assert pair.epochs(Durability.PROPAGATED) == [1]
    assert [r.store.committed() for r in pair.replicas] == [pair.store.committed()] * 3


def test_the_replicas_that_are_awaited_are_named_in_the_order_of_the_requests() -> None:
    pair = Pair(channels=1, replicas=2).opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.write(0, "a", end=False)
    pair.write(0, "b", end=False)
    pair.master.take(0)
    assert pair.master.waits(0) == (0, 1, 0, 1)
    assert pair.master.waits(CONTROL) == ()


# -- aborted log sessions ------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [False, True], ids=["queued", "sent"])
def test_entries_of_an_aborted_log_session_go_here_and_there(sent: bool) -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "kept")
    pair.run()
    pair.master.begin(0)
    pair.write(0, "gone", end=False, count=3)
    if sent:
        pair.run()
    pair.master.abort(0)
    pair.run()
    pair.write_session(0, "next")
    pair.run()
    pair.master.switch(2)
    pair.run()
    expected = [[(1, b"kept"), (1, b"next")], []]
    assert pair.store.committed() == pair.replicas[0].store.committed() == expected


def test_a_group_commit_waits_until_an_aborted_log_session_is_cut() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(1, "kept")
    pair.master.begin(0)
    pair.write(0, "gone", end=False)
    pair.run()
    pair.master.abort(0)
    pair.master.switch(2)
    assert pair.master.take(CONTROL) == []
    pair.run()
    expected = [[], [(1, b"kept")]]
    assert pair.store.committed() == pair.replicas[0].store.committed() == expected


# -- BLOBs ---------------------------------------------------------------------------------------


def test_a_blob_is_sent_before_the_entries_that_refer_to_it() -> None:
    pair = Pair(channels=1, replicas=2).opened()
    pair.master.switch(1)
    pair.master.begin(0)
    pair.write(0, "before", end=False)
    pair.master.write(0, (ChannelBatch(2, 3, b"", (7, 8, 7)),), end=False)
    assert steps_of(pair, 0) == [
        ["write+begin", "write+begin", "AppendLocally"],
        ["SendBlob"] * 4 + ["write", "write", "AppendLocally"],
    ]
    assert pair.replicas[1].store.blobs == {7, 8}
    pair.master.write(0, (ChannelBatch(3, 4, b"", (8, 9)),), end=True)
    pair.fetch(0)
    blobs = [output.blob for output in pair.todo[0] if isinstance(output, SendBlob)]
    assert blobs == [9, 9]


# -- boundary and end ----------------------------------------------------------------------------


def test_the_boundary_is_set_here_and_then_there() -> None:
    pair = Pair().opened()
    pair.master.set_boundary(5)
    assert steps_of(pair, CONTROL) == [["SetBoundaryLocally"], ["GcBoundarySwitch"]]
    assert pair.store.boundary == pair.replicas[0].store.boundary == 5
    pair.master.set_boundary(5)
    assert pair.master.is_idle(CONTROL)


@pytest.mark.parametrize("version", [4, -1, BOUNDARY_END])
def test_the_boundary_of_a_master_does_not_go_back(version: int) -> None:
    pair = Pair().opened()
    pair.master.set_boundary(5)
    with pytest.raises(BadOption):
        pair.master.set_boundary(version)


def test_of_boundaries_that_wait_only_the_last_one_is_set() -> None:
    pair = Pair().opened()
    for version in range(1, 10):
        pair.master.set_boundary(version)
    pair.run()
    sent = [m for _, _, m in pair.requests if isinstance(m, GcBoundarySwitch)]
    assert len(sent) == 2
    assert pair.replicas[0].store.boundary == 9


def test_boundaries_and_group_commits_take_turns() -> None:
    """A boundary that is raised again and again does not keep epochs from their group commit."""
    pair = Pair().opened()
    version = 0
    for epoch in range(1, 10):
        pair.master.switch(epoch)
        pair.write_session(0, "a")
        for _ in range(20):
            version += 1
            pair.master.set_boundary(version)
            events = pair.events()
            pair.happen(events[version % len(events)])
    kinds = [type(m) for _, lane, m in pair.requests if lane == CONTROL][1:]
    assert kinds.count(GroupCommit) >= 3
    assert kinds.count(GcBoundarySwitch) >= 3


def test_a_master_learns_a_later_boundary_of_its_replica_before_it_writes() -> None:
    """The replica was the master once, and takes no writes below its own boundary."""
    stores = [replica.store for replica in Pair(replicas=2).replicas]
    stores[0].boundary = 9
    again = Pair(replicas=2, stores=stores).opened()
    assert again.master.is_open
    assert again.master.boundary == again.store.boundary == 9
    assert [replica.store.boundary for replica in again.replicas] == [9, 9]
    with pytest.raises(BadOption):
        again.master.set_boundary(8)


def test_a_master_takes_no_boundary_that_leaves_no_room_for_its_stamps() -> None:
    stores = [replica.store for replica in Pair(replicas=1).replicas]
    stores[0].boundary = BOUNDARY_END
    again = Pair(replicas=1, stores=stores)
    again.master.open()
    again.run()
    assert isinstance(again.master.failure, ReplicationFailed)
    assert again.store.boundary == 0


def test_closing_waits_for_what_is_due_and_for_answers_on_log_channels() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.switch(2)
    pair.write_session(1, "dropped")
    pair.fetch(1)
    pair.master.close()
    while events := [event for event in pair.events() if event != ("answer", 0, 1)]:
        pair.happen(events[0])
    assert pair.master.propagated_epoch == 1
    assert not any(isinstance(message, SessionEnd) for _, _, message in pair.requests)
    pair.run()
    ends = [m for _, _, m in pair.requests if isinstance(m, GroupCommit | SessionEnd)]
    assert ends == [GroupCommit(1), SessionEnd()]
    assert pair.master.is_ended
    assert pair.master.failure is None
    with pytest.raises(WrongState):
        pair.master.switch(3)


def test_what_was_not_committed_is_dropped_when_the_next_session_begins() -> None:
    pair = Pair().opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    pair.master.close()
    pair.run()
    replica = pair.replicas[0].store
    assert len(replica.channels[0]) == 1
    pair.store.drop_unrecorded()
    again = Pair(master=pair.store, stores=[replica]).opened()
    assert replica.channels == [[], []]
    again.master.switch(1)
    again.write_session(0, "b")
    again.run()
    again.master.switch(2)
    again.run()
    assert replica.committed() == again.store.committed() == [[(1, b"b")], []]


def test_a_flush_of_its_own_reaches_the_replica() -> None:
    pair = Pair(options=MasterOptions(parallel_flush=False)).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.run()
    assert (0, 0, LogChannelFlush()) in pair.requests
    assert pair.replicas[0].store.flushed[0] == pair.store.flushed[0] == 1
