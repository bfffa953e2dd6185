"""Messages between processes of a cluster as bytes: they come back, all else is a bad frame."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.core.metadata.commands import (
    Change,
    NameMember,
    RegisterNode,
    Request,
    SetPaused,
    UnregisterNode,
)
from tidelog.core.metadata.messages import (
    Behind,
    Collect,
    CommitResult,
    HighWatermark,
    Hosted,
    NodeReport,
    Share,
)
from tidelog.core.metadata.state import StorageNode
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.output import Refused as OperatorRefused
from tidelog.core.operator.output import Result
from tidelog.core.order.commands import (
    AddStreams,
    CreateTopic,
    NewStream,
    Quorum,
    RemoveStream,
    Report,
    RetainTopic,
    StreamCommit,
    StreamStatus,
    UpdateStream,
    VersionedCommit,
)
from tidelog.core.order.state import ReplicaOrder, StreamOrder, TopicOrder
from tidelog.core.raft import messages as raft
from tidelog.core.raft.entries import (
    Entry,
    EntryKind,
    Index,
    Membership,
    RaftTerm,
    SnapshotHead,
)
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    ChangeKind,
    CutsRequest,
    FenceRequest,
    FenceResponse,
    StatusRequest,
)
from tidelog.errors import BadFrame, CorruptData
from tidelog.formats.cluster_messages import (
    AskChange,
    AskNode,
    ChangeAnswer,
    ClusterMessage,
    Greeting,
    NodeAnswer,
    NodeToOperator,
    OperatorOutcome,
    OperatorRequest,
    OperatorToNode,
    PeerHello,
    PeerWelcome,
    Ping,
    Pong,
    Purpose,
    ReadView,
    ViewAnswer,
    ViewLost,
    ViewSame,
    decode_cluster_message,
    decode_greeting,
    decode_view,
    encode_cluster_message,
    encode_greeting,
    encode_view,
    for_node,
    for_operator,
    of_node,
    of_operator,
)
from tidelog.formats.messages import Refused
from tidelog.formats.replica_messages import encode_replica_message
from tidelog.limits import MESSAGE_BYTES_MAX, NODE_ADDRESS_CHARS_MAX, RAFT_MEMBERS_MAX
from tidelog.types import (
    Glsn,
    Llsn,
    NodeId,
    Revision,
    StreamId,
    Term,
    TopicId,
    Version,
)

T = TypeVar("T")
ONE, TWO = NodeId(1), NodeId(2)
TOPIC, S, INDEX, V = TopicId(3), StreamId(4), Index(5), Version(6)
TERM = RaftTerm(7)
WORD_MAX = (1 << 64) - 1
ENTRY = Entry(INDEX, TERM, EntryKind.COMMAND, b"data")
HEAD = SnapshotHead(INDEX, TERM, Membership((ONE, TWO)))
REPORT = Report(ONE, S, Term(1), V, Llsn(1), 9)
COMMIT = VersionedCommit(V, StreamCommit(TOPIC, S, Glsn(9), Glsn(1), Llsn(1), 9, Term(7)))
NEW = (NewStream(S, (ONE, TWO)),)

CHANGES: tuple[Change, ...] = (
    CreateTopic(TOPIC, NEW, "events", Quorum.ALL, "explicit", 1),
    AddStreams(TOPIC, NEW),
    RemoveStream(S, Revision(2)),
    UpdateStream(S, Revision(2), Term(3), (ONE,), ONE, StreamStatus.SEALED, b"plan", ((ONE, V),)),
    RetainTopic(TOPIC, Glsn(5), WORD_MAX, WORD_MAX),
    RegisterNode(ONE, "tcp://a:1 tcp://b:2", Revision(2)),
    UnregisterNode(ONE, Revision(2)),
    SetPaused(is_paused=True, revision=Revision(2)),
    NameMember(ONE, "tcp://a:1", Revision(2)),
)
MESSAGES: tuple[ClusterMessage, ...] = (
    raft.PreVoteRequest(ONE, TWO, TERM, INDEX, TERM),
    raft.PreVoteAnswer(ONE, TWO, TERM, granted=True),
    raft.VoteRequest(ONE, TWO, TERM, INDEX, TERM, transfer=False),
    raft.VoteAnswer(ONE, TWO, TERM, granted=True),
    raft.AppendRequest(ONE, TWO, TERM, INDEX, TERM, INDEX, (ENTRY,)),
    raft.AppendAnswer(ONE, TWO, TERM, INDEX),
    raft.AppendRefusal(ONE, TWO, TERM, INDEX, INDEX),
    raft.Heartbeat(ONE, TWO, TERM, INDEX, 3),
    raft.CommitNotice(ONE, TWO, TERM, INDEX),
    raft.HeartbeatAnswer(ONE, TWO, TERM, 3),
    raft.SnapshotChunk(ONE, TWO, TERM, HEAD, 4, 0, b"data"),
    raft.SnapshotAnswer(ONE, TWO, TERM, INDEX, 4),
    raft.TimeoutNow(ONE, TWO, TERM),
    raft.ReadRequest(ONE, TWO, TERM, 8),
    raft.ReadAnswer(ONE, TWO, TERM, 8, INDEX),
    Share(ONE, TWO, (REPORT, *(Request(ONE, 1, change) for change in CHANGES))),
    Collect(ONE, TWO, 1, 2, V, (Hosted(S, Llsn(1)),)),
    CommitResult(
        ONE, TWO, V, V, 1, (HighWatermark(TOPIC, Glsn(9)),), (COMMIT,), (Behind(S, V, Llsn(1)),)
    ),
    NodeReport(ONE, TWO, V, 1, (REPORT,), ((S, V),)),
    Ping(1),
    Pong(1),
    OperatorToNode(b"data"),
    NodeToOperator(b"data"),
    *(AskChange(number, 1, change) for number, change in enumerate(CHANGES)),
    ChangeAnswer(1, 1, "Busy", "later"),
    ReadView(1, is_linearizable=True, known_number=2, known_members=(ONE,)),
    ViewAnswer(1, b"view"),
    ViewSame(1),
    ViewLost(1),
    OperatorRequest(1, "change", S, ChangeKind.SWAP, ONE, TWO),
    OperatorOutcome(1, Result.REFUSED, OperatorRefused.BUSY),
    AskNode(1, b"request"),
    NodeAnswer(1, b"answer"),
)
HELLO = PeerHello(b"c" * 16, 1, 2, "tcp://a:1", Purpose.SESSION, token="t" * 20)
GREETINGS: tuple[Greeting, ...] = (HELLO, PeerWelcome(2), Refused("WrongCluster", "elsewhere"))
VIEW = MetadataView(
    number=1,
    version=V,
    topics=(TopicOrder(TOPIC, (S,), "events", trim_glsn_end=Glsn(1), boundary_high=WORD_MAX),),
    streams=(StreamOrder(TOPIC, S, (ReplicaOrder(ONE, V, Llsn(4)),), plan=b"plan"),),
    nodes=(StorageNode(ONE, "tcp://a:1 tcp://b:2", TWO, 3, 4, Revision(5)),),
    members=(ONE, TWO),
    member_addresses=((ONE, "tcp://a:1"),),
    is_paused=True,
    paused_revision=Revision(6),
    absent_revision=Revision(7),
)


def test_every_message_comes_back_as_it_was() -> None:
    assert {type(one) for one in MESSAGES} == set(get_args(ClusterMessage))
    for message in MESSAGES:
        assert decode_cluster_message(encode_cluster_message(message)) == message
    for greeting in GREETINGS:
        assert decode_greeting(encode_greeting(greeting)) == greeting
    assert decode_view(encode_view(VIEW)) == VIEW


def test_greetings_and_messages_are_never_taken_for_one_another() -> None:
    for greeting in GREETINGS:
        with pytest.raises(BadFrame):
            decode_cluster_message(encode_greeting(greeting))
    for message in MESSAGES:
        with pytest.raises(BadFrame):
            decode_greeting(encode_cluster_message(message))


def test_a_token_is_not_shown() -> None:
    assert "t" * 20 not in repr(HELLO)


def test_what_operators_and_replicas_say_is_told_apart() -> None:
    fence = FenceRequest(ONE, TWO, S, Term(1), is_first=True)
    answered = FenceResponse(ONE, TWO, S, Term(1), NO_ENTRY, is_complete=True)
    assert of_operator(for_node(fence)) == fence
    assert of_node(for_operator(answered)) == answered
    for wrong in (answered, CutsRequest(ONE, TWO, S, Term(1), Llsn(1), V)):
        with pytest.raises(BadFrame, match="not for operators"):
            of_operator(OperatorToNode(encode_replica_message(wrong).message))
    with pytest.raises(BadFrame, match="not for replicas"):
        of_node(NodeToOperator(encode_replica_message(StatusRequest(ONE, TWO, S, Term(1))).message))
    for nonsense in (b"", b"\xc0", b"nonsense"):
        with pytest.raises((BadFrame, CorruptData)):
            of_operator(OperatorToNode(nonsense))


def test_fields_that_would_grow_without_bound_are_refused() -> None:
    hello = PeerHello(b"c" * 17, 1, 2, "", Purpose.POST)
    far = PeerHello(b"c" * 16, 1, 2, "x" * (NODE_ADDRESS_CHARS_MAX + 1), Purpose.POST)
    for greeting in (hello, far):
        with pytest.raises(BadFrame):
            decode_greeting(encode_greeting(greeting))
    many = ReadView(1, is_linearizable=False, known_members=(ONE,) * (RAFT_MEMBERS_MAX + 1))
    with pytest.raises(BadFrame):
        decode_cluster_message(encode_cluster_message(many))


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), WORD_MAX),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=20),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)
tags = st.one_of(st.integers(0, 40), st.integers(195, 215), st.text(max_size=8))
near = st.builds(
    lambda tag, fields: msgspec.msgpack.encode([tag, *fields]),
    tags,
    st.lists(anything, max_size=8),
)
samples = st.sampled_from(
    [
        *map(encode_cluster_message, MESSAGES),
        *map(encode_greeting, GREETINGS),
        encode_view(VIEW),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(samples))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data) - 1))
        data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


hostile = st.one_of(st.binary(max_size=200), near, anything.map(msgspec.msgpack.encode), damaged())


@settings(max_examples=200)
@given(hostile)
def test_any_bytes_are_a_message_or_a_bad_frame(data: bytes) -> None:
    _check(data, decode_cluster_message, encode_cluster_message)
    _check(data, decode_greeting, encode_greeting)
    _check(data, decode_view, encode_view)


def _check(data: bytes, decode: Callable[[bytes], T], encode: Callable[[T], bytes]) -> None:
    try:
        value = decode(data)
    except BadFrame:
        return
    assert decode(encode(value)) == value


@given(hostile)
def test_any_bytes_inside_a_message_are_a_message_or_a_declared_error(data: bytes) -> None:
    with suppress(BadFrame, CorruptData):
        of_operator(OperatorToNode(data))
    with suppress(BadFrame, CorruptData):
        of_node(NodeToOperator(data))


def test_deep_nesting_ends_in_a_bad_frame() -> None:
    for depth in (1_000, 100_000, MESSAGE_BYTES_MAX // 4):
        with pytest.raises(BadFrame):
            decode_cluster_message(b"\x91" * depth)
