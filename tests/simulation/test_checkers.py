"""Every checker fires on the break that it is for, and is silent without it."""

from __future__ import annotations

import pytest

from tidelog.core.metadata.commands import (
    Batch,
    Command,
    RegisterNode,
    Request,
    decode_batch,
    encode_batch,
)
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.core.metadata.messages import CommitResult
from tidelog.core.order.commands import (
    CreateTopic,
    Cut,
    CutDecided,
    NewStream,
    Report,
    StreamCommit,
)
from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    RaftTerm,
    Snapshot,
    SnapshotHead,
    Stored,
)
from tidelog.core.raft.messages import AppendAnswer, VoteAnswer, VoteRequest
from tidelog.core.raft.output import Write
from tidelog.testing.checkers.acked_durable import check_committed_durable
from tidelog.testing.checkers.acked_present import AckedPresent
from tidelog.testing.checkers.answers import Answers
from tidelog.testing.checkers.bounded import Bounded
from tidelog.testing.checkers.idle import check_idle
from tidelog.testing.checkers.liveness import check_liveness
from tidelog.testing.checkers.order_agreement import OrderAgreement
from tidelog.testing.checkers.promises import Promises
from tidelog.testing.checkers.raft_safety import RaftSafety
from tidelog.testing.checkers.reads import Reads
from tidelog.testing.checkers.real_time import AckedAppend, check_real_time
from tidelog.testing.checkers.stored import check_stored
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.sometimes import Kind, Rare, Sometimes, expected, never
from tidelog.testing.violation import Violation
from tidelog.types import FIRST_LLSN, Glsn, Llsn, NodeId, StreamId, Term, TopicId, Version

N1, N2, N3 = NodeId(1), NodeId(2), NodeId(3)
VOTERS = Membership((N1, N2, N3))
TOPIC, STREAM = TopicId(1), StreamId(1)


def entry(index: int, term: int, data: bytes = b"x") -> Entry:
    return Entry(Index(index), RaftTerm(term), EntryKind.COMMAND, data)


def log(*terms: int, vote: NodeId = N1) -> ShadowLog:
    """A log whose entries have these terms."""
    head = SnapshotHead(Index(0), RaftTerm(0), VOTERS)
    entries = tuple(entry(index, term) for index, term in enumerate(terms, 1))
    hard_state = HardState(RaftTerm(max(terms, default=0)), vote)
    return ShadowLog(Stored(hard_state, Snapshot(head, b""), entries))


def write(*entries: Entry, sequence: int = 1) -> Write:
    return Write(sequence, entries=entries)


def safety() -> RaftSafety:
    return RaftSafety(Sometimes(), lambda entry: None)


def committed(*terms: int) -> RaftSafety:
    """A group whose leader, node 1, has committed entries of these terms."""
    group = safety()
    entries = [entry(index, term) for index, term in enumerate(terms, 1)]
    group.on_write(N1, write(*entries), log(*terms))
    group.on_commit(N1, Index(len(terms)), log(*terms), leads=True)
    return group


# Raft.


def test_two_leaders_of_one_term_are_found() -> None:
    group = safety()
    group.on_leader(N1, RaftTerm(3), log())
    group.on_leader(N1, RaftTerm(3), log())
    group.on_leader(N2, RaftTerm(4), log())
    with pytest.raises(Violation, match="election safety"):
        group.on_leader(N2, RaftTerm(3), log())


def test_a_leader_without_a_committed_entry_is_found() -> None:
    group = committed(1, 1)
    group.on_leader(N2, RaftTerm(2), log(1, 1))
    with pytest.raises(Violation, match="leader completeness"):
        group.on_leader(N3, RaftTerm(3), log(1))


def test_one_name_for_two_entries_is_found() -> None:
    group = committed(1)
    with pytest.raises(Violation, match="log matching"):
        group.on_write(N2, write(entry(1, 1, b"another")), log(1))


def test_one_entry_with_two_pasts_is_found() -> None:
    group = committed(1, 2)
    with pytest.raises(Violation, match="log matching"):
        group.on_write(N2, write(entry(2, 2)), log(2, 2))


def test_a_follower_that_commits_on_its_own_is_found() -> None:
    group = committed(1)
    group.on_write(N1, write(entry(2, 1)), log(1, 1))
    with pytest.raises(Violation, match="no leader got beyond"):
        group.on_commit(N2, Index(2), log(1, 1), leads=False)


