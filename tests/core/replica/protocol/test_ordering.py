"""Reports (T7), cuts (T8) and the commit context that a replica keeps of them."""

from __future__ import annotations

from tests.core.replica.protocol.harness import STREAM, Group, nodes, of
from tidelog.core.order.commands import Report
from tidelog.core.replica.commit_context import NONE
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    CutsRequest,
    CutsResponse,
    Role,
)
from tidelog.core.replica.options import ReplicaOptions
from tidelog.types import Llsn, Version

NODE_1, NODE_2, NODE_3 = nodes(1, 2, 3)


def a_group(*data: bytes) -> Group:
    """Node 1 leads term 2, and all have what was written; nothing is ordered."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, *data)
    group.deliver()
    return group


# -- reports -------------------------------------------------------------------------------------


def test_a_report_tells_what_is_unordered_and_durable() -> None:
    group = a_group(b"x", b"y")
    for node, committed in ((NODE_1, Llsn(3)), (NODE_2, Llsn(0))):
        expected = Report(node, STREAM, group[1].term, Version(0), Llsn(1), 2, committed)
        assert group[node].report() == expected, "a leader knows what is committed"


def test_a_report_begins_behind_what_was_ordered() -> None:
    group = a_group(b"x", b"y")
    group.order_all()
    group.append(1, b"z")
    group.deliver()
    report = group[2].report()
    assert report is not None
    assert (report.version, report.llsn_begin, report.length) == (1, 3, 1)


def test_a_report_leaves_out_what_is_not_durable() -> None:
    group = a_group(b"x")
    group.hold_back(1)
    group.append(1, b"y")
    report = group[1].report()
    assert report is not None
    assert report.length == 1


def test_a_fenced_replica_reports_nothing() -> None:
    group = a_group(b"x")
    group.fence(2, 3)
    assert group[2].report() is None


def test_a_replica_that_starts_reports_nothing_until_its_leader_speaks() -> None:
    group = a_group(b"x")
    group.restart(2)
    assert group[2].report() is None
    group.pass_time(30)
    report = group[2].report()
    assert report is not None
    assert report.length == 1


def test_an_incomplete_replica_reports_nothing() -> None:
    group = a_group(b"x")
    group.lose_log(2)
    assert group[2].report() is None
    group.fence(2, 2)
    assert group[2].report() is None


def test_a_node_without_a_replica_reports_nothing() -> None:
    group = Group(1, 2, 3, spares=[4])
    assert group[4].report() is None


def test_entries_of_an_older_reign_are_not_reported_without_one_of_the_present() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.drop()
    heads = [group.fence(number, 3) for number in (2, 3)]
    group.hold_back(2)
    group.step(group.lead_request(2, 3, *heads))
    report = group[2].report()
    assert report is None or report.length == 0, "its control entry is not durable yet"
    group.release(2)
    report = group[2].report()
    assert report is not None
    assert report.length == 2


def test_a_report_never_shrinks_within_a_term() -> None:
    group = a_group(b"x", b"y")
    before = group[2].report()
    group.append(1, b"z")
    group.deliver()
    after = group[2].report()
    assert before is not None
    assert after is not None
    assert after.length > before.length


def test_reports_of_the_old_term_do_not_count_after_the_row_went_on() -> None:
    group = a_group(b"x")
    report = group[1].report()
    other = group[2].report()
    assert report is not None
    assert other is not None
    group.write_row(term=3)
    group.order.step(report)
    group.order.step(other)
    assert not group.cut()


# -- cuts ----------------------------------------------------------------------------------------


def test_a_cut_is_stored_in_one_write_with_its_glsns() -> None:
    group = a_group(b"x", b"y")
    group.report()
    group.cut()
    group.hold_back(1)
    group.tell_cuts(1)
    (write,) = group.members[1].disk.waiting
    assert write.context is not None
    assert sum(run.length for run in write.runs) == write.context.length == 2
    assert write.can_wait
    assert group.members[1].ordered == 3, "the cut is kept by the metadata repository"
    assert group.image(1).context == NONE
    assert group[1].durable_context == NONE, "nobody can read it yet"
    group.release(1)
    assert group[1].durable_context.llsn_end == 3


def test_a_cut_tells_a_follower_that_its_entries_are_committed() -> None:
    group = a_group(b"x")
    assert group[2].commit_index == 0, "its leader has not told it"
    group.report()
    assert group.cut()
    group.tell_cuts(2)
    assert group[2].commit_index == 1
    assert group[2].context.llsn_end == 2


def test_a_cut_tells_a_leader_that_its_entries_are_committed() -> None:
    """The answers of its followers are lost, but they have reported."""
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver(of(AddEntriesRequest))
    group.drop()
    assert group.members[1].propagated <= 1
    group.report()
    assert group.cut()
    group.tell_cuts(1)
    assert group.members[1].propagated == 2
    assert group.members[1].ordered == 2


def test_a_cut_that_comes_before_its_entries_waits_for_them() -> None:
    group = a_group(b"x")
    group.isolate(3)
    group.append(1, b"y")
    group.deliver()
    group.report()
    group.cut()
    group.tell_cuts(3)
    assert group[3].context == NONE
    assert group[3].commit_index == 1, "what it has of the cut stays for ever"
    group.heal()
    group.pass_time(10)
    assert group[3].context.llsn_end == 3


def test_a_cut_of_a_later_term_proves_nothing_to_who_follows_an_older_leader() -> None:
    """Nodes 1 and 2 are cut off, with an entry where the new leader's quorum has another one."""
    group = Group(1, 2, 3, 4, 5)
    group.elect(1, 2, 3, 4, 5)
    group.deliver()
    group.isolate(3, 4, 5)
    group.append(1, b"stale")
    group.deliver()
    group.elect(3, 4, 5)
    group.append(3, b"x")
    group.order_all()
    assert group.row.llsn_end == 2
    group.tell_cuts(1, 2)
    assert group[1].context == group[2].context == NONE
    group.fence(2, 3)
    group.tell_cuts(2)
    assert group[2].context == NONE, "it is in the cut's term, but nobody has compared its log"
    group.heal()
    group.add_follower(3, 2)
    group.fence(1, 3)
    group.add_follower(3, 1)
    group.order_all()
    assert group.data(1) == group.data(2) == [b"x"]
    assert group.image(1).glsns() == group.image(2).glsns() == {1: 1}


