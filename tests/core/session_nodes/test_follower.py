"""The follower's side of a session between nodes: what it answers, and when it ends."""

from __future__ import annotations

import pytest

from tests.core.session_nodes.sides import LEADER, OTHER_LEADER, FollowerSide, begin
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_messages import (
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeErrorCode,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegun,
    Said,
)
from tidelog.core.session.node_output import NodeOptions
from tidelog.limits import (
    IN_FLIGHT_REQUESTS_MAX,
    NODE_ANSWER_BYTES_MAX,
    NODE_ANSWER_MESSAGES_MAX,
    NODE_LANES_MAX,
    ORDER_NUMBER_END,
)

# -- how a session begins ------------------------------------------------------------------------


def test_a_session_begins_with_a_secret_that_opens_its_lanes() -> None:
    follower = FollowerSide()
    control, *_ = follower.open()
    assert isinstance(follower.answers[control][0], NodeSessionBegun)
    assert follower.core.leaders == (LEADER,)
    assert follower.hung == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (begin(version=2), NodeErrorCode.UNSUPPORTED_PROTOCOL),
        (begin(cluster="another"), NodeErrorCode.WRONG_CLUSTER),
        (begin(target=7), NodeErrorCode.WRONG_NODE),
        (begin(source=1), NodeErrorCode.WRONG_NODE),
        (begin(source=0), NodeErrorCode.WRONG_NODE),
        (begin(source=ORDER_NUMBER_END), NodeErrorCode.WRONG_NODE),
        (begin(lanes=0), NodeErrorCode.BAD_LANES),
        (begin(lanes=NODE_LANES_MAX + 1), NodeErrorCode.BAD_LANES),
        (Carry(1, 0, b""), NodeErrorCode.NO_SESSION),
        (Carry(1, 1, b""), NodeErrorCode.NO_SESSION),
        (ChannelDispose(1), NodeErrorCode.NO_SESSION),
        (LaneOpen(LEADER, "a guess", 0), NodeErrorCode.WRONG_SECRET),
    ],
)
def test_a_wrong_first_message_is_answered_with_its_error_and_hung_up(
    request_: NodeRequest, code: NodeErrorCode
) -> None:
    follower = FollowerSide()
    connection = follower.connect()
    follower.ask(connection, request_)
    assert follower.error(connection) is code
    assert follower.core.leaders == ()
    assert follower.core.counters.errors == {code: 1}


def test_an_error_says_what_was_expected() -> None:
    follower = FollowerSide()
    connection = follower.connect()
    follower.ask(connection, begin(target=7))
    assert follower.last(connection) == Error(11, "this is node 1, not node 7")


def test_a_lane_without_the_secret_is_refused_and_the_session_goes_on() -> None:
    follower = FollowerSide()
    control = follower.connect()
    follower.ask(control, begin())
    stranger = follower.connect()
    follower.ask(stranger, LaneOpen(LEADER, "a guess", 0))
    assert follower.error(stranger) is NodeErrorCode.WRONG_SECRET
    assert follower.core.leaders == (LEADER,)


def test_the_secret_of_one_leader_opens_no_lane_of_another() -> None:
    follower = FollowerSide()
    first, second = follower.connect(), follower.connect()
    follower.ask(first, begin(source=LEADER))
    follower.ask(second, begin(source=OTHER_LEADER))
    own = follower.last(first)
    assert isinstance(own, NodeSessionBegun)
    stranger = follower.connect()
    follower.ask(stranger, LaneOpen(OTHER_LEADER, own.secret, 0))
    assert follower.error(stranger) is NodeErrorCode.WRONG_SECRET


@pytest.mark.parametrize("lane", [0, 2], ids=["taken", "unknown"])
def test_a_lane_that_is_taken_or_unknown_is_refused(lane: int) -> None:
    follower = FollowerSide()
    control, *_ = follower.open()
    begun = follower.answers[control][0]
    assert isinstance(begun, NodeSessionBegun)
    stranger = follower.connect()
    follower.ask(stranger, LaneOpen(LEADER, begun.secret, lane))
    assert follower.error(stranger) is NodeErrorCode.NO_LANE
    assert follower.core.leaders == (LEADER,)


