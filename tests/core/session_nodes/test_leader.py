"""The leader's side of a session between nodes: what it asks, in which order, what it forgets."""

from __future__ import annotations

import pytest

from tests.core.session_nodes.hosts import CLUSTER
from tests.core.session_nodes.sides import LANES, LEADER, ME, LeaderSide
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_messages import (
    CARRY_OVERHEAD_BYTES,
    NODE_PROTOCOL,
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeAnswer,
    NodeErrorCode,
    NodeGroupCommitted,
    NodeSessionBegin,
    NodeSessionBegun,
    Said,
)
from tidelog.core.session.node_output import CONTROL, NodeOptions
from tidelog.errors import BadOption
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX, MIB

# -- how a session begins ------------------------------------------------------------------------


def test_a_session_opens_with_its_last_lane() -> None:
    leader = LeaderSide(opened=False)
    assert list(leader.connections) == [CONTROL]
    leader.connect(CONTROL)
    begin = NodeSessionBegin(NODE_PROTOCOL, CLUSTER, LEADER, ME, LANES)
    assert leader.asked[CONTROL] == [begin]
    leader.answer(CONTROL, NodeSessionBegun("a secret"))
    assert list(leader.connections) == [CONTROL, 0, 1]
    leader.connect(1)
    leader.connect(0)
    assert leader.asked[1] == [LaneOpen(LEADER, "a secret", 1)]
    leader.answer(1, Ack())
    assert leader.core.counters.sessions == 0
    leader.answer(0, Ack())
    assert leader.core.counters.sessions == 1
    assert leader.core.is_open


def test_nothing_is_taken_before_the_session_is_open() -> None:
    leader = LeaderSide(opened=False)
    assert not leader.carry(2, in_epoch=True)
    leader.commit()
    leader.open()
    leader.commit()
    assert leader.commits() == []
    assert leader.core.counters.not_taken == 1


# -- group commits -------------------------------------------------------------------------------


def test_a_stream_with_entries_costs_one_request() -> None:
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.commit()
    assert leader.asked == {CONTROL: [], 0: [Carry(2, 1, b"m", 1)], 1: []}


def test_a_turn_has_one_group_commit_however_many_streams_it_carries() -> None:
    leader = LeaderSide()
    for channel in range(100):
        assert leader.carry(channel, in_epoch=True)
    leader.commit()
    assert leader.commits() == [(99, 1, 100)]
    assert leader.asked[CONTROL] == []
    assert leader.core.counters.carries == 100
    assert leader.core.counters.group_commits == 1
    assert leader.channels(0) == list(range(0, 100, 2))
    assert leader.channels(1) == list(range(1, 100, 2))


def test_a_turn_without_entries_has_no_group_commit() -> None:
    leader = LeaderSide()
    leader.commit()
    assert leader.carry(2)
    leader.commit()
    assert leader.channels(0) == [2]
    assert leader.commits() == []


def test_a_message_is_counted_by_one_group_commit() -> None:
    leader = LeaderSide()
    for count in (2, 1, 3):
        for channel in range(count):
            leader.carry(channel, in_epoch=True)
        leader.commit()
    assert leader.commits() == [(1, 1, 2), (0, 2, 1), (2, 3, 3)]


def test_nothing_of_an_epoch_leaves_before_the_turn_ends() -> None:
    """Or its last message could be gone when it is to ask for the group commit."""
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.carry(4)
    leader.carry(3)
    assert leader.channels(0) == []
    assert leader.channels(1) == [3]
    leader.commit()
    assert leader.asked[0] == [Carry(2, 1, b"m", 1), Carry(4, 0, b"m")]


def test_the_group_commit_is_asked_for_with_the_last_entries_not_the_last_message() -> None:
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.carry(3, in_epoch=True)
    leader.carry(5)
    leader.commit()
    assert leader.commits() == [(3, 1, 2)]


def test_turns_whose_group_commits_have_to_wait_become_one_epoch() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, commits_max=1))
    for channel in (2, 3, 4):
        leader.carry(channel, in_epoch=True)
        leader.commit()
    assert leader.channels(0) == [2]
    leader.committed(0, 1)
    assert leader.channels(0) == [2]  # The turn goes on.
    leader.carry(5, in_epoch=True)
    leader.commit()
    assert leader.channels(0) == [2, 3, 4, 5]
    assert leader.commits() == [(2, 1, 1), (5, 2, 3)]