def test_a_cut_of_an_earlier_term_is_applied_by_who_follows_a_later_leader() -> None:
    group = a_group(b"x")
    group.report()
    assert group.cut()
    group.elect(2, 3)
    group.deliver()
    group.tell_cuts(3)
    assert group[3].context.llsn_end == 2


def test_an_ordered_append_takes_one_message_to_each_follower_and_one_back() -> None:
    group = a_group(b"x")
    group.order_all()
    group.append(1, b"y")
    requests = group.take_messages(of(AddEntriesRequest))
    assert [each.target for each in requests] == [NODE_2, NODE_3]
    for request in requests:
        group.step(request)
    answers = group.take_messages(of(AddEntriesResponse))
    assert [each.source for each in answers] == [NODE_2, NODE_3]
    for answer in answers:
        group.step(answer)
    group.report()
    group.cut()
    group.tell_cuts()
    assert [group[number].context.llsn_end for number in (1, 2, 3)] == [3, 3, 3]
    assert not group.take_messages()


def test_a_quiet_follower_is_told_the_commit_index_once_and_by_the_next_tick() -> None:
    group = Group(1, 2, 3, options=ReplicaOptions(heartbeat_ticks=100, resend_ticks=100))
    group.elect(1, 2, 3)
    group.append(1, b"x")
    group.deliver()
    group.tick()
    assert len(group.take_messages(of(AddEntriesRequest, target=2))) == 1
    group.tick(times=10)
    assert not group.take_messages(of(AddEntriesRequest, target=2))