def test_sessions_of_two_leaders_do_not_touch_one_another() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open(LEADER)
    other_control, other_lane, _ = follower.open(OTHER_LEADER)
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.carry(other_lane, 2, epoch=1, commit=1)
    follower.core.lost(other_control)
    follower.deliver()
    follower.collect()
    assert follower.committed(lane) == [1]
    assert follower.committed(other_lane) == []
    assert follower.hung == [other_lane, other_lane + 1]
    assert follower.core.leaders == (LEADER,)


# -- how a session ends --------------------------------------------------------------------------


def test_a_new_session_supersedes_one_whose_end_did_not_show() -> None:
    follower = FollowerSide()
    old = follower.open()
    follower.carry(old[1], 2, epoch=1, commit=1)
    new = follower.open()
    assert follower.hung == list(old)
    assert follower.core.counters.superseded == 1
    follower.deliver()  # Of the old session: it counts for nothing now.
    follower.ask(old[1], Carry(2, 1, b""))
    assert follower.committed(old[1]) == follower.committed(new[1]) == []
    assert follower.delivered == []


def test_what_was_delivered_for_a_dead_session_does_not_count_in_the_next() -> None:
    """The epochs of both sessions have the same numbers."""
    follower = FollowerSide()
    old = follower.open()
    follower.carry(old[1], 2, epoch=1)
    late = list(follower.delivered)
    follower.delivered.clear()
    follower.core.lost(old[2])
    new = follower.open()
    follower.carry(new[1], 2, epoch=1, commit=1)
    for one in late:
        follower.core.delivered(one.source, one.ticket, 0)
    follower.collect()
    assert follower.committed(new[1]) == []
    assert follower.core.counters.ignored == 1
    follower.deliver()
    assert follower.committed(new[1]) == [1]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["control", "first lane", "second lane"])
def test_without_one_of_its_connections_a_session_is_dead(which: int) -> None:
    follower = FollowerSide()
    connections = follower.open()
    follower.core.lost(connections[which])
    follower.collect()
    others = [one for place, one in enumerate(connections) if place != which]
    assert follower.hung == others
    assert follower.core.leaders == ()


def test_words_about_connections_that_are_gone_are_ignored() -> None:
    follower = FollowerSide()
    control, lane, _ = follower.open()
    follower.core.lost(control)
    follower.collect()
    follower.core.lost(lane)
    follower.carry(lane, 2)
    follower.core.undecodable(lane)
    assert follower.core.counters.ignored == 3
    assert follower.delivered == []


# -- messages ------------------------------------------------------------------------------------


def test_a_message_is_delivered_with_its_attachment_and_answered_then() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 4, attachment=b"entries")
    (one,) = follower.delivered
    assert (one.source, one.channel, one.message, one.attachment) == (
        LEADER,
        4,
        b"message",
        b"entries",
    )
    assert follower.answers[lane] == [Ack()]  # To the opening of the lane.
    follower.deliver()
    assert follower.answers[lane] == [Ack(), Ack()]


def test_a_message_of_an_epoch_has_no_answer_but_that_of_its_group_commit() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1)
    follower.carry(lane, 4, epoch=1, commit=2)
    follower.deliver()
    assert follower.answers[lane] == [Ack(), NodeGroupCommitted(1, ())]


def test_answers_of_a_connection_come_in_the_order_of_its_requests() -> None:
    """A message behind a group commit is delivered at once, and answered after that."""
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.deliver(sequence=1)
    follower.carry(lane, 4)
    follower.deliver()
    follower.ask(lane, ChannelDispose(4))
    assert follower.answers[lane] == [Ack()]
    follower.sync(1)
    assert follower.answers[lane] == [Ack(), NodeGroupCommitted(1, ()), Ack(), Ack()]


