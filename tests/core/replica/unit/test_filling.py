"""Synchronisations, part by part: a leader's side and a follower's, each without the other."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.replica.unit.alone import LEADER, ME, OPERATOR, STREAM, Alone, batch, cut, entry
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    FenceResponse,
    FollowerHead,
    Message,
    Reason,
    Refusal,
    SnapshotRequest,
    SnapshotResponse,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
    TruncateRequest,
)
from tidelog.core.replica.options import CursorKind, Ignored, ReplicaOptions
from tidelog.core.replica.output import Filled, HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.core.replica.replica import Replica, Stored
from tidelog.core.replica.sync_state import SyncState, decode_sync_state, encode_sync_state
from tidelog.types import Llsn, NodeId, Term, Version

FOLLOWER = NodeId(2)
SMALL = ReplicaOptions(message_bytes_max=1, resend_ticks=3, heartbeat_ticks=100)
"""One batch in each message."""


# -- the leader's side ---------------------------------------------------------------------------


def a_leader(entries: int, *, ordered: int) -> Alone:
    """A leader with one follower, which is not complete."""
    alone = Alone(SMALL)
    alone.lead(2)
    for _ in range(entries):
        alone.append(b"x")
    alone.replica.commit([cut(1, 1, ordered)], Version(1))
    alone.carry_out()
    alone.restart()
    alone.lead(3, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, NO_ENTRY, False),))
    return alone


def begun(number: int, begin: int, ordered_end: int = 1) -> SyncInitResponse:
    return SyncInitResponse(FOLLOWER, ME, STREAM, Term(3), number, Llsn(begin), Llsn(ordered_end))


def received(number: int, end: int) -> SyncEntriesResponse:
    return SyncEntriesResponse(FOLLOWER, ME, STREAM, Term(3), number, Llsn(end))


def inits(messages: list[Message]) -> list[SyncInitRequest]:
    return [each for each in messages if isinstance(each, SyncInitRequest)]


def parts(messages: list[Message]) -> list[tuple[int, int, int]]:
    return [
        (each.number, each.begin, each.end)
        for each in messages
        if isinstance(each, SyncEntriesRequest)
    ]


def test_one_part_is_on_its_way_at_a_time_and_is_repeated_until_it_is_answered() -> None:
    alone = a_leader(3, ordered=2)
    assert parts(alone.step(begun(1, 1))) == [(1, 1, 2)]
    assert parts(alone.tick(2)) == []
    assert parts(alone.tick()) == [(1, 1, 2)]
    assert parts(alone.step(received(1, 2))) == [(1, 2, 3)]
    assert parts(alone.step(received(1, 2))) == [], "the answer to the first part, repeated"


def test_the_last_part_brings_the_rest_and_then_the_follower_is_attached() -> None:
    alone = a_leader(2, ordered=2)
    (last,) = alone.step(begun(1, 3, 2))
    assert isinstance(last, SyncEntriesRequest)
    assert (last.begin, last.end, last.runs) == (3, 3, (GlsnRun(Llsn(2), 2, 1),))
    assert last.context == CommitContext(1, 2, 1, 1, 2)
    state = decode_sync_state(last.state)
    assert state is not None
    assert state.filled.terms == ((2, 1),)
    alone.step(received(1, 3))
    assert alone.replica.cursors[FOLLOWER].kind is CursorKind.ATTACHED
    assert not alone.replica.is_filling


@pytest.mark.parametrize(
    "answer",
    [begun(2, 1), received(1, 2), begun(1, 9)],
    ids=["another number", "a part that was not sent", "a place beyond the log"],
)
def test_an_answer_to_something_else_is_ignored(answer: SyncInitResponse) -> None:
    alone = a_leader(3, ordered=2)
    assert parts(alone.step(answer)) == []
    assert alone.replica.ignored[Ignored.LATE] == 1


def test_a_part_waits_for_a_store_that_has_to_fetch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = a_leader(3, ordered=2)
    with monkeypatch.context() as slow:
        slow.setattr(alone.disk, "batches", lambda *_: None)
        assert parts(alone.step(begun(1, 1))) == []
    with monkeypatch.context() as slow:
        slow.setattr(alone.disk, "runs", lambda *_: None)
        assert parts(alone.tick()) == []
    assert parts(alone.tick()) == [(1, 1, 2)]


def test_a_synchronisation_begins_anew_when_what_it_has_not_sent_is_compacted() -> None:
    alone = a_leader(3, ordered=2)
    alone.step(begun(1, 1))
    alone.sent.clear()
    alone.disk.compact(Llsn(2), frozenset({1}), b"state")
    alone.replica.compacted(Llsn(2))
    alone.carry_out()
    (again,) = inits(alone.sent)
    assert (again.number, again.snapshot_index) == (2, 2)
    assert parts(alone.step(begun(2, 1))) == [(2, 1, 3)], "the dead entry is left out"


def test_a_synchronisation_goes_on_when_what_it_has_sent_is_trimmed() -> None:
    alone = a_leader(3, ordered=2)
    alone.step(begun(1, 3, 3))
    alone.sent.clear()
    alone.replica.trim(Llsn(3))
    alone.carry_out()
    assert inits(alone.sent) == []


def test_a_follower_whose_next_entries_were_compacted_is_filled_up() -> None:
    alone = a_leader(3, ordered=3)
    alone.restart()
    alone.disk.compact(Llsn(2), frozenset({2}), b"state")
    alone.replica.compacted(Llsn(2))
    alone.lead(4, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, entry(2, 1), True),))
    assert alone.replica.cursors[FOLLOWER].kind is CursorKind.SYNCHRONISING


def test_a_follower_that_falls_behind_a_snapshot_is_filled_up() -> None:
    """It was attached; what it lacks is compacted away before it was sent."""
    alone = a_leader(3, ordered=3)
    alone.restart()
    alone.lead(4, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, entry(2, 1), True),))
    alone.disk.compact(Llsn(3), frozenset({2, 3}), b"state")
    alone.replica.compacted(Llsn(3))
    assert len(inits(alone.tick(3))) == 1


# -- the follower's side -------------------------------------------------------------------------


def init(
    head: EntryId,
    *,
    number: int = 1,
    first: int = 1,
    context: CommitContext = NONE,
    snapshot: int = 0,
    terms: tuple[tuple[int, int], ...] = ((2, 1),),
) -> SyncInitRequest:
    runs = tuple((Term(term), Llsn(begin)) for term, begin in terms)
    return SyncInitRequest(
        LEADER,
        ME,
        STREAM,
        Term(2),
        Term(2),
        number,
        Llsn(first),
        head,
        context,
        Llsn(snapshot),
        runs,
    )


def part(
    begin: int, end: int, *batches: Batch, of: SyncInitRequest | None = None, number: int = 1
) -> SyncEntriesRequest:
    """A part; with ``of`` the last one of that synchronisation."""
    state = b""
    if of is not None:
        filled = Filled(Llsn(of.head.llsn + 1), of.snapshot_index, of.terms, ())
        state = encode_sync_state(SyncState(filled, b"state"))
    return SyncEntriesRequest(
        LEADER,
        ME,
        STREAM,
        Term(2),
        Term(2),
        number,
        Llsn(begin),
        Llsn(end),
        batches,
        (),
        None if of is None else of.context,
        state,
    )


def a_new_node() -> Alone:
    alone = Alone()
    alone.fence(2, is_first=False)
    return alone


def test_a_replica_is_filled_up_part_by_part() -> None:
    alone, beginning = a_new_node(), init(entry(2, 2))
    (answer,) = alone.step(beginning)
    assert isinstance(answer, SyncInitResponse)
    assert (answer.begin, answer.ordered_end) == (1, 1)
    (answer,) = alone.step(part(1, 2, batch(2, 1)))
    assert isinstance(answer, SyncEntriesResponse)
    assert (answer.end, alone.replica.is_complete) == (2, False)
    (answer,) = alone.step(part(2, 3, batch(2, 2), of=beginning))
    assert isinstance(answer, SyncEntriesResponse)
    assert answer.end == 3
    assert alone.replica.is_complete
    assert alone.disk.durable.state == b"state"
    alone.restart()
    assert (alone.replica.is_complete, alone.replica.head) == (True, entry(2, 2))


def test_repeated_words_of_a_leader_are_answered_again_and_change_nothing() -> None:
    alone, beginning = a_new_node(), init(entry(2, 2))
    first, last = part(1, 2, batch(2, 1)), part(2, 3, batch(2, 2), of=beginning)
    for message in (beginning, first):
        alone.step(message)
    assert len(alone.step(beginning)) == len(alone.step(first)) == 1
    alone.step(last)
    (answer,) = alone.step(last)
    assert isinstance(answer, SyncEntriesResponse)
    assert answer.end == 3
    assert alone.step(beginning) == [], "it is over"
    assert alone.replica.is_complete


def test_an_older_synchronisation_is_ignored() -> None:
    alone = a_new_node()
    alone.step(init(entry(2, 2), number=3))
    assert alone.step(init(entry(2, 2), number=2)) == []
    assert alone.step(part(1, 2, batch(2, 1), number=2)) == []
    assert alone.replica.ignored == {Ignored.LATE: 2}


def test_a_part_of_an_unknown_synchronisation_is_answered_by_a_request_to_begin() -> None:
    alone = a_new_node()
    assert alone.step(part(1, 2, batch(2, 1))) == [SyncRequest(ME, LEADER, STREAM, Term(2))]
    assert alone.tick(4) == [SyncRequest(ME, LEADER, STREAM, Term(2))]


BAD_PARTS = {
    "a gap above the snapshot": part(1, 3, batch(2, 2)),
    "an end beyond its entries": part(1, 3, batch(2, 1)),
    "an end beyond the head": part(1, 5, *(batch(2, llsn) for llsn in range(1, 5))),
    "the end without the context": part(1, 4, *(batch(2, llsn) for llsn in range(1, 4))),
    "the context before the end": part(1, 2, batch(2, 1), of=init(entry(2, 3))),
    "GLSNs of what is not ordered": replace(
        part(1, 2, batch(2, 1)), runs=(GlsnRun(Llsn(1), 1, 1),)
    ),
    "no state": replace(
        part(1, 4, *(batch(2, llsn) for llsn in range(1, 4))), context=NONE, state=b"\xc1"
    ),
    "the state of another log": part(
        1, 4, *(batch(2, llsn) for llsn in range(1, 4)), of=init(entry(2, 2))
    ),
}


@pytest.mark.parametrize("name", BAD_PARTS)
def test_a_part_that_was_not_announced_is_ignored(name: str) -> None:
    alone = a_new_node()
    alone.step(init(entry(2, 3)))
    assert alone.step(BAD_PARTS[name]) == []
    assert alone.replica.ignored == {Ignored.NONSENSE: 1}
    assert alone.replica.head == NO_ENTRY


def test_producers_beyond_the_log_are_no_sound_state() -> None:
    producer = ProducerState(7, 3, ((3, 2, 2),))
    filled = Filled(Llsn(4), Llsn(0), (), (producer,))
    assert decode_sync_state(encode_sync_state(SyncState(filled, b""))) is not None
    short = replace(filled, end=Llsn(3))
    assert decode_sync_state(encode_sync_state(SyncState(short, b""))) is None


def test_what_both_logs_have_is_kept_and_the_rest_is_cut() -> None:
    alone = Alone()
    alone.follow(1, batch(1, 1), batch(1, 2), batch(1, 3))
    alone.fence(2)
    (answer,) = alone.step(init(entry(2, 5), terms=((1, 1), (2, 3))))
    assert isinstance(answer, SyncInitResponse)
    assert answer.begin == 3
    assert alone.disk.durable.end == 3
    assert alone.replica.is_complete, "only what no leader knows was cut"


def test_a_synchronisation_of_one_part_leaves_no_time_in_which_the_replica_is_incomplete() -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1))
    beginning = init(entry(2, 2))
    alone.step(beginning, part(2, 3, batch(2, 2), of=beginning))
    states = [output.write.hard_state for output in alone.outputs if output.write is not None]
    assert all(state is None or state.is_complete for state in states)
    assert alone.replica.head == entry(2, 2)


def test_a_replica_that_is_filled_in_part_knows_what_it_had() -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1))
    alone.step(init(entry(2, 3)), part(2, 3, batch(2, 2)))
    alone.restart()
    (answer,) = alone.fence(3, is_first=False)
    assert isinstance(answer, FenceResponse)
    assert (answer.is_complete, answer.had) == (False, entry(2, 1))


def test_a_log_that_the_leaders_does_not_reach_back_to_is_wiped() -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1), batch(2, 2), commit=2)
    context = CommitContext(4, 6, 1, 1, 6)
    beginning = init(entry(2, 7), first=6, context=context)
    (answer,) = alone.step(beginning)
    assert isinstance(answer, SyncInitResponse)
    assert (answer.begin, answer.ordered_end) == (6, 6)
    state = alone.disk.durable.hard_state
    assert state is not None
    assert (state.is_complete, state.had) == (False, entry(2, 2))
    assert alone.disk.durable.batches == ()


@pytest.mark.parametrize("is_sound", [True, False])
def test_a_leader_that_has_trimmed_beyond_its_snapshot_brings_its_state(is_sound: bool) -> None:
    alone = Alone()
    stored = Stored(HardState(Term(1), is_complete=False), is_sound=is_sound)
    alone.replica = Replica(ME, STREAM, stored, alone.disk, alone.options)
    alone.fence(2, is_first=False)
    context = CommitContext(4, 6, 1, 1, 6)
    beginning = init(entry(2, 6), first=6, context=context, snapshot=3)
    alone.step(beginning, part(6, 7, batch(2, 6), of=beginning))
    assert alone.replica.is_complete
    assert alone.disk.durable.state == b"state"


def test_entries_from_the_log_end_a_synchronisation_that_has_brought_nothing() -> None:
    """A late beginning must not make a follower deaf; a leader that still fills it begins anew."""
    alone = Alone()
    alone.follow(2, batch(2, 1))
    alone.step(init(entry(2, 3)))
    (answer,) = alone.add_entries(2, entry(2, 1), batch(2, 2))
    assert isinstance(answer, AddEntriesResponse)
    assert answer.confirmed == 2
    assert alone.step(part(2, 3, batch(2, 2))) == [SyncRequest(ME, LEADER, STREAM, Term(2))]
    assert alone.replica.head == entry(2, 2)


def test_nobody_else_adds_to_a_log_that_is_filled_in_part() -> None:
    alone = a_new_node()
    alone.step(init(entry(2, 3)), part(1, 2, batch(2, 1)))
    (answer,) = alone.add_entries(2, entry(2, 1), batch(2, 2), commit=2)
    assert isinstance(answer, AddEntriesRefusal)
    assert not answer.is_complete
    late = TruncateRequest(LEADER, ME, STREAM, Term(2), Term(2), entry(2, 1), NO_ENTRY)
    (answer,) = alone.step(late)
    assert isinstance(answer, AddEntriesRefusal)
    assert alone.replica.head == entry(2, 1)
    assert alone.step(part(2, 3, batch(2, 2))) != [], "it goes on"


def test_a_leader_that_has_less_than_is_settled_here_fills_nothing_up() -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1), batch(2, 2), commit=2)
    assert alone.step(init(entry(2, 1))) == []
    assert alone.replica.ignored == {Ignored.CONTRADICTION: 1}
    assert alone.replica.head == entry(2, 2)


# -- for an operator -----------------------------------------------------------------------------


def snapshot(term: int, head: EntryId, *, leader: NodeId = LEADER) -> SnapshotRequest:
    return SnapshotRequest(OPERATOR, ME, STREAM, Term(term), Term(2), leader, head)


def test_an_operator_is_answered_whenever_it_asks_once_the_snapshot_is_here() -> None:
    alone, beginning = Alone(), init(entry(2, 1))
    assert alone.step(snapshot(2, entry(2, 1))) == [SyncRequest(ME, LEADER, STREAM, Term(2))]
    assert alone.step(snapshot(2, entry(2, 1))) == []
    answers = alone.step(beginning, part(1, 2, batch(2, 1), of=beginning))
    answer = SnapshotResponse(ME, OPERATOR, STREAM, Term(2), entry(2, 1))
    assert answer in answers
    assert alone.step(snapshot(2, entry(2, 1))) == [answer]
    alone.restart()
    assert alone.step(snapshot(2, entry(2, 1))) == [answer]


def test_a_snapshot_that_does_not_reach_far_enough_is_not_taken() -> None:
    alone = Alone()
    alone.step(snapshot(2, entry(2, 4)))
    assert alone.step(init(entry(2, 3))) == []
    assert alone.replica.ignored == {Ignored.CONTRADICTION: 1}


@pytest.mark.parametrize("leader", [LEADER, NodeId(3)], ids=["another head", "another leader"])
def test_a_member_that_is_complete_is_no_new_node(leader: NodeId) -> None:
    alone = Alone()
    alone.follow(2, batch(2, 1))
    (answer,) = alone.step(snapshot(2, entry(2, 5), leader=leader))
    assert isinstance(answer, Refusal)
    assert answer.reason is Reason.ROLE
    assert alone.replica.is_complete


def test_only_the_leader_that_the_operator_named_fills_a_new_node_up() -> None:
    alone = Alone()
    alone.step(snapshot(2, entry(2, 1), leader=NodeId(3)))
    assert alone.step(init(entry(2, 1))) == []
    assert alone.replica.ignored == {Ignored.SECOND_LEADER: 1}


# -- windows -------------------------------------------------------------------------------------


def pushed(messages: list[Message]) -> list[int]:
    return [
        each.previous.llsn
        for each in messages
        if isinstance(each, AddEntriesRequest) and each.batches
    ]


def test_a_leader_sends_only_as_much_as_may_be_on_its_way() -> None:
    options = ReplicaOptions(
        message_bytes_max=1, inflight_bytes_max=150, heartbeat_ticks=100, resend_ticks=3
    )
    alone = Alone(options)
    alone.lead(2, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, NO_ENTRY, True),))
    alone.sent.clear()
    for _ in range(5):
        alone.append(b"x")
    assert pushed(alone.sent) == [0, 1, 2]
    ack = AddEntriesResponse(FOLLOWER, ME, STREAM, Term(2), Llsn(1))
    assert pushed(alone.step(ack)) == [3]
    assert pushed(alone.tick(2)) == []
    assert pushed(alone.tick()) == [1, 2, 3], "nothing was answered for three ticks"


def test_a_leader_reads_old_entries_from_its_store() -> None:
    alone = Alone()
    alone.lead(2)
    for _ in range(3):
        alone.append(b"x")
    alone.restart()
    messages = alone.lead(
        3, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, entry(2, 1), True),)
    )
    requests = [each for each in messages if isinstance(each, AddEntriesRequest)]
    assert requests[0].previous == entry(2, 1)
    sent = [each for request in requests for each in request.batches]
    assert [(each.llsn_begin, each.is_control) for each in sent] == [
        (2, False),
        (3, False),
        (4, True),
    ]


def test_a_leader_whose_store_has_lost_entries_fills_its_follower_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone()
    alone.lead(2)
    for _ in range(3):
        alone.append(b"x")
    alone.restart()
    monkeypatch.setattr(alone.disk, "batches", lambda *_: (batch(2, 3),))
    alone.lead(3, ensemble=(1, 2), followers=(FollowerHead(FOLLOWER, entry(2, 1), True),))
    assert alone.replica.cursors[FOLLOWER].kind is CursorKind.SYNCHRONISING