def test_a_cut_of_a_later_term_is_not_applied_to_entries_of_an_earlier_one() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.deliver()
    group.isolate(1)
    group.append(1, b"stale")
    group.elect(2, 3)
    group.append(2, b"x")
    group.order_all()
    assert group.row.llsn_end == 2
    group.tell_cuts(1)
    assert group[1].context == NONE
    group.fence(1, 3)
    group.tell_cuts(1)
    assert group[1].context == NONE
    group.heal()
    group.add_follower(2, 1)
    group.order_all()
    assert group[1].context.llsn_end == 2
    assert group.data(1) == [b"x"]


def test_a_cut_is_applied_by_a_fenced_replica_that_knows_it_committed() -> None:
    group = a_group(b"x")
    group.pass_time(1)
    group.report()
    group.cut()
    group.fence(2, 3)
    group.tell_cuts(2)
    assert group[2].context.llsn_end == 2


def test_a_repeated_cut_changes_nothing() -> None:
    group = a_group(b"x")
    group.report()
    group.cut()
    commits = group.order.commits_after(STREAM, Version(0))
    assert commits is not None
    for _ in range(2):
        group[1].commit(commits, group.order.version)
        group.collect(1)
    assert group[1].context.version == 1
    assert group.image(1).glsns() == {1: 1}


def test_cuts_are_applied_in_the_order_of_versions() -> None:
    group = a_group(b"x")
    group.report()
    group.cut()
    group.append(1, b"y")
    group.deliver()
    group.report()
    group.cut()
    commits = group.order.commits_after(STREAM, Version(0))
    assert commits is not None
    assert len(commits) == 2
    group[2].commit(commits, group.order.version)
    group.collect(2)
    assert group.image(2).glsns() == {1: 1, 2: 2}
    assert group[2].context.version == 2


def test_a_cut_that_does_not_begin_where_the_last_one_ended_is_not_applied() -> None:
    group = a_group(b"x")
    group.report()
    group.cut()
    group.append(1, b"y")
    group.deliver()
    group.report()
    group.cut()
    commits = group.order.commits_after(STREAM, Version(0))
    assert commits is not None
    group[2].commit(commits[1:], group.order.version)
    group.collect(2)
    assert group[2].context == NONE


def test_what_a_crash_took_of_a_cut_comes_again_from_the_history() -> None:
    group = a_group(b"x")
    group.report()
    group.cut()
    group.hold_back(2)
    group.tell_cuts(2)
    group.restart(2)
    assert group[2].context == NONE
    group.pass_time(30)
    group.tell_cuts(2)
    assert group[2].context.llsn_end == 2


def test_an_order_that_nobody_has_stored_is_told_again_after_all_have_crashed() -> None:
    """A client was told of it, and only the metadata repository knows it."""
    group = a_group(b"x")
    group.report()
    group.cut()
    group.hold_back(1, 2, 3)
    group.tell_cuts(1, 2, 3)
    told = group[1].context
    assert group.members[1].ordered == told.llsn_end == 2
    group.restart(1, 2, 3)
    assert [group[node].context for node in (1, 2, 3)] == [NONE] * 3
    group.elect(2, 1, 3)
    group.tell_cuts(1, 2, 3)
    group.pass_time(30)
    assert [group[node].context for node in (1, 2, 3)] == [told] * 3


def test_a_restarted_replica_goes_on_from_its_context() -> None:
    group = a_group(b"x", b"y")
    group.order_all()
    group.append(1, b"z")
    group.deliver()
    group.restart(2)
    assert group[2].context == group[1].context
    group.pass_time(30)
    report = group[2].report()
    assert report is not None
    assert (report.version, report.llsn_begin, report.length) == (1, 3, 1)