def test_a_node_that_commits_another_entry_is_found() -> None:
    group = committed(1, 1)
    group.on_commit(N2, Index(2), log(1, 1), leads=False)
    with pytest.raises(Violation, match="state machine"):
        group.on_commit(N2, Index(2), log(1, 2), leads=False)


def test_a_node_that_applies_what_nobody_committed_is_found() -> None:
    group = committed(1)
    group.on_apply(N2, entry(1, 1))
    with pytest.raises(Violation, match="nobody committed"):
        group.on_apply(N2, entry(2, 1))


def test_a_snapshot_of_another_history_is_found() -> None:
    group = committed(1, 1)
    head = SnapshotHead(Index(2), RaftTerm(2), VOTERS)
    with pytest.raises(Violation, match="installs"):
        group.on_install(N2, Snapshot(head, b""))


def test_a_commit_that_a_minority_has_on_disk_is_found() -> None:
    leader = log(1, 1)
    check_committed_durable(N1, Index(2), leader, {N1: log(1), N2: log(1, 1), N3: log(1, 1)})
    with pytest.raises(Violation, match="acked_durable"):
        check_committed_durable(N1, Index(2), leader, {N1: log(1, 1), N2: log(1), N3: log(1, 2)})


def test_a_vote_that_is_not_on_disk_is_found() -> None:
    promises = Promises()
    answer = VoteAnswer(N2, N1, RaftTerm(1), True)
    promises.on_message(answer, log(1), log(1, vote=N1))
    with pytest.raises(Violation, match="promises"):
        promises.on_message(answer, log(1), log(1, vote=NodeId(0)))


def test_a_candidate_that_asks_before_its_own_vote_is_on_disk_is_found() -> None:
    request = VoteRequest(N1, N2, RaftTerm(2), Index(1), RaftTerm(1), False)
    with pytest.raises(Violation, match="promises"):
        Promises().on_message(request, log(1), log(1, vote=N1))


def test_a_second_vote_in_a_term_is_found_whatever_the_disk_says() -> None:
    promises = Promises()
    promises.on_message(VoteAnswer(N3, N1, RaftTerm(1), True), log(1), log(1, vote=N1))
    with pytest.raises(Violation, match="votes for 1 and for 2"):
        promises.on_message(VoteAnswer(N3, N2, RaftTerm(1), True), log(1), log(1, vote=N2))


def test_an_acknowledgement_that_is_not_on_disk_is_found() -> None:
    promises = Promises()
    answer = AppendAnswer(N2, N1, RaftTerm(1), Index(2))
    promises.on_message(answer, log(1, 1), log(1, 1))
    with pytest.raises(Violation, match="acknowledges index 2"):
        promises.on_message(answer, log(1, 1), log(1))


def test_a_disk_that_forgot_a_synced_entry_is_found() -> None:
    head = SnapshotHead(Index(0), RaftTerm(0), VOTERS)
    found = Stored(HardState(RaftTerm(1), N1), Snapshot(head, b""), (entry(1, 1),))
    unsynced = write(entry(2, 1))
    check_stored(N1, found, log(1), [unsynced])
    with pytest.raises(Violation, match="stored"):
        check_stored(N1, found, log(1, 1), [unsynced])


def test_an_unsynced_write_may_be_there_or_not_but_not_without_those_before_it() -> None:
    head = SnapshotHead(Index(0), RaftTerm(0), VOTERS)
    hard_state = HardState(RaftTerm(1), N1)
    writes = [write(entry(2, 1)), write(entry(3, 1))]
    for count in (1, 2, 3):
        entries = tuple(entry(index, 1) for index in range(1, count + 1))
        check_stored(N1, Stored(hard_state, Snapshot(head, b""), entries), log(1), writes)
    with pytest.raises(Violation, match="stored"):
        check_stored(N1, Stored(hard_state, Snapshot(head, b""), ()), log(1), writes)


def test_a_stale_read_is_found() -> None:
    reads = Reads()
    fresh, stale = reads.begin(Index(3)), reads.begin(Index(5))
    assert reads.serve(N1, fresh, Index(3))
    with pytest.raises(Violation, match="reads"):
        reads.serve(N1, stale, Index(4))