def test_a_disposed_channel_makes_room_for_another() -> None:
    follower = FollowerSide(NodeOptions(channels_max=1))
    _, lane, _ = follower.open()
    follower.carry(lane, 2)
    follower.deliver()
    follower.ask(lane, ChannelDispose(2))
    follower.carry(lane, 4)
    follower.deliver()
    assert follower.hung == []
    follower.carry(lane, 6)
    assert follower.error(lane) is NodeErrorCode.TOO_MANY_CHANNELS


def test_a_channel_that_was_disposed_may_begin_anew() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=2)
    follower.deliver()
    follower.ask(lane, ChannelDispose(2))
    follower.carry(lane, 2, epoch=1)
    assert follower.hung == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (Carry(3, 0, b""), NodeErrorCode.WRONG_LANE),
        (ChannelDispose(3), NodeErrorCode.WRONG_LANE),
        (begin(), NodeErrorCode.UNEXPECTED_MESSAGE),
        (LaneOpen(LEADER, "", 0), NodeErrorCode.UNEXPECTED_MESSAGE),
        (Carry(2, 2, b""), NodeErrorCode.EPOCH_WENT_BACK),
        (Carry(4, 1, b""), NodeErrorCode.EPOCH_COMMITTED),
        (Carry(4, 1, b"", 1), NodeErrorCode.EPOCH_COMMITTED),
        (Carry(4, 0, b"", 1), NodeErrorCode.BAD_EPOCH),
        (Carry(4, 3, b"", 1), NodeErrorCode.BAD_EPOCH),
        (Carry(4, 2, b"", 9), NodeErrorCode.BAD_EPOCH),
    ],
    ids=[
        "message on another lane",
        "disposal on another lane",
        "session",
        "lane",
        "epoch below an earlier one",
        "epoch that was answered for",
        "group commit that was answered",
        "group commit of no epoch",
        "group commit of less than has come",
        "second group commit",
    ],
)
def test_what_breaks_the_protocol_on_a_lane_ends_the_session(
    request_: NodeRequest, code: NodeErrorCode
) -> None:
    follower = FollowerSide()
    control, lane, other = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.carry(other, 3, epoch=2, commit=5)
    follower.carry(lane, 2, epoch=3)
    follower.deliver()
    follower.ask(lane, request_)
    assert follower.error(lane) is code
    assert sorted(follower.hung) == [control, lane, other]
    assert follower.core.leaders == ()


@pytest.mark.parametrize(
    "request_", [Carry(2, 0, b""), Carry(2, 1, b""), ChannelDispose(2), begin()]
)
def test_nothing_belongs_on_the_control_connection_of_a_session(request_: NodeRequest) -> None:
    follower = FollowerSide()
    control, *_ = follower.open()
    follower.ask(control, request_)
    assert follower.error(control) is NodeErrorCode.UNEXPECTED_MESSAGE
    assert follower.core.leaders == ()


def test_an_attachment_where_none_belongs_ends_the_session() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.ask(lane, ChannelDispose(2), b"something")
    assert follower.error(lane) is NodeErrorCode.UNEXPECTED_MESSAGE


def test_bytes_that_are_no_request_end_the_session() -> None:
    follower = FollowerSide()
    control, lane, _ = follower.open()
    follower.core.undecodable(lane)
    follower.collect()
    assert follower.error(lane) is NodeErrorCode.UNEXPECTED_MESSAGE
    assert control in follower.hung


@pytest.mark.parametrize(
    ("epoch", "commit"), [(0, 0), (1, 0), (1, 1)], ids=["alone", "in an epoch", "group commit"]
)
def test_a_message_that_is_none_between_replicas_ends_the_session(epoch: int, commit: int) -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=epoch, commit=commit)
    (one,) = follower.delivered
    follower.core.undeliverable(one.source, one.ticket)
    follower.collect()
    assert follower.error(lane) is NodeErrorCode.BAD_PAYLOAD
    assert follower.committed(lane) == []
    follower.core.undeliverable(one.source, one.ticket)
    assert follower.core.counters.ignored == 1


