"""Safeguards of replication sessions, each switched off, and the story that must go wrong.

A story is a directed test of ``tests/core/session``, told once more with the safeguard gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.core.session import stores
from tests.core.session import test_epochs as epochs
from tests.core.session import test_error_table as errors
from tests.core.session import test_failures as failures
from tests.core.session import test_flows as flows
from tests.core.session import test_interleavings as interleavings
from tests.core.session import test_known_schedules as schedules
from tests.core.session import test_log_channels as channels
from tests.mutation.broken_sessions import (
    at_its_mark,
    even_when_stopped,
    whatever_is_awaited,
    whatever_is_unfinished,
    with_the_first_answer,
    with_the_last_answer,
)
from tests.mutation.left_out import replaced
from tests.mutation.mutant import instead
from tests.mutation.replica_mutants import StoryMutant, no, nothing, yes
from tidelog.core.session import replica_session
from tidelog.core.session.channel import Channel
from tidelog.core.session.control_channel import ControlChannel
from tidelog.core.session.epochs import Epochs
from tidelog.core.session.lanes import Lane, Stage
from tidelog.core.session.log_channels import LogChannels
from tidelog.core.session.master import Commit, Master
from tidelog.core.session.messages import BlobWrite, LogChannelDispose, LogEntryWrite
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.replica_session import Session
from tidelog.core.session.replica_state import State
from tidelog.core.session.steps import Steps

# -- what takes the place of a safeguard ---------------------------------------------------------


def last_group_commit(logs: LogChannels, session: Session) -> int:
    return logs._state.epoch


def with_an_open_log_session(channel: Channel, epoch: int) -> bool:
    return channel.epoch <= epoch and channel.session_begin is not None


def always_first(original: Callable[..., None]) -> Callable[..., None]:
    def begin_boundary(master: Master, version: int) -> None:
        original(master, version)
        master._is_boundary_next = True

    return begin_boundary


def there_first(original: Callable[..., list[Stage]]) -> Callable[..., list[Stage]]:
    return lambda steps, version: list(reversed(original(steps, version)))


def whatever_it_is(master: Master, replica: int, version: int) -> None:
    master._boundary = master._wanted_boundary = version


def no_blobs(*_: object) -> tuple[()]:
    return ()


def keeps_the_entries(channel: Channel) -> int | None:
    channel.session_begin = None
    return None


MUTANTS: Final = (
    # -- how a session begins ----------------------------------------------------------------
    StoryMutant(
        "any secret opens a log channel",
        instead(replica_session, "is_same_secret", yes),
        lambda: errors.test_a_wrong_secret_opens_no_log_channel("secret 2"),
    ),
    StoryMutant(
        "the secret of an earlier session opens a log channel",
        instead(replica_session, "is_same_secret", yes),
        schedules.test_s6_the_secret_of_an_earlier_session_is_refused,
    ),
    StoryMutant(
        "any version of the protocol is spoken",
        instead(ControlChannel, "_check_protocol", nothing),
        errors.test_another_protocol_version_is_refused,
    ),
    StoryMutant(
        "a replica takes the entries of another master",
        instead(ControlChannel, "_check_configuration", nothing),
        errors.test_another_configuration_is_refused_by_a_replica_that_is_not_empty,
    ),
    StoryMutant(
        "a replica that is behind is taken for equal",
        instead(ControlChannel, "_check_position", nothing),
        lambda: schedules.test_s4_sides_that_stopped_inside_a_group_commit_do_not_begin_a_session(
            "master"
        ),
    ),
    StoryMutant(
        "a replica that is ahead is taken for equal",
        instead(ControlChannel, "_check_position", nothing),
        lambda: schedules.test_s4_sides_that_stopped_inside_a_group_commit_do_not_begin_a_session(
            "replica"
        ),
    ),
    StoryMutant(
        "equal epochs are taken for equal histories",
        instead(ControlChannel, "_check_history", nothing),
        schedules.test_s4_sides_that_were_masters_apart_do_not_begin_a_session,
    ),
    StoryMutant(
        "two sessions at a time",
        instead(ControlChannel, "_check_alone", nothing),
        lambda: errors.test_a_second_session_is_refused_and_the_first_one_is_unharmed(9),
    ),
    StoryMutant(
        "a session has as many log channels as it likes",
        instead(ControlChannel, "_check_channel_count", nothing),
        errors.test_more_log_channels_than_a_topic_can_have_are_refused,
    ),
    StoryMutant(
        "a store is prepared while it writes for a dead session",
        instead(ControlChannel, "_is_at_work", no),
        schedules.test_a_write_of_a_dead_session_does_not_reach_the_next_one,
    ),
    StoryMutant(
        "the position is judged while a dead session's group commit is under way",
        instead(ControlChannel, "_is_at_work", no),
        schedules.test_a_group_commit_of_a_dead_session_counts_for_the_next_one,
    ),
    StoryMutant(
        "what was not committed is kept for the next session",
        instead(stores.Store, "drop_unrecorded", nothing),
        schedules.test_s5_a_session_may_follow_a_dead_one,
    ),
    # -- log channels ------------------------------------------------------------------------
    StoryMutant(
        "there is one log channel more than was said",
        instead(Session, "_require_number", nothing),
        errors.test_there_are_as_many_log_channels_as_the_session_has_said,
    ),
    StoryMutant(
        "a log channel has two connections",
        instead(Session, "_require_free", nothing),
        errors.test_a_log_channel_has_one_connection,
    ),
    StoryMutant(
        "entries of a committed epoch are taken",
        instead(Channel, "_check_committed", nothing),
        lambda: errors.test_an_entry_of_a_committed_epoch_is_refused(5),
    ),
    StoryMutant(
        "entries of an epoch that is being committed are taken",
        instead(LogChannels, "_committed", last_group_commit),
        errors.test_an_entry_of_an_epoch_that_is_being_committed_is_refused,
    ),
    StoryMutant(
        "epochs of a channel go back",
        instead(Channel, "_check_epoch", nothing),
        errors.test_epochs_of_a_channel_do_not_go_back,
    ),
    StoryMutant(
        "entries are taken without a log session",
        instead(Channel, "_check_log_session", nothing),
        lambda: errors.test_begin_and_end_of_log_sessions_fit_one_another(False, LogEntryWrite(3)),
    ),
    StoryMutant(
        "entries are taken wherever they begin",
        instead(Channel, "_check_dense", nothing),
        lambda: errors.test_entries_that_do_not_continue_their_channel_are_refused(
            (stores.batch(3),)
        ),
    ),
    StoryMutant(
        "an abort keeps the entries",
        instead(Channel, "abort", keeps_the_entries),
        channels.test_an_abort_takes_all_entries_of_the_log_session_back,
    ),
    StoryMutant(
        "entries are taken before their BLOBs",
        instead(LogChannels, "_check_blobs", nothing),
        channels.test_entries_come_behind_their_blobs,
    ),
    StoryMutant(
        "a BLOB that is being replaced counts as complete",
        instead(Channel, "is_receiving", no),
        channels.test_an_entry_may_not_refer_to_a_blob_that_its_channel_is_replacing,
    ),
    StoryMutant(
        "parts of a BLOB are taken in any order",
        instead(Channel, "_continues", yes),
        lambda: channels.test_a_part_that_does_not_continue_its_blob_is_refused(
            BlobWrite(7, 5, 10), b"1"
        ),
    ),
    StoryMutant(
        "half a BLOB stays when its rest does not come",
        instead(State, "drop_blob", nothing),
        lambda: channels.test_a_blob_whose_rest_does_not_come_is_forgotten("lost"),
    ),
    StoryMutant(
        "a log channel is lost, and nothing is missing",
        instead(State, "break_session", nothing),
        errors.test_a_log_channel_that_is_lost_breaks_the_session,
    ),
    StoryMutant(
        "a broken session goes on",
        instead(Session, "require_whole", nothing),
        errors.test_a_store_that_fails_in_a_group_commit_breaks_the_session,
    ),
    StoryMutant(
        "a log channel is written on after its disposal",
        instead(LogChannels, "detach", nothing),
        lambda: errors.test_nothing_is_written_on_a_channel_after_its_dispose(LogChannelDispose()),
    ),
    # -- group commits of a replica ----------------------------------------------------------
    StoryMutant(
        "a group commit goes back",
        instead(ControlChannel, "_check_commit", nothing),
        lambda: errors.test_a_group_commit_that_is_not_beyond_the_last_one_is_refused(4),
    ),
    StoryMutant(
        "a group commit takes half a log session",
        instead(Session, "require_ended", nothing),
        errors.test_a_group_commit_waits_for_log_sessions_of_its_epoch,
    ),
    StoryMutant(
        "a group commit overtakes the store",
        instead(Channel, "is_writing_in", with_an_open_log_session),
        errors.test_a_group_commit_waits_for_a_write_that_the_store_is_at,
    ),
    StoryMutant(
        "in some order, a group commit takes half a log session",
        instead(Session, "require_ended", nothing),
        interleavings.test_a_group_commit_that_overtakes_entries_never_takes_half_a_log_session,
    ),
    StoryMutant(
        "the boundary of a replica goes back",
        instead(ControlChannel, "_check_boundary", nothing),
        errors.test_the_boundary_does_not_go_back,
    ),
    StoryMutant(
        "a replica takes a boundary that leaves no room for stamps",
        instead(ControlChannel, "_check_boundary", nothing),
        errors.test_a_boundary_leaves_room_for_stamps,
    ),
    # -- the master --------------------------------------------------------------------------
    StoryMutant(
        "a log session is finished before its replica has answered",
        instead(Lane, "_is_reached", at_its_mark),
        lambda: schedules.test_s2_a_group_commit_does_not_overtake_the_last_flush(
            FlushAt.SESSION_END
        ),
    ),
    StoryMutant(
        "a log session is finished before it is appended here",
        instead(Lane, "_is_reached", at_its_mark),
        lambda: schedules.test_s2_a_group_commit_does_not_overtake_the_local_append(
            FlushAt.GROUP_COMMIT
        ),
    ),
    StoryMutant(
        "in some order, a group commit overtakes a flush",
        instead(Lane, "_is_reached", at_its_mark),
        lambda: interleavings.test_every_order_of_two_log_sessions_and_their_group_commit(
            MasterOptions()
        ),
    ),
    StoryMutant(
        "serial steps run side by side",
        instead(Lane, "_may_go", whatever_is_awaited),
        lambda: flows.test_a_group_commit_takes_its_steps_as_the_options_say(
            MasterOptions(parallel_commit=False), [["RecordLocally"], ["GroupCommit"]]
        ),
    ),
    StoryMutant(
        "an epoch is over although a log session of it goes on",
        instead(Epochs, "_over", whatever_is_unfinished),
        epochs.test_epochs_with_log_sessions_that_overlap,
    ),
    StoryMutant(
        "PROPAGATED is told before STORED",
        instead(Commit, "is_propagated", property(with_the_last_answer)),
        schedules.test_s3_propagated_waits_for_stored_when_the_replica_answers_first,
    ),
    StoryMutant(
        "PROPAGATED is told with the first of several answers",
        replaced(Master, "_committed", with_the_first_answer),
        failures.test_propagated_needs_every_replica,
    ),
    StoryMutant(
        "a stopped master tells of an epoch that it is PROPAGATED",
        instead(Master, "_complete_commit", even_when_stopped),
        failures.test_a_stopped_master_tells_of_nothing_that_it_is_propagated,
    ),
    StoryMutant(
        "a stopped master goes on sending",
        instead(Lane, "stop", nothing),
        failures.test_a_replica_that_is_lost_stops_its_master,
    ),
    StoryMutant(
        "epochs go back",
        instead(Epochs, "_grows", yes),
        lambda: flows.test_epochs_grow(5),
    ),
    StoryMutant(
        "boundaries keep group commits waiting for ever",
        replaced(Master, "_begin_boundary", always_first),
        flows.test_boundaries_and_group_commits_take_turns,
    ),
    StoryMutant(
        "a replica has a boundary that its master has not",
        replaced(Steps, "set_boundary", there_first),
        flows.test_the_boundary_is_set_here_and_then_there,
    ),
    StoryMutant(
        "a boundary of a replica is learnt that leaves no room for stamps",
        instead(Master, "_learn_boundary", whatever_it_is),
        flows.test_a_master_takes_no_boundary_that_leaves_no_room_for_its_stamps,
    ),
    StoryMutant(
        "a later boundary of a replica is not learnt",
        instead(Master, "_learn_boundary", nothing),
        flows.test_a_master_learns_a_later_boundary_of_its_replica_before_it_writes,
    ),
    StoryMutant(
        "entries are sent without their BLOBs",
        instead(Steps, "_blobs", no_blobs),
        flows.test_a_blob_is_sent_before_the_entries_that_refer_to_it,
    ),
    StoryMutant(
        "the session ends while a log channel awaits its answer",
        instead(Master, "_is_quiet", yes),
        flows.test_closing_waits_for_what_is_due_and_for_answers_on_log_channels,
    ),
    StoryMutant(
        "an answer of the wrong kind is taken",
        instead(Master, "_fits", yes),
        failures.test_an_answer_of_the_wrong_kind_stops_the_master,
    ),
)
