"""Safeguards of sessions between nodes, each switched off, and the stories that must go wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.core.session_nodes import test_clusters as clusters
from tests.core.session_nodes import test_follower as follower
from tests.core.session_nodes import test_leader as leader
from tests.core.session_nodes.sides import begin
from tests.core.session_nodes.walks import NodeWalk
from tests.formats import test_replica_messages as replica_messages
from tests.mutation.left_out import Change, replaced
from tests.mutation.mutant import instead
from tidelog.core.session.messages import Ack
from tidelog.core.session.node_answers import NodeAnswers, Owed
from tidelog.core.session.node_epochs import NodeEpochs
from tidelog.core.session.node_follower import NodeFollower
from tidelog.core.session.node_lane import NodeLane, Waiting
from tidelog.core.session.node_leader import NodeLeader
from tidelog.core.session.node_messages import (
    NO_EPOCH,
    Carry,
    NodeAnswer,
    NodeErrorCode,
    NodeGroupCommitted,
)
from tidelog.core.session.node_room import NOTHING, NodeRoom
from tidelog.core.session.node_session import Carried, NodeLink, NodeSession
from tidelog.formats import replica_messages as formats

Story = Callable[[], None]


@dataclass(frozen=True, slots=True)
class NodeMutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    story: Story


def yes(*_: object, **__: object) -> bool:
    return True


def no(*_: object, **__: object) -> bool:
    return False


def nothing(*_: object, **__: object) -> None:
    return None


def walks() -> None:
    """Some walks by chance; one of them must go wrong."""
    for seed in range(20):
        NodeWalk(seed).go(200)


# -- what takes the place of a safeguard ---------------------------------------------------------


def forget_but_the_epochs(original: Callable[[NodeLeader], None]) -> Callable[[NodeLeader], None]:
    """Counts and epochs of a dead session go on in the next one."""

    def forget(self: NodeLeader) -> None:
        if not hasattr(self, "_closed"):
            original(self)

    return forget


def go_on_with_the_epoch(original: Callable[[NodeLeader], None]) -> Callable[[NodeLeader], None]:
    """What was counted by a group commit is counted by the next one, too."""

    def begin_epoch(self: NodeLeader) -> None:
        if not hasattr(self, "_last"):
            original(self)

    return begin_epoch


def drop_beyond_window(original: Callable[..., None]) -> Callable[..., None]:
    def put(self: NodeLane, waiting: Waiting) -> None:
        if self._has_window() or not isinstance(waiting.request, Carry):
            original(self, waiting)

    return put


def say_to_nobody(original: Callable[..., Any]) -> Callable[..., Any]:
    """Messages that wait for an answer are lost when it is given."""

    def take_said(self: NodeSession) -> tuple[object, ...]:
        original(self)
        return ()

    return take_said


def say_again(original: Callable[..., Any]) -> Callable[..., Any]:
    def take_said(self: NodeSession) -> tuple[object, ...]:
        return tuple(self._outbox)

    return take_said


def take_any_ticket(self: NodeSession, ticket: int) -> Carried | None:
    """A ticket of any session counts for the one that there is."""
    return self._tickets.pop(next(iter(self._tickets), ticket), None)


def release_one(original: Callable[..., None]) -> Callable[..., None]:
    """A group commit that was answered makes room for the message alone that asked for it."""

    def commit(self: Waiting, count: int, size: int) -> None:
        original(self, count, size)
        self.count, self.bytes = 1, size // count

    return commit


def answer_at_once(original: Callable[..., None]) -> Callable[..., Any]:
    def settle(self: NodeAnswers, owed: Owed, answer: NodeAnswer) -> list[NodeAnswer]:
        self._owed.remove(owed)
        return [answer]

    return settle


def first_to_come(self: NodeEpochs) -> int:
    """Group commits are answered as they come."""
    return next((epoch for epoch, one in self._epochs.items() if one.owed is not None), 0)


def acknowledge_at_once(original: Callable[..., None]) -> Callable[..., None]:
    """A message is delivered in the eyes of its group commit as soon as it has come."""

    def take(self: NodeSession, link: NodeLink, carry: Carry, *args: Any) -> None:
        original(self, link, carry, *args)
        if carry.epoch != NO_EPOCH:
            self.epochs.delivered(carry.epoch, 0)

    return take


def commit_each_message(original: Callable[..., bool]) -> Callable[..., bool]:
    """The leader closes an epoch with each message."""

    def carry(self: NodeLeader, channel: int, *args: Any, in_epoch: bool = False) -> bool:
        is_taken = original(self, channel, *args, in_epoch=in_epoch)
        self.commit()
        return is_taken

    return carry


def take_all_the_same(original: Callable[..., bool]) -> Callable[..., bool]:
    def fits(self: NodeLeader, *args: Any) -> bool:
        return original(self, *args) or True

    return fits


def lose_only_the_connection(self: NodeFollower, connection: int) -> None:
    self._links.pop(connection, None)


MUTANTS: Final = (
    # Answers.
    NodeMutant(
        "a group commit is answered before it is durable",
        instead(NodeEpochs, "_is_durable", yes),
        follower.test_a_group_commit_waits_until_all_that_it_caused_is_durable,
    ),
    NodeMutant(
        "by chance: a group commit is answered before it is durable",
        instead(NodeEpochs, "_is_durable", yes),
        walks,
    ),
    NodeMutant(
        "a group commit is answered before its messages have come",
        instead(NodeEpochs, "_has_come", yes),
        clusters.test_a_group_commit_is_never_answered_for_entries_that_were_lost_with_a_connection,
    ),
    NodeMutant(
        "by chance: a group commit is answered before its messages have come",
        instead(NodeEpochs, "_has_come", yes),
        walks,
    ),
    NodeMutant(
        "a group commit is answered before its messages are delivered",
        instead(NodeEpochs, "_is_delivered", yes),
        follower.test_a_group_commit_waits_for_messages_that_are_being_delivered,
    ),
    NodeMutant(
        "a message counts as delivered when it has come",
        replaced(NodeSession, "take", acknowledge_at_once),
        follower.test_a_group_commit_waits_for_messages_that_are_being_delivered,
    ),
    NodeMutant(
        "messages are taken after the group commit of their epoch",
        instead(NodeEpochs, "is_complete", no),
        follower.test_a_message_that_its_group_commit_does_not_count_ends_the_session,
    ),
    NodeMutant(
        "group commits are answered in the order in which they come",
        instead(NodeEpochs, "_next", first_to_come),
        follower.test_group_commits_are_answered_in_the_order_of_their_epochs,
    ),
    NodeMutant(
        "by chance: group commits are answered in the order in which they come",
        instead(NodeEpochs, "_next", first_to_come),
        walks,
    ),
    NodeMutant(
        "an answer overtakes those of earlier requests",
        replaced(NodeAnswers, "settle", answer_at_once),
        follower.test_answers_of_a_connection_come_in_the_order_of_its_requests,
    ),
    # Sessions.
    NodeMutant(
        "the epochs of a dead session go on in the next one",
        replaced(NodeLeader, "_forget_epochs", forget_but_the_epochs),
        leader.test_the_next_session_is_tried_after_a_pause_and_counts_anew,
    ),
    NodeMutant(
        "by chance: the epochs of a dead session go on in the next one",
        replaced(NodeLeader, "_forget_epochs", forget_but_the_epochs),
        walks,
    ),
    NodeMutant(
        "what was delivered for a dead session counts in the next one",
        instead(NodeSession, "take_ticket", take_any_ticket),
        follower.test_what_was_delivered_for_a_dead_session_does_not_count_in_the_next,
    ),
    NodeMutant(
        "a session goes on without one of its connections",
        instead(NodeFollower, "lost", lose_only_the_connection),
        partial(follower.test_without_one_of_its_connections_a_session_is_dead, 1),
    ),
    NodeMutant(
        "a session that was superseded goes on",
        instead(NodeFollower, "_supersede", nothing),
        follower.test_a_new_session_supersedes_one_whose_end_did_not_show,
    ),
    NodeMutant(
        "the secret of a session is not checked",
        instead(NodeFollower, "_is_admitted", yes),
        follower.test_a_lane_without_the_secret_is_refused_and_the_session_goes_on,
    ),
    NodeMutant(
        "anybody may begin a session",
        instead(NodeFollower, "_check_peer", nothing),
        partial(
            follower.test_a_wrong_first_message_is_answered_with_its_error_and_hung_up,
            begin(cluster="another"),
            NodeErrorCode.WRONG_CLUSTER,
        ),
    ),
    NodeMutant(
        "a silent follower is waited for for ever",
        instead(NodeLeader, "_is_given_up", no),
        leader.test_a_follower_that_stays_silent_is_given_up,
    ),
    NodeMutant(
        "an answer to something else is taken",
        replaced(NodeLeader, "_fits", take_all_the_same),
        partial(leader.test_an_answer_that_does_not_fit_ends_the_session, 0, Ack()),
    ),
    NodeMutant(
        "an answer to another group commit is taken",
        replaced(NodeLeader, "_fits", take_all_the_same),
        partial(
            leader.test_an_answer_that_does_not_fit_ends_the_session,
            0,
            NodeGroupCommitted(2, ()),
        ),
    ),
    # What waits.
    NodeMutant(
        "messages beyond the window are dropped",
        replaced(NodeLane, "put", drop_beyond_window),
        leader.test_messages_wait_for_their_window_and_keep_their_order,
    ),
    NodeMutant(
        "by chance: messages beyond the window are dropped",
        replaced(NodeLane, "put", drop_beyond_window),
        walks,
    ),
    NodeMutant(
        "what replicas say is dropped",
        replaced(NodeSession, "take_said", say_to_nobody),
        clusters.test_many_acknowledgements_come_with_one_answer,
    ),
    NodeMutant(
        "by chance: what replicas say is dropped",
        replaced(NodeSession, "take_said", say_to_nobody),
        walks,
    ),
    NodeMutant(
        "what replicas say is said twice",
        replaced(NodeSession, "take_said", say_again),
        follower.test_what_was_said_is_said_once,
    ),
    NodeMutant(
        "messages are sent before their epoch is closed",
        instead(NodeLane, "_is_closed", yes),
        leader.test_nothing_of_an_epoch_leaves_before_the_turn_ends,
    ),
    NodeMutant(
        "by chance: messages are sent before their epoch is closed",
        instead(NodeLane, "_is_closed", yes),
        walks,
    ),
    NodeMutant(
        "an epoch goes on after its group commit",
        replaced(NodeLeader, "_begin_epoch", go_on_with_the_epoch),
        leader.test_a_message_is_counted_by_one_group_commit,
    ),
    NodeMutant(
        "each message has a group commit",
        replaced(NodeLeader, "carry", commit_each_message),
        clusters.test_a_turn_has_one_group_commit_for_each_follower_however_many_streams,
    ),
    # Bounds.
    NodeMutant(
        "no room is kept for who was turned away",
        instead(NodeRoom, "_kept_from", lambda *_: NOTHING),
        leader.test_a_channel_that_was_turned_away_finds_room_kept,
    ),
    NodeMutant(
        "messages behind a gap are taken",
        instead(NodeRoom, "_has_gap", no),
        leader.test_nothing_behind_a_message_that_was_turned_away_is_taken_in_the_same_turn,
    ),
    NodeMutant(
        "a leader asks for any number of group commits",
        instead(NodeLeader, "_last_to_ask", lambda self: self._closed + 1),
        leader.test_turns_whose_group_commits_have_to_wait_become_one_epoch,
    ),
    NodeMutant(
        "an epoch grows without bound",
        instead(NodeLeader, "_is_full", no),
        leader.test_a_large_epoch_is_closed_before_its_turn_ends,
    ),
    NodeMutant(
        "a follower takes any number of group commits",
        instead(NodeSession, "_check_ahead", nothing),
        follower.test_more_group_commits_than_agreed_end_the_session,
    ),
    NodeMutant(
        "an answer makes room for one message of its epoch alone",
        replaced(Waiting, "commit", release_one),
        leader.test_messages_of_epochs_take_room_until_their_group_commit,
    ),
    NodeMutant(
        "a leader takes without bound",
        instead(NodeRoom, "_has_room", yes),
        leader.test_messages_of_epochs_take_room_until_their_group_commit,
    ),
    NodeMutant(
        "a follower takes without bound",
        instead(NodeSession, "_check_room", nothing),
        follower.test_more_bytes_than_agreed_end_the_session,
    ),
    NodeMutant(
        "what waits to be said is not bounded",
        instead(NodeSession, "_has_room_for", yes),
        follower.test_what_waits_to_be_said_is_bounded,
    ),
    NodeMutant(
        "a connection may have any number of open requests",
        instead(NodeFollower, "_check_window", nothing),
        follower.test_more_requests_than_a_connection_may_have_open_end_the_session,
    ),
    # Bytes.
    NodeMutant(
        "a node may speak for another one",
        instead(formats, "_check_address", nothing),
        partial(
            replica_messages.test_a_node_cannot_speak_for_another_one_or_on_another_channel,
            3,
            1,
            70,
        ),
    ),
    NodeMutant(
        "parts of a message are taken wherever they are",
        instead(formats, "_check_parts", nothing),
        partial(
            replica_messages.test_parts_where_none_belong_are_refused,
            replica_messages.envelope(replica_messages.add_entries()),
            b"",
        ),
    ),
)