def test_an_error_is_left_out_while_an_earlier_request_is_open() -> None:
    """Answers come in the order of the requests, and the earlier one has none yet."""
    follower = FollowerSide()
    control, lane, _ = follower.open()
    follower.carry(lane, 2)
    follower.carry(lane, 3)
    assert follower.answers[lane] == [Ack()]
    assert lane in follower.hung
    assert control in follower.hung


def test_messages_without_answers_do_not_hold_back_an_error() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    for _ in range(3):
        follower.carry(lane, 2, epoch=1)
    follower.carry(lane, 3, epoch=1)
    assert follower.error(lane) is NodeErrorCode.WRONG_LANE
    assert len(follower.answers[lane]) == 2  # To the opening of the lane, and this one.


# -- group commits -------------------------------------------------------------------------------


def test_a_group_commit_waits_until_all_that_it_caused_is_durable() -> None:
    follower = FollowerSide()
    _, lane, other = follower.open()
    follower.carry(lane, 2, epoch=1)
    follower.carry(other, 3, epoch=1, commit=2)
    follower.deliver(sequence=7)
    follower.sync(6)
    assert follower.committed(other) == []
    follower.sync(7)
    assert follower.committed(other) == [1]


def test_a_group_commit_waits_for_messages_of_other_lanes_that_it_has_overtaken() -> None:
    follower = FollowerSide()
    _, lane, other = follower.open()
    follower.carry(lane, 2, epoch=1, commit=3)
    follower.deliver()
    follower.carry(other, 3, epoch=1)
    follower.deliver()
    assert follower.committed(lane) == []
    follower.carry(other, 5, epoch=1)
    follower.deliver()
    assert follower.committed(lane) == [1]


def test_a_group_commit_waits_for_messages_that_are_being_delivered() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.sync(100)
    assert follower.committed(lane) == []
    follower.deliver(sequence=100)
    assert follower.committed(lane) == [1]


def test_a_group_commit_does_not_wait_for_later_epochs() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.deliver(sequence=1)
    follower.carry(lane, 2, epoch=2)
    follower.deliver(sequence=2)
    follower.sync(1)
    assert follower.committed(lane) == [1]


def test_group_commits_are_answered_in_the_order_of_their_epochs() -> None:
    """They come on different connections, and the second one comes first."""
    follower = FollowerSide()
    _, lane, other = follower.open()
    follower.carry(other, 3, epoch=2, commit=1)
    follower.deliver(sequence=1)
    follower.sync(5)
    assert follower.committed(other) == []
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.deliver(sequence=2)
    assert follower.committed(lane) == [1]
    assert follower.committed(other) == [2]


def test_a_message_that_its_group_commit_does_not_count_ends_the_session() -> None:
    follower = FollowerSide()
    _, lane, other = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.carry(other, 3, epoch=1)
    assert follower.error(other) is NodeErrorCode.EPOCH_COMMITTED
    assert follower.committed(lane) == []


def test_more_group_commits_than_agreed_end_the_session() -> None:
    follower = FollowerSide(NodeOptions(commits_max=2))
    _, lane, _ = follower.open()
    for epoch in (1, 2):
        follower.carry(lane, 2, epoch=epoch, commit=1)
    assert follower.hung == []
    follower.carry(lane, 2, epoch=3)
    assert lane in follower.hung
    assert follower.core.counters.errors == {NodeErrorCode.TOO_MUCH: 1}


def test_a_group_commit_that_was_answered_makes_room_for_another() -> None:
    follower = FollowerSide(NodeOptions(commits_max=1))
    _, lane, _ = follower.open()
    for epoch in (1, 2, 3):
        follower.carry(lane, 2, epoch=epoch, commit=1)
        follower.deliver()
    assert follower.committed(lane) == [1, 2, 3]


# -- what replicas say ---------------------------------------------------------------------------