def test_replicas_have_the_same_glsns_whatever_cuts_they_heard_when() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    for number in range(6):
        group.append(1, b"%d" % number)
        group.deliver()
        group.report()
        group.cut()
        group.tell_cuts(*([1], [1, 2], [3, 1])[number % 3])
    group.order_all()
    group.tell_cuts()
    assert group.image(1).glsns() == group.image(2).glsns() == group.image(3).glsns()
    assert len(group.image(1).glsns()) == 6


# -- behind --------------------------------------------------------------------------------------


def a_replica_whose_history_is_gone() -> Group:
    """All have all entries; node 3 heard of no cut."""
    group = a_group(b"x", b"y")
    group.report()
    group.cut()
    group.tell_cuts(1, 2)
    group.append(1, b"z")
    group.deliver()
    group.report()
    group.cut()
    group.tell_cuts(1, 2)
    group[3].fall_behind(group.order.version)
    group.collect(3)
    return group


def test_a_replica_that_is_behind_is_silent_and_asks_its_leader() -> None:
    group = a_replica_whose_history_is_gone()
    assert group[3].is_behind
    assert group[3].report() is None
    group.tick()
    assert group.take_messages(of(CutsRequest, source=3))


def test_a_replica_that_is_behind_gets_glsns_and_context_from_its_leader() -> None:
    group = a_replica_whose_history_is_gone()
    group.pass_time(30)
    assert not group[3].is_behind
    assert group.image(3).glsns() == group.image(1).glsns()
    assert group[3].context.llsn_end == group[1].context.llsn_end
    assert group[3].report() is not None


def test_a_repeated_answer_with_cuts_changes_nothing() -> None:
    group = a_replica_whose_history_is_gone()
    group.tick()
    group.deliver(of(CutsRequest, AddEntriesRequest))
    answers = group.take_messages(of(CutsResponse))
    assert answers
    for _ in range(2):
        for answer in answers:
            group.step(answer)
    assert group.image(3).glsns() == group.image(1).glsns()


def test_a_replica_that_is_behind_goes_on_asking_after_an_election() -> None:
    group = a_replica_whose_history_is_gone()
    group.drop()
    group.elect(2, 3)
    group.pass_time(30)
    assert group[3].role is Role.FOLLOWER
    assert not group[3].is_behind
    assert group.image(3).glsns() == group.image(1).glsns()


def test_place_raises_the_version_of_a_replica_that_has_all_that_is_ordered() -> None:
    group = a_group(b"x")
    group.order_all()
    group[2].place(Llsn(2), Version(7))
    group.collect(2)
    assert not group[2].is_behind
    report = group[2].report()
    assert report is not None
    assert (report.version, report.llsn_begin) == (7, 2)


def test_place_makes_a_replica_ask_that_lacks_what_is_ordered() -> None:
    group = a_group(b"x")
    group.report()
    group.cut()
    group.tell_cuts(1, 2)
    group[3].place(Llsn(2), group.order.version)
    group.collect(3)
    assert group[3].is_behind
    group.pass_time(30)
    assert group[3].context.llsn_end == 2


# -- trimming ------------------------------------------------------------------------------------


def test_unordered_entries_are_not_trimmed() -> None:
    group = a_group(b"x", b"y")
    group.report()
    group.cut()
    group.tell_cuts(1)
    group.append(1, b"z")
    group.deliver()
    group.trim(1, 4)
    assert b"z" in group.data(1)
    group.order_all()
    assert group[1].context.llsn_end == 4


def test_an_idle_replica_that_trimmed_all_still_replicates() -> None:
    """Its head is known though nothing of it is left; nobody loops."""
    group = a_group(b"x", b"y")
    group.order_all()
    group.trim(1, 3)
    group.append(1, b"z")
    group.order_all()
    assert group.data(2) == [b"x", b"y", b"z"]


def test_a_replica_that_trimmed_all_is_still_elected_by_its_head() -> None:
    group = a_group(b"x", b"y")
    group.order_all()
    group.trim(2, 3)
    group.restart(2)
    group.elect(2, 3)
    group.append(2, b"z")
    group.order_all()
    assert group.data(3) == [b"x", b"y", b"z"]