def test_a_large_epoch_is_closed_before_its_turn_ends() -> None:
    """Or a follower that receives for long would have no reason to answer meanwhile."""
    leader = LeaderSide(NodeOptions(lanes=1, epoch_bytes_max=100, commits_max=2))
    for channel, size in ((1, 60), (2, 40), (3, 1), (4, 500), (5, 60)):
        assert leader.carry(channel, in_epoch=True, size=size)
    assert leader.commits() == [(2, 1, 2), (3, 2, 1)]
    assert leader.channels(0) == [1, 2, 3]
    leader.commit()
    assert leader.channels(0) == [1, 2, 3]  # Two group commits are on their way.
    leader.committed(0, 1)
    assert leader.channels(0) == [1, 2, 3, 4]
    leader.committed(0, 2)
    leader.commit()
    assert leader.commits() == [(2, 1, 2), (3, 2, 1), (4, 3, 1), (5, 4, 1)]


def test_group_commits_of_two_lanes_may_be_answered_in_any_order() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, underway_max=3, commits_max=2))
    leader.carry(2, in_epoch=True)
    leader.commit()
    leader.carry(2, in_epoch=True)
    leader.carry(3, in_epoch=True)
    leader.commit()
    assert leader.commits() == [(2, 1, 1), (3, 2, 2)]
    leader.committed(1, 2, Said(3, b"durable"))
    assert [one.message for one in leader.heard] == [b"durable"]
    assert leader.carry(2, in_epoch=True)
    assert leader.carry(3, in_epoch=True)
    assert not leader.carry(5, in_epoch=True)  # The first epoch takes room still.
    leader.commit()
    assert leader.commits()[-1] == (3, 3, 2)
    leader.committed(0, 1, Said(2, b"this, too"))
    leader.committed(1, 3)
    assert [one.message for one in leader.heard] == [b"durable", b"this, too"]
    assert leader.core.is_open


def test_what_the_follower_says_is_heard() -> None:
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.commit()
    leader.committed(0, 1, Said(2, b"durable"), Said(9, b"sync me"))
    assert [(one.source, one.channel, one.message) for one in leader.heard] == [
        (ME, 2, b"durable"),
        (ME, 9, b"sync me"),
    ]


# -- lanes ---------------------------------------------------------------------------------------


def test_messages_wait_for_their_window_and_keep_their_order() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, window=2))
    for channel in (5, 6, 7, 8):
        assert leader.carry(channel)
    assert leader.channels(0) == [5, 6]
    leader.acknowledge(0, 1)
    assert leader.channels(0) == [5, 6, 7]
    leader.acknowledge(0, 2)
    assert leader.channels(0) == [5, 6, 7, 8]


def test_messages_without_answers_need_no_window() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, window=1, commits_max=2))
    for channel in (5, 6, 7):
        assert leader.carry(channel, in_epoch=True)
    leader.commit()
    assert leader.channels(0) == [5, 6, 7]
    assert leader.carry(8, in_epoch=True)
    assert leader.carry(9, in_epoch=True)
    leader.commit()
    assert leader.channels(0) == [5, 6, 7, 8]  # The next one asks for a group commit.
    leader.committed(0, 1)
    assert leader.channels(0) == [5, 6, 7, 8, 9]


def test_one_full_lane_does_not_hold_up_another() -> None:
    leader = LeaderSide(NodeOptions(lanes=2, window=1))
    for channel in (2, 4, 3):
        leader.carry(channel)
    assert leader.channels(0) == [2]
    assert leader.channels(1) == [3]


def test_a_channel_is_disposed_behind_its_messages() -> None:
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.core.dispose(2)
    leader.core.dispose(4)  # Was never used.
    leader.commit()
    assert leader.asked[0] == [Carry(2, 1, b"m", 1), ChannelDispose(2)]
    leader.committed(0, 1)
    leader.acknowledge(0, 1)
    assert leader.core.is_open


# -- bounds --------------------------------------------------------------------------------------


def test_messages_of_epochs_take_room_until_their_group_commit() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, underway_bytes_max=100))
    assert leader.carry(2, in_epoch=True, size=60)
    assert leader.carry(2, in_epoch=True, size=40)
    leader.commit()
    assert not leader.carry(2, in_epoch=True, size=60)
    leader.commit()
    leader.committed(0, 1)
    assert leader.carry(2, in_epoch=True, size=100)


def test_other_messages_take_room_until_they_are_delivered() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, underway_max=1))
    assert leader.carry(2)
    assert not leader.carry(2)
    leader.commit()
    leader.acknowledge(0, 1)
    assert leader.carry(2)


def test_a_message_above_the_bound_goes_alone() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, underway_bytes_max=100))
    assert leader.carry(2, in_epoch=True, size=1000)
    assert not leader.carry(4, in_epoch=True)
    leader.commit()
    leader.committed(0, 1)
    assert leader.carry(4, in_epoch=True)