def test_an_acknowledged_command_that_is_gone_is_found() -> None:
    acked = AckedPresent()
    acked.on_acknowledge(entry(1, 1))
    acked.check(committed(1))
    with pytest.raises(Violation, match="acked_present"):
        acked.check(committed(2))


def test_a_group_that_does_not_get_on_is_found() -> None:
    check_liveness(True, "all is well")
    with pytest.raises(Violation, match="nobody leads"):
        check_liveness(False, "nobody leads")


# The metadata repository.


def commit(glsn: int, llsn: int, length: int, watermark: int = 0) -> StreamCommit:
    return StreamCommit(
        TOPIC, STREAM, Glsn(watermark or glsn + length - 1), Glsn(glsn), Llsn(llsn), length
    )


def batch_entry(index: int, *commands: Command) -> Entry:
    return Entry(Index(index), RaftTerm(1), EntryKind.COMMAND, encode_batch(Batch(commands)))


def agreement_with_a_cut() -> tuple[OrderAgreement, list[Entry]]:
    """Three entries that order two records of a stream."""
    topic = CreateTopic(TOPIC, (NewStream(STREAM, (NodeId(101),)),), "t")
    entries = [
        batch_entry(1, Request(N1, 1, RegisterNode(NodeId(101)))),
        batch_entry(2, Request(N1, 2, topic)),
        batch_entry(3, Report(NodeId(101), STREAM, Term(1), Version(0), FIRST_LLSN, 2), Cut()),
    ]
    agreement = OrderAgreement()
    for one in entries:
        agreement.on_committed(one)
    return agreement, entries


def test_a_metadata_node_that_decided_other_cuts_is_found() -> None:
    agreement, entries = agreement_with_a_cut()
    same, other = MetadataMachine(), MetadataMachine()
    for one in entries:
        same.apply(decode_batch(one.data))
    agreement.on_applied(N1, same, Index(3))
    for one in entries[:2]:
        other.apply(decode_batch(one.data))
    report = Report(NodeId(101), STREAM, Term(1), Version(0), FIRST_LLSN, 1)
    other.apply(Batch((report, Cut())))
    with pytest.raises(Violation, match="order_agreement"):
        agreement.on_applied(N2, other, Index(3))


def test_a_gap_in_the_glsns_is_found() -> None:
    agreement, _ = agreement_with_a_cut()
    agreement._on_cut(CutDecided(Version(2), (commit(3, 3, 1),)))
    with pytest.raises(Violation, match="dense"):
        agreement._on_cut(CutDecided(Version(3), (commit(5, 4, 1),)))


def test_an_append_before_one_that_had_returned_is_found() -> None:
    check_real_time([AckedAppend(1, 0, 10), AckedAppend(2, 5, 12), AckedAppend(3, 11, 20)])
    with pytest.raises(Violation, match="real_time"):
        check_real_time([AckedAppend(2, 0, 10), AckedAppend(1, 11, 20)])


def test_one_glsn_for_two_appends_is_found() -> None:
    with pytest.raises(Violation, match="two appends"):
        check_real_time([AckedAppend(1, 0, 10), AckedAppend(1, 5, 12)])


def test_an_answer_to_a_change_that_is_not_committed_is_found() -> None:
    answers = Answers()
    change = RegisterNode(NodeId(101))
    answers.on_committed(batch_entry(1, Request(N1, 1, change)))
    answers.on_answer(N1, change)
    with pytest.raises(Violation, match="answers"):
        answers.on_answer(N2, change)


def test_a_commit_result_without_news_is_found() -> None:
    with pytest.raises(Violation, match="bounded"):
        Bounded().on_commit_result(CommitResult(N1, NodeId(101), Version(3), Version(3), 1, (), ()))


def test_entries_that_an_idle_cluster_writes_are_found() -> None:
    check_idle(7, 7)
    with pytest.raises(Violation, match="idle"):
        check_idle(7, 8)


def test_a_rare_thing_that_never_happened_is_named() -> None:
    counts = dict.fromkeys(expected(Kind.RAFT), 1)
    assert never(counts, Kind.RAFT) == []
    assert never({**counts, Rare.TORN_WRITE: 0}, Kind.RAFT) == [Rare.TORN_WRITE]
    assert Rare.CUT_DECIDED in never(counts, Kind.CLUSTER)
