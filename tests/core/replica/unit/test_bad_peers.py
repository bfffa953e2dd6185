"""Whatever peers, operators and cuts say, a replica neither fails nor breaks its own invariants.

The messages are well typed, as the wire makes sure of; their numbers are chance, mostly close to
what would make sense at the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.replica.unit.alone import ME, STREAM, Alone, batch, entry
from tidelog import limits
from tidelog.core.order.commands import Quorum, StreamCommit, VersionedCommit
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import NO_ENTRY, Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import (
    AbortRequest,
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    BecomeLeaderRequest,
    ChangeKind,
    CommitRequest,
    CutsRequest,
    CutsResponse,
    DropRequest,
    FenceRequest,
    FollowerHead,
    PrepareRequest,
    Reason,
    Refusal,
    SnapshotRequest,
    StatusRequest,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
    ToReplica,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.core.replica.output import Filled
from tidelog.core.replica.producers import ProducerState
from tidelog.core.replica.replica import Ignored
from tidelog.core.replica.sync_state import SyncState, encode_sync_state
from tidelog.types import Glsn, Llsn, NodeId, StreamId, Term, TopicId, Version

Action: TypeAlias = Callable[[Alone], object]

near = st.integers(0, 6)
numbers = st.one_of(near, near, near, st.sampled_from([-1, limits.ORDER_NUMBER_END]))
llsns = numbers.map(Llsn)
terms = st.sampled_from([2, 2, 2, 2, 2, 2, 3, 3, 1, 4, 0]).map(Term)
nodes = st.sampled_from([2, 2, 2, 2, 3, 3, 1, 4, 0]).map(NodeId)
others = st.sampled_from([2, 2, 3, 4]).map(NodeId)
targets = st.sampled_from([ME] * 20 + [NodeId(2)])
streams = st.sampled_from([STREAM] * 20 + [StreamId(2)])
ids = st.one_of(
    st.builds(EntryId, st.integers(1, 2).map(Term), st.integers(1, 4).map(Llsn)),
    st.just(NO_ENTRY),
    st.builds(EntryId, terms, llsns),
)
heads = st.builds(FollowerHead, others, ids, st.booleans())
contexts = st.one_of(
    st.just(NONE),
    st.builds(lambda v, end: CommitContext(v, end, 1, 1, end), st.integers(1, 6), near),
    st.builds(CommitContext, near, near, near, near, near),
)
runs = st.one_of(
    st.builds(lambda n: (GlsnRun(Llsn(1), 1, n),), near),
    st.lists(st.builds(GlsnRun, llsns, numbers, numbers), max_size=3).map(tuple),
)
kinds = st.sampled_from(ChangeKind)


@st.composite
def batches(draw: st.DrawFn, previous: EntryId = NO_ENTRY) -> tuple[Batch, ...]:
    """Batches that join, more often than not."""
    made: list[Batch] = []
    end, term = previous.llsn + 1, max(previous.term, 1)
    for _ in range(draw(st.integers(0, 3))):
        term = draw(st.sampled_from([term, term, term, term + 1, 0]))
        end += draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
        count = draw(st.sampled_from([1, 1, 2, 0]))
        producer = draw(st.sampled_from([0, 0, 7]))
        sequence = draw(st.integers(1, 4)) if producer else 0
        made.append(batch(term, end, count, producer=producer, sequence=sequence))
        end += count
    return tuple(made)


@st.composite
def appends(draw: st.DrawFn) -> ToReplica:
    previous = draw(ids)
    return AddEntriesRequest(
        *draw(addresses),
        draw(terms),
        draw(terms),
        previous,
        draw(batches(previous)),
        draw(llsns),
    )


@st.composite
def parts(draw: st.DrawFn) -> ToReplica:
    begin = draw(st.integers(1, 4))
    entries = draw(batches(entry(1, begin - 1) if begin > 1 else NO_ENTRY))
    end = entries[-1].llsn_end if entries else begin
    producers = draw(
        st.lists(
            st.builds(ProducerState, near, near, st.tuples(st.tuples(near, near, near))), max_size=1
        ).map(tuple)
    )
    filled = Filled(Llsn(end), draw(llsns), draw(st.sampled_from([(), RUN])), producers)
    state = draw(st.sampled_from([b"", b"x", encode_sync_state(SyncState(filled, b"state"))]))
    return SyncEntriesRequest(
        *draw(addresses),
        draw(terms),
        draw(terms),
        draw(st.integers(0, 2)),
        Llsn(begin),
        draw(st.sampled_from([Llsn(end), Llsn(end), Llsn(end + 1)])),
        entries,
        draw(runs),
        draw(st.one_of(st.none(), contexts)),
        state,
    )


RUN = ((Term(1), Llsn(1)),)
addresses = st.tuples(nodes, targets, streams)
ensembles = st.sampled_from([(1, 2, 3), (1,), (1, 2), (2, 3), (1, 1), ()]).map(
    lambda each: tuple(map(NodeId, each))
)


def of(
    kind: Callable[..., ToReplica], *fields: st.SearchStrategy[object]
) -> st.SearchStrategy[ToReplica]:
    """Messages of a kind, to this replica or to another."""
    return st.builds(
        lambda address, term, *rest: kind(*address, term, *rest), addresses, terms, *fields
    )


messages: st.SearchStrategy[ToReplica] = st.one_of(
    of(FenceRequest, st.booleans()),
    of(
        BecomeLeaderRequest,
        ensembles,
        st.sampled_from(Quorum),
        st.lists(heads, max_size=2).map(tuple),
    ),
    of(AddFollowerRequest, heads),
    of(TruncateRequest, terms, ids, ids),
    of(TruncateResponse, ids),
    appends(),
    appends(),
    of(AddEntriesResponse, llsns),
    of(AddEntriesRefusal, ids, ids, st.booleans()),
    of(PrepareRequest, kinds, nodes, nodes),
    of(SnapshotRequest, terms, others, ids, st.integers(-1, 3).map(Version)),
    of(CommitRequest, kinds, nodes, nodes, ids),
    of(AbortRequest),
    of(DropRequest),
    of(StatusRequest),
    of(Refusal, terms, st.sampled_from(Reason)),
    of(SyncRequest),
    of(
        SyncInitRequest,
        terms,
        st.integers(0, 3),
        llsns,
        ids,
        contexts,
        llsns,
        st.sampled_from([(), RUN, RUN, ((Term(2), Llsn(2)), (Term(1), Llsn(1)))]),
    ),
    of(SyncInitResponse, near, llsns, llsns),
    parts(),
    of(SyncEntriesResponse, near, llsns),
    of(CutsRequest, llsns, numbers),
    of(CutsResponse, llsns, llsns, runs, contexts),
)

commits = st.builds(
    lambda version, mark, glsn, llsn, length: VersionedCommit(
        Version(version),
        StreamCommit(TopicId(1), STREAM, Glsn(mark), Glsn(glsn), Llsn(llsn), length),
    ),
    near,
    near,
    near,
    near,
    near,
)


def step(message: ToReplica) -> Action:
    return lambda alone: alone.step(message)


def commit(cuts: list[VersionedCommit], version: int) -> Action:
    return lambda alone: alone.replica.commit(cuts, Version(version))


actions: st.SearchStrategy[Action] = st.one_of(
    messages.map(step),
    messages.map(step),
    messages.map(step),
    st.builds(commit, st.lists(commits, max_size=2), near),
    st.builds(lambda v: lambda alone: alone.replica.fall_behind(Version(v)), near),
    st.builds(lambda e, v: lambda alone: alone.replica.place(Llsn(e), Version(v)), near, near),
    st.just(lambda alone: alone.replica.tick()),
    st.just(lambda alone: alone.append(b"x")),
    st.just(lambda alone: alone.sync()),
    st.just(lambda alone: alone.restart()),
)


def elected(alone: Alone) -> None:
    alone.lead(2, ensemble=(1, 2, 3), followers=(FollowerHead(NodeId(2), NO_ENTRY, True),))
    alone.append(b"x")


def following(alone: Alone) -> None:
    alone.follow(1, batch(1, 1), batch(1, 2))
    alone.fence(2)
    alone.add_entries(2, entry(1, 1))


def filled(alone: Alone) -> None:
    alone.fence(1)
    alone.step(
        SyncInitRequest(
            NodeId(2), ME, STREAM, Term(1), Term(1), 1, Llsn(1), entry(1, 2), NONE, Llsn(0), RUN
        )
    )


@pytest.mark.parametrize("begin", [lambda _: None, elected, following, filled])
@settings(max_examples=80, deadline=None)
@given(steps=st.lists(actions, max_size=25))
def test_no_word_of_others_breaks_a_replica(begin: Action, steps: list[Action]) -> None:
    alone = Alone()
    begin(alone)
    for act in steps:
        act(alone)
        alone.carry_out()
        alone.replica.validate()
    alone.sync()
    alone.replica.validate()


def test_messages_for_another_replica_are_counted_and_ignored() -> None:
    alone = Alone()
    alone.step(FenceRequest(NodeId(90), NodeId(2), STREAM, Term(1), True))
    alone.step(FenceRequest(NodeId(90), ME, StreamId(2), Term(1), True))
    alone.step(FenceRequest(NodeId(0), ME, STREAM, Term(1), True))
    assert alone.replica.ignored == {Ignored.WRONG_TARGET: 2, Ignored.NONSENSE: 1}
    assert alone.replica.term == 0


BAD_BATCHES = {
    "a gap": (batch(1, 1), batch(1, 3)),
    "an overlap": (batch(1, 1), batch(1, 1)),
    "no entries": (batch(1, 1, 0),),
    "too many entries": (batch(1, 1, limits.BATCH_ENTRIES_MAX + 1),),
    "a term of the future": (batch(3, 1),),
    "a falling term": (batch(2, 1), batch(1, 2)),
    "a control batch of two": (batch(1, 1, 2, is_control=True),),
    "a producer without sequence": (batch(1, 1, producer=7),),
    "not right behind the entry before": (batch(1, 2),),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_ignored(name: str) -> None:
    alone = Alone()
    alone.fence(2)
    alone.add_entries(2, NO_ENTRY, *BAD_BATCHES[name])
    assert alone.replica.head == NO_ENTRY
    assert alone.replica.ignored == {Ignored.NONSENSE: 1}