def test_what_replicas_say_goes_with_the_answer() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1, commit=1)
    assert follower.core.say(LEADER, 2, b"it is durable")
    assert follower.core.say(LEADER, 3, b"and this")
    follower.deliver()
    said = (Said(2, b"it is durable"), Said(3, b"and this"))
    assert follower.last(lane) == NodeGroupCommitted(1, said)
    counters = follower.core.counters
    assert (counters.sessions, counters.carries, counters.group_commits) == (1, 1, 1)
    assert counters.said == 2


def test_what_was_said_is_said_once() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    for epoch in (1, 2):
        follower.carry(lane, 2, epoch=epoch, commit=1)
        if epoch == 1:
            assert follower.core.say(LEADER, 2, b"once")
        follower.deliver()
    assert follower.last(lane) == NodeGroupCommitted(2, ())


def test_nothing_is_kept_for_an_answer_that_is_not_due() -> None:
    follower = FollowerSide()
    assert not follower.core.say(LEADER, 2, b"hello")
    _, lane, _ = follower.open()
    assert not follower.core.say(LEADER, 2, b"hello")
    follower.carry(lane, 2)
    assert not follower.core.say(LEADER, 2, b"hello")
    follower.carry(lane, 2, epoch=1, commit=1)
    assert not follower.core.say(OTHER_LEADER, 2, b"hello")
    follower.deliver()
    assert follower.last(lane) == NodeGroupCommitted(1, ())
    assert not follower.core.say(LEADER, 2, b"hello")


def test_what_was_to_be_said_in_a_dead_session_is_forgotten() -> None:
    follower = FollowerSide()
    control, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1)
    assert follower.core.say(LEADER, 2, b"to the dead")
    follower.core.lost(control)
    control, lane, _ = follower.open()
    follower.delivered.clear()
    follower.carry(lane, 2, epoch=1, commit=1)
    follower.deliver()
    assert follower.last(lane) == NodeGroupCommitted(1, ())


def test_what_waits_to_be_said_is_bounded() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1)
    assert follower.core.say(LEADER, 2, bytes(NODE_ANSWER_BYTES_MAX - 1))
    assert not follower.core.say(LEADER, 2, b"12")
    assert follower.core.say(LEADER, 2, b"1")


def test_the_number_of_messages_that_wait_to_be_said_is_bounded() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    follower.carry(lane, 2, epoch=1)
    for _ in range(NODE_ANSWER_MESSAGES_MAX):
        assert follower.core.say(LEADER, 2, b"")
    assert not follower.core.say(LEADER, 2, b"")


# -- bounds --------------------------------------------------------------------------------------


def test_more_bytes_than_agreed_end_the_session() -> None:
    follower = FollowerSide(NodeOptions(underway_bytes_max=100))
    _, lane, _ = follower.open()
    for size in (80, 100 - 80 - 2 * len(b"message")):
        follower.carry(lane, 2, epoch=1, attachment=bytes(size))
        follower.deliver()
    assert follower.hung == []
    follower.carry(lane, 2, epoch=1)
    assert follower.error(lane) is NodeErrorCode.TOO_MUCH


def test_one_message_is_taken_whatever_its_size() -> None:
    follower = FollowerSide(NodeOptions(underway_bytes_max=100))
    _, lane, _ = follower.open()
    for epoch in (1, 2):
        follower.carry(lane, 2, epoch=epoch, attachment=bytes(1000), commit=1)
        follower.deliver()
    assert follower.committed(lane) == [1, 2]


def test_more_messages_than_agreed_end_the_session() -> None:
    follower = FollowerSide(NodeOptions(underway_max=2))
    _, lane, _ = follower.open()
    for _ in range(3):
        follower.carry(lane, 2, epoch=1)
        follower.deliver()
    assert follower.error(lane) is NodeErrorCode.TOO_MUCH


def test_more_requests_than_a_connection_may_have_open_end_the_session() -> None:
    follower = FollowerSide()
    _, lane, _ = follower.open()
    for _ in range(IN_FLIGHT_REQUESTS_MAX):
        follower.carry(lane, 2)
    assert follower.hung == []
    follower.carry(lane, 2)
    assert lane in follower.hung
    assert follower.core.counters.errors == {NodeErrorCode.TOO_MUCH: 1}
