"""Whatever peers say, a node neither fails nor breaks its own invariants.

The messages are well typed, as the wire makes sure of; their numbers are chance, mostly close to
what would make sense at the moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.raft.group import command, nodes, stored
from tidelog import limits
from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    Index,
    Membership,
    RaftTerm,
    SnapshotHead,
)
from tidelog.core.raft.membership import encode_membership
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    ReadAnswer,
    ReadRequest,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from tidelog.core.raft.node import AddLearner, Ignored, Promote, Raft, RaftOptions, Remove
from tidelog.types import NodeId

ME = NodeId(1)
OPTIONS = RaftOptions(election_ticks=2, snapshot_chunk_bytes=2, reads_max=3, append_bytes_max=40)
Action: TypeAlias = Callable[[Raft], None]

numbers = st.one_of(
    st.integers(0, 6), st.sampled_from([-1, limits.RAFT_NUMBER_END - 1, limits.RAFT_NUMBER_END])
)
near = st.integers(0, 6)
indexes = numbers.map(Index)
terms = st.integers(0, 6).map(RaftTerm)
sources = st.integers(1, 4).map(NodeId)
targets = st.sampled_from([ME, ME, ME, ME, ME, ME, ME, NodeId(2)])
memberships = st.builds(
    Membership,
    st.lists(st.integers(0, 4).map(NodeId), max_size=3).map(tuple),
    st.lists(st.integers(0, 4).map(NodeId), max_size=2).map(tuple),
)
sound_memberships = st.sampled_from(
    [Membership(nodes(1, 2, 3)), Membership(nodes(1)), Membership(nodes(2, 3), nodes(1))]
)
datas = st.one_of(
    st.binary(max_size=4), st.one_of(memberships, sound_memberships).map(encode_membership)
)


@st.composite
def runs_of_entries(draw: st.DrawFn, previous: int, term: int) -> tuple[Entry, ...]:
    """Entries that join, more often than not."""
    entries = []
    for index in range(previous + 1, previous + 1 + draw(st.integers(0, 3))):
        term = draw(st.sampled_from([term, term, term + 1, 0]))
        kind = draw(st.sampled_from(EntryKind))
        entries.append(Entry(Index(index), RaftTerm(term), kind, draw(datas)))
    return tuple(entries)


@st.composite
def append_requests(draw: st.DrawFn) -> Message:
    previous, term = draw(near), draw(near)
    entries = draw(runs_of_entries(previous, term))
    source, target, own = draw(sources), draw(targets), draw(terms)
    return AppendRequest(
        source, target, own, Index(previous), RaftTerm(term), draw(indexes), entries
    )


heads = st.builds(SnapshotHead, indexes, terms, st.one_of(memberships, sound_memberships))
messages: st.SearchStrategy[Message] = st.one_of(
    append_requests(),
    append_requests(),
    st.builds(PreVoteRequest, sources, targets, terms, indexes, terms),
    st.builds(PreVoteAnswer, sources, targets, terms, st.booleans()),
    st.builds(VoteRequest, sources, targets, terms, indexes, terms, st.booleans()),
    st.builds(VoteAnswer, sources, targets, terms, st.booleans()),
    st.builds(AppendAnswer, sources, targets, terms, indexes),
    st.builds(AppendRefusal, sources, targets, terms, indexes, indexes),
    st.builds(Heartbeat, sources, targets, terms, indexes, numbers),
    st.builds(HeartbeatAnswer, sources, targets, terms, numbers),
    st.builds(SnapshotChunk, sources, targets, terms, heads, near, near, st.binary(max_size=3)),
    st.builds(SnapshotAnswer, sources, targets, terms, indexes, numbers),
    st.builds(TimeoutNow, sources, targets, terms),
    st.builds(ReadRequest, sources, targets, terms, numbers),
    st.builds(ReadAnswer, sources, targets, terms, numbers, indexes),
)


def step(message: Message) -> Action:
    return lambda raft: raft.step(message)


def carry_out(raft: Raft) -> None:
    """Do what the node wants, and complete its write at once."""
    write = raft.take().write
    if write is not None:
        raft.written(write.sequence)


def win(raft: Raft) -> None:
    """Help the node to be elected, if it may be."""
    for _ in range(2 * OPTIONS.election_ticks):
        raft.tick()
    for pre_vote in (True, False):
        for voter in raft.membership.voters:
            term = RaftTerm(raft.term + 1 if pre_vote else raft.term)
            kind = PreVoteAnswer if pre_vote else VoteAnswer
            raft.step(kind(voter, raft.node, term, True))
        carry_out(raft)


def acknowledge(raft: Raft) -> None:
    """Have a follower acknowledge all."""
    raft.step(AppendAnswer(NodeId(2), raft.node, raft.term, raft.last_index))


actions: st.SearchStrategy[Action] = st.one_of(
    messages.map(step),
    messages.map(step),
    messages.map(step),
    st.sampled_from(
        [
            carry_out,
            win,
            acknowledge,
            lambda raft: raft.tick(),
            lambda raft: raft.take() and None,
            lambda raft: raft.propose(b"data") and None,
            lambda raft: raft.read(1),
            lambda raft: raft.compact(raft.applied, b"state") and None,
            lambda raft: raft.change_membership(Remove(NodeId(3))) and None,
            lambda raft: raft.change_membership(AddLearner(NodeId(4))) and None,
            lambda raft: raft.change_membership(Promote(NodeId(4))) and None,
            lambda raft: raft.transfer_leadership(NodeId(2)) and None,
        ]
    ),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(actions, max_size=40))
def test_no_message_makes_a_node_fail_or_break_its_invariants(todo: list[Action]) -> None:
    image = stored((1, 2, 3), command(1, 1), command(2, 1), command(3, 2), term=2)
    raft = Raft(ME, image, OPTIONS, lambda n: 0)
    for action in todo:
        action(raft)
        raft.validate()
    for _ in range(3):
        carry_out(raft)
        raft.validate()


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(NodeId(2), NodeId(3), RaftTerm(1), Index(0), 0),
        Heartbeat(NodeId(1), NodeId(1), RaftTerm(1), Index(0), 0),
    ],
)
def test_a_message_for_another_node_or_from_itself_is_ignored(message: Message) -> None:
    raft = Raft(ME, stored((1, 2, 3)), OPTIONS, lambda n: 0)
    raft.step(message)
    assert raft.ignored == {Ignored.WRONG_TARGET: 1}
    assert raft.term == 0


END = limits.RAFT_NUMBER_END
TOO_LONG = command(1, 1, bytes(limits.RAFT_ENTRY_BYTES_MAX + 1))


def append(term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0) -> Message:
    index, previous_term = Index(previous[0]), RaftTerm(previous[1])
    return AppendRequest(
        NodeId(2), ME, RaftTerm(term), index, previous_term, Index(commit), entries
    )


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(NodeId(2), ME, RaftTerm(0), Index(0), 0),
        Heartbeat(NodeId(2), ME, RaftTerm(END), Index(0), 0),
        Heartbeat(NodeId(0), ME, RaftTerm(1), Index(0), 0),
        Heartbeat(NodeId(2), ME, RaftTerm(1), Index(-1), 0),
        CommitNotice(NodeId(2), ME, RaftTerm(1), Index(-1)),
        Heartbeat(NodeId(2), ME, RaftTerm(1), Index(0), -1),
        append(1, (-1, 0)),
        append(1, (0, 2)),
        append(1, (0, 0), commit=-1),
        append(1, (0, 0), command(2, 1)),
        append(1, (0, 0), command(1, 2)),
        append(2, (1, 2), command(2, 1)),
        append(1, (0, 0), TOO_LONG),
        VoteRequest(NodeId(2), ME, RaftTerm(1), Index(0), RaftTerm(1), False),
        PreVoteRequest(NodeId(2), ME, RaftTerm(1), Index(-1), RaftTerm(0)),
        AppendAnswer(NodeId(2), ME, RaftTerm(1), Index(-1)),
        AppendRefusal(NodeId(2), ME, RaftTerm(1), Index(1), Index(-1)),
        HeartbeatAnswer(NodeId(2), ME, RaftTerm(1), -1),
        SnapshotAnswer(NodeId(2), ME, RaftTerm(1), Index(1), -1),
        ReadRequest(NodeId(2), ME, RaftTerm(1), END),
        ReadAnswer(NodeId(2), ME, RaftTerm(1), 1, Index(-1)),
    ],
)
def test_a_message_that_no_sound_node_sends_is_ignored_and_counted(message: Message) -> None:
    raft = Raft(ME, stored((1, 2, 3)), OPTIONS, lambda n: 0)
    raft.step(message)
    assert raft.ignored == {Ignored.NONSENSE: 1}
    assert raft.term == 0
    assert not raft.has_output