def test_a_message_that_no_frame_can_hold_is_not_taken() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, underway_bytes_max=1))
    largest = MESSAGE_BYTES_MAX - CARRY_OVERHEAD_BYTES
    assert not leader.carry(2, size=largest + 1)
    part, parts = bytes(MIB), ATTACHMENT_BYTES_MAX // MIB
    assert not leader.core.carry(2, b"m", (part,) * parts + (b"x",))
    assert leader.core.carry(2, bytes(largest), (part,) * parts)


def test_the_number_of_channels_is_bounded() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, channels_max=2))
    assert leader.carry(1)
    assert leader.carry(2)
    assert not leader.carry(3)
    assert leader.carry(2)
    leader.core.dispose(2)
    assert leader.carry(3)


def test_a_channel_that_was_turned_away_finds_room_kept() -> None:
    """Busy channels come first each time, and would fill the room again."""
    leader = LeaderSide(NodeOptions(lanes=1, underway_max=2))
    served = []
    for epoch in (1, 2, 3):
        served += [channel for channel in (1, 2, 3) if leader.carry(channel, in_epoch=True)]
        leader.commit()
        leader.committed(0, epoch)
    assert served == [1, 2, 1, 3, 1, 2]


def test_room_is_kept_for_bytes_as_well() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, underway_bytes_max=100))
    assert leader.carry(1, size=60)
    assert not leader.carry(2, size=50)
    leader.commit()
    leader.acknowledge(0, 1)
    assert not leader.carry(1, size=60)
    assert leader.carry(2, size=50)
    leader.commit()
    assert not leader.carry(3, size=50)  # For now the first channel has waited longest.
    assert leader.carry(1, size=50)


def test_room_is_kept_for_more_than_the_first_message_that_was_turned_away() -> None:
    """The first one may tell nothing new, and would use up the room for those that do."""
    leader = LeaderSide(NodeOptions(lanes=1, underway_max=6))
    served = []
    for epoch in range(1, 5):
        bursts = [[leader.carry(channel, in_epoch=True) for _ in range(6)] for channel in (1, 2, 3)]
        served.append([sum(burst) for burst in bursts])
        leader.commit()
        leader.committed(0, epoch)
    assert served == [[6, 0, 0], [3, 3, 0], [3, 0, 3], [3, 3, 0]]


def test_nothing_behind_a_message_that_was_turned_away_is_taken_in_the_same_turn() -> None:
    """A replica would refuse it, and its leader send the same again, as fast as both can."""
    leader = LeaderSide(NodeOptions(lanes=1, underway_bytes_max=100))
    assert leader.carry(1, in_epoch=True, size=50)
    assert not leader.carry(2, in_epoch=True, size=80)
    assert not leader.carry(2, in_epoch=True, size=10)
    leader.commit()
    assert leader.carry(2, in_epoch=True, size=10)


def test_room_is_not_kept_for_a_channel_that_does_not_come_again() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, underway_max=1, keep_ticks=3))
    assert leader.carry(1)
    assert not leader.carry(2)
    leader.acknowledge(0, 1)
    leader.commit()
    leader.tick(3)
    assert not leader.carry(1)
    leader.commit()
    leader.tick()
    assert leader.carry(1)


def test_a_disposed_channel_keeps_no_room() -> None:
    leader = LeaderSide(NodeOptions(lanes=1, underway_max=1))
    assert leader.carry(2)
    leader.acknowledge(0, 1)
    assert leader.carry(1)
    assert not leader.carry(2)
    leader.core.dispose(2)
    leader.collect()
    leader.acknowledge(0, 2)
    assert leader.carry(1)


@pytest.mark.parametrize("name", ["lanes", "window", "commits_max", "keep_ticks"])
def test_an_option_out_of_its_bounds_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match=name):
        NodeOptions(**{name: 0})


# -- how a session ends --------------------------------------------------------------------------


@pytest.mark.parametrize("lane", [CONTROL, 0, 1])
def test_without_one_of_its_connections_a_session_is_over(lane: int) -> None:
    leader = LeaderSide()
    others = [one for number, one in leader.connections.items() if number != lane]
    leader.carry(2, in_epoch=True)
    leader.lose(lane)
    assert leader.left == others
    assert not leader.core.is_open
    assert not leader.carry(2, in_epoch=True)


def test_the_next_session_is_tried_after_a_pause_and_counts_anew() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, retry_ticks=3))
    leader.carry(2, in_epoch=True)
    leader.commit()
    leader.carry(3, in_epoch=True)
    leader.lose(0)
    control = leader.connections[CONTROL]
    leader.tick(2)
    assert leader.connections[CONTROL] == control
    leader.tick()
    assert leader.connections[CONTROL] > control
    leader.open()
    leader.commit()  # The turn of the old session ends: nothing of it is left.
    assert leader.commits() == []
    leader.carry(2, in_epoch=True)
    leader.commit()
    assert leader.commits() == [(2, 1, 1)]


def test_group_commits_of_a_dead_session_are_not_awaited_in_the_next() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, retry_ticks=1, commits_max=1))
    leader.carry(2, in_epoch=True)
    leader.commit()
    leader.lose(0)
    leader.tick()
    leader.open()
    leader.carry(2, in_epoch=True)
    leader.commit()
    assert leader.commits() == [(2, 1, 1)]


def test_a_connection_that_cannot_be_made_is_tried_again() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, retry_ticks=1), opened=False)
    for _ in range(3):
        leader.lose(CONTROL)
        leader.tick()
    leader.open()
    assert leader.core.counters.lost == 3


def test_words_about_connections_of_an_old_session_are_ignored() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, retry_ticks=1))
    old = dict(leader.connections)
    leader.lose(CONTROL)
    leader.tick()
    leader.open()
    for connection in old.values():
        leader.core.lost(connection)
        leader.core.answered(connection, Ack())
        leader.core.connected(connection)
        leader.core.undecodable(connection)
    assert leader.core.is_open
    assert leader.core.counters.ignored == 4 * len(old)


@pytest.mark.parametrize(
    ("lane", "answer"),
    [
        (CONTROL, Ack()),
        (CONTROL, NodeGroupCommitted(1, ())),
        (CONTROL, NodeSessionBegun("again")),
        (0, Ack()),
        (0, NodeGroupCommitted(2, ())),
        (0, NodeGroupCommitted(0, ())),
        (0, NodeSessionBegun("again")),
        (0, Error(NodeErrorCode.TOO_MUCH, "no")),
        (1, Ack()),
        (1, NodeGroupCommitted(1, (Said(2, b"durable"),))),
        (2, NodeGroupCommitted(0, (Said(2, b"durable"),))),
    ],
)
def test_an_answer_that_does_not_fit_ends_the_session(lane: int, answer: NodeAnswer) -> None:
    leader = LeaderSide(NodeOptions(lanes=3))
    leader.carry(1, in_epoch=True)
    leader.carry(3, in_epoch=True)
    leader.carry(2)
    leader.commit()
    assert leader.commits() == [(3, 1, 2)]
    leader.answer(lane, answer)
    assert not leader.core.is_open
    assert leader.left == list(leader.connections.values())
    assert leader.heard == []


def test_an_error_on_a_lane_whose_messages_have_no_answers_is_remembered() -> None:
    leader = LeaderSide()
    leader.carry(2, in_epoch=True)
    leader.carry(3, in_epoch=True)
    leader.commit()
    error = Error(NodeErrorCode.BAD_PAYLOAD, "no")
    leader.answer(0, error)
    assert leader.core.counters.refusal == error
    assert leader.left == list(leader.connections.values())


def test_bytes_that_are_no_answer_end_the_session() -> None:
    leader = LeaderSide()
    leader.core.undecodable(leader.connections[0])
    leader.collect()
    assert leader.left == list(leader.connections.values())


def test_words_that_are_none_between_replicas_end_the_session() -> None:
    leader = LeaderSide()
    leader.core.undeliverable()
    leader.collect()
    assert leader.left == list(leader.connections.values())
    leader.core.undeliverable()
    assert leader.core.counters.lost == 1


def test_a_refusal_is_remembered_and_tried_again() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, retry_ticks=1), opened=False)
    leader.connect(CONTROL)
    error = Error(NodeErrorCode.WRONG_CLUSTER, "another cluster")
    leader.answer(CONTROL, error)
    assert leader.core.counters.refusal == error
    leader.tick()
    leader.open()


def test_a_follower_that_stays_silent_is_given_up() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, patience_ticks=3))
    leader.tick(10)  # Nothing is awaited.
    assert leader.core.is_open
    leader.carry(2)
    leader.tick(3)
    assert leader.core.is_open
    leader.tick()
    assert not leader.core.is_open


def test_a_session_that_does_not_open_is_given_up() -> None:
    leader = LeaderSide(NodeOptions(lanes=LANES, patience_ticks=3), opened=False)
    leader.tick(4)
    assert leader.left == [leader.connections[CONTROL]]


def test_a_session_that_was_closed_does_not_begin_again() -> None:
    leader = LeaderSide()
    connections = list(leader.connections.values())
    leader.core.close()
    leader.tick(100)
    assert leader.left == connections
    assert list(leader.connections.values()) == connections
