"""Any node carries out what people ask of a cluster, alone or with the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec
import pytest

from tests.runtime.admin.small_cluster import TOPIC, SmallCluster
from tidelog.core.metadata.commands import RegisterNode, SetPaused
from tidelog.core.operator.output import Refused
from tidelog.core.order.commands import AddStreams, NewStream
from tidelog.errors import (
    BadAddress,
    BadFrame,
    BadOption,
    Busy,
    LogError,
    NotLeader,
    UnknownStream,
    UnknownTopic,
    Unreachable,
    WrongState,
)
from tidelog.formats.admin_messages import (
    AbortChange,
    AddNode,
    AdminRequest,
    ChangeEnsemble,
    ChangeMembers,
    ClusterFigures,
    CreateStream,
    MoveLeader,
    NodeFigures,
    PauseOperators,
    RemoveNode,
    SealStream,
    StreamDigest,
)
from tidelog.formats.cluster_messages import AskNode, NodeAnswer
from tidelog.formats.messages import Answer, Done, Figures, Number, encode_message
from tidelog.interface.cluster_figures import ClusterStatus, DigestFacts, NodeFacts
from tidelog.interface.cluster_health import health_of
from tidelog.runtime.admin import agent as agent_module
from tidelog.runtime.admin import operators as operators_module
from tidelog.types import NodeId, StreamId

T = TypeVar("T")


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "FACTS_SECONDS", 0.05)
    monkeypatch.setattr(operators_module, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(operators_module, "LOOK_SECONDS", 0.005)


def with_cluster(
    work: Callable[[SmallCluster], Awaitable[T]], nodes: int = 3, replicas: int = 3
) -> T:
    async def run() -> T:
        cluster = SmallCluster(nodes, replicas)
        try:
            return await work(cluster)
        finally:
            for agent in cluster.agents.values():
                await agent.stop()

    return asyncio.run(run())


def ask(cluster: SmallCluster, request: AdminRequest) -> Awaitable[Answer]:
    return cluster.agent.answer(request, 5.0)


async def status_of(cluster: SmallCluster) -> ClusterStatus:
    answer = await ask(cluster, ClusterFigures())
    assert isinstance(answer, Figures)
    return msgspec.json.decode(answer.json, type=ClusterStatus)


# --- looking -----------------------------------------------------------------------------------


def test_a_whole_cluster_is_shown_with_nothing_wrong() -> None:
    status = with_cluster(status_of)

    assert [node.node for node in status.nodes] == [1, 2, 3]
    assert all(node.answers for node in status.nodes)
    assert status.nodes[1].clients == "tcp://127.0.0.1:8002"
    assert (status.metadata.leader, status.metadata.members) == (1, (1, 2, 3))
    (stream,) = status.streams
    assert (stream.topic, stream.leader, stream.ensemble) == ("t", 1, (1, 2, 3))
    assert health_of(status) == ()


def test_a_silent_node_is_named_and_the_others_are_still_shown() -> None:
    async def work(cluster: SmallCluster) -> ClusterStatus:
        cluster.boxes.silent.add(NodeId(3))
        return await status_of(cluster)

    status = with_cluster(work)

    assert [node.node for node in status.nodes if not node.answers] == [3]
    told = " ".join(finding.what for finding in health_of(status))
    assert "node 3" in told
    assert "under-replicated" in told


def test_without_a_quorum_the_last_view_is_shown() -> None:
    async def work(cluster: SmallCluster) -> ClusterStatus:
        cluster.metadata.has_quorum = False
        cluster.boxes.silent |= {NodeId(2), NodeId(3)}
        return await status_of(cluster)

    status = with_cluster(work)

    assert not status.metadata.has_quorum
    assert any("no quorum" in finding.what for finding in health_of(status))


def test_lag_counts_from_the_end_of_the_leaders_log() -> None:
    async def work(cluster: SmallCluster) -> ClusterStatus:
        cluster.stores[NodeId(1)].ends[1] = 101
        cluster.stores[NodeId(2)].ends[1] = 91
        return await status_of(cluster)

    (stream,) = with_cluster(work).streams

    assert [replica.lag for replica in stream.replicas] == [0, 10, 100]


def test_facts_and_digests_come_from_the_node_that_is_meant() -> None:
    async def work(cluster: SmallCluster) -> tuple[Answer, Answer]:
        facts = await ask(cluster, NodeFigures(2))
        return facts, await ask(cluster, StreamDigest(3, 1, 1, 1))

    facts, digest = with_cluster(work)

    assert isinstance(facts, Figures)
    assert isinstance(digest, Figures)
    assert msgspec.json.decode(facts.json, type=NodeFacts).node == 2
    assert msgspec.json.decode(digest.json, type=DigestFacts).node == 3


def test_a_digest_of_a_stream_that_is_not_there_is_refused_by_its_node() -> None:
    def work(cluster: SmallCluster) -> Awaitable[Answer]:
        return ask(cluster, StreamDigest(3, 9, 1, 2))

    with pytest.raises(UnknownStream):
        with_cluster(work)


# --- nodes -------------------------------------------------------------------------------------


def test_a_node_with_replicas_is_not_removed() -> None:
    with pytest.raises(WrongState, match="drain"):
        with_cluster(lambda cluster: ask(cluster, RemoveNode(3)))


def test_a_node_that_a_change_is_about_to_use_is_not_removed() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.operators[NodeId(1)].finishes = False
        await ask(cluster, ChangeEnsemble(1, "swap", 3, 4))
        await ask(cluster, RemoveNode(4))

    with pytest.raises(WrongState, match="drain"):
        with_cluster(work, nodes=4)


def test_a_node_without_replicas_is_removed_and_removing_it_again_is_no_error() -> None:
    async def work(cluster: SmallCluster) -> list[int]:
        assert await ask(cluster, RemoveNode(4)) == Done()
        assert await ask(cluster, RemoveNode(4)) == Done()
        return [node.node for node in (await status_of(cluster)).nodes]

    assert with_cluster(work, nodes=4) == [1, 2, 3]


def test_a_node_is_added_with_both_of_its_addresses() -> None:
    async def work(cluster: SmallCluster) -> ClusterStatus:
        await ask(cluster, AddNode(9, "tcp://h:1", "tcp://h:2"))
        return await status_of(cluster)

    node = with_cluster(work).node(9)

    assert node is not None
    assert (node.peers, node.clients, node.roles) == ("tcp://h:1", "tcp://h:2", ("storage",))


def test_a_node_is_added_and_removed_though_others_are_faster() -> None:
    async def work(cluster: SmallCluster) -> list[str]:
        metadata = cluster.metadata
        metadata.before_ask = [lambda: metadata.apply(RegisterNode(NodeId(9), "another one"))]
        await ask(cluster, AddNode(9, "tcp://h:1", "tcp://h:2"))
        row = metadata.machine.nodes[NodeId(9)]
        moved = RegisterNode(row.node, "elsewhere", row.revision)
        metadata.before_ask = [lambda: metadata.apply(moved)]
        await ask(cluster, RemoveNode(9))
        assert NodeId(9) not in metadata.machine.nodes
        return [row.address]

    assert with_cluster(work) == ["tcp://h:1 tcp://h:2"]


def test_a_node_that_is_given_a_replica_meanwhile_is_not_removed() -> None:
    async def work(cluster: SmallCluster) -> None:
        new = (NewStream(StreamId(2), (NodeId(4),)),)
        cluster.metadata.before_ask = [lambda: cluster.metadata.apply(AddStreams(TOPIC, new))]
        await ask(cluster, RemoveNode(4))

    with pytest.raises(WrongState, match="drain"):
        with_cluster(work, nodes=4)


@pytest.mark.parametrize(
    "address", ["nowhere", "tcp://0.0.0.0:1", "tcp://h:0", "unix:///a b", "unix:///a\x1b[31m"]
)
def test_an_address_that_is_no_use_to_others_is_refused(address: str) -> None:
    requests: list[AdminRequest] = [
        AddNode(9, address, "tcp://h:2"),
        AddNode(9, "tcp://h:2", address),
        ChangeMembers("add", 9, address),
    ]
    for request in requests:
        with pytest.raises(BadAddress):
            with_cluster(partial(ask, request=request))


# --- log streams -------------------------------------------------------------------------------


def test_a_stream_is_made_on_the_nodes_that_are_named() -> None:
    async def work(cluster: SmallCluster) -> None:
        assert await ask(cluster, CreateStream("t", (4, 2))) == Number(2)
        assert cluster.metadata.order(2).ensemble == (2, 4)

    with_cluster(work, nodes=4)


def test_a_stream_gets_as_many_replicas_as_the_others_where_there_is_room() -> None:
    async def work(cluster: SmallCluster) -> None:
        assert await ask(cluster, CreateStream("t")) == Number(2)
        assert len(cluster.metadata.order(2).ensemble) == 3
        assert 4 in cluster.metadata.order(2).ensemble

    with_cluster(work, nodes=4)


def test_two_who_make_streams_at_once_both_get_one() -> None:
    async def work(cluster: SmallCluster) -> None:
        other = cluster.agents[NodeId(2)]
        made = await asyncio.gather(
            ask(cluster, CreateStream("t")), other.answer(CreateStream("t"), 5.0)
        )
        assert {one.number for one in made if isinstance(one, Number)} == {2, 3}

    with_cluster(work)


def test_streams_of_unknown_topics_and_on_unknown_nodes_are_refused() -> None:
    with pytest.raises(UnknownTopic):
        with_cluster(lambda cluster: ask(cluster, CreateStream("nobody")))
    with pytest.raises(LogError):
        with_cluster(lambda cluster: ask(cluster, CreateStream("t", (77,))))


# --- operators ---------------------------------------------------------------------------------


def test_a_leader_is_moved_to_the_node_that_is_named_or_to_another_one() -> None:
    async def work(cluster: SmallCluster) -> None:
        await ask(cluster, MoveLeader(1, 3))
        assert cluster.metadata.order(1).leader == 3
        await ask(cluster, MoveLeader(1))
        assert cluster.metadata.order(1).leader != 3

    with_cluster(work)


def test_a_leader_that_leads_already_is_left_alone() -> None:
    async def work(cluster: SmallCluster) -> None:
        await ask(cluster, MoveLeader(1, 1))
        assert cluster.operators[NodeId(1)].requests == []

    with_cluster(work)


def test_only_members_can_lead() -> None:
    with pytest.raises(BadOption, match="holds no replica"):
        with_cluster(lambda cluster: ask(cluster, MoveLeader(1, 4)), nodes=4)


def test_a_change_that_is_under_way_or_done_may_be_asked_for_again() -> None:
    async def work(cluster: SmallCluster) -> None:
        operator = cluster.operators[NodeId(1)]
        operator.finishes = False
        swap = ChangeEnsemble(1, "swap", 3, 4)
        await ask(cluster, swap)
        await ask(cluster, swap)
        assert len(operator.requests) == 1
        with pytest.raises(Busy, match="swap"):
            await ask(cluster, ChangeEnsemble(1, "contract", 2))
        operator.finish(1)
        await ask(cluster, swap)
        assert len(operator.requests) == 1
        assert cluster.metadata.order(1).ensemble == (1, 2, 4)

    with_cluster(work, nodes=4)


def test_an_abort_takes_a_prepared_change_back() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.operators[NodeId(1)].finishes = False
        await ask(cluster, ChangeEnsemble(1, "expand", 0, 4))
        await ask(cluster, AbortChange(1))
        assert cluster.metadata.row(1).is_steady
        assert cluster.metadata.order(1).ensemble == (1, 2, 3)

    with_cluster(work, nodes=4)


def test_an_operator_that_says_nothing_is_left_for_the_next() -> None:
    async def work(cluster: SmallCluster) -> None:
        del cluster.boxes.receivers[NodeId(1), type(_elect())]
        cluster.boxes.silent.add(NodeId(2))
        await ask(cluster, MoveLeader(1, 2))
        assert [len(cluster.operators[NodeId(n)].requests) for n in (1, 2, 3)] == [0, 0, 1]

    with_cluster(work)


def test_without_any_operator_the_person_is_told() -> None:
    async def work(cluster: SmallCluster) -> None:
        for node in (1, 2, 3):
            del cluster.boxes.receivers[NodeId(node), type(_elect())]
        await ask(cluster, MoveLeader(1, 2))

    with pytest.raises(Unreachable, match="operator"):
        with_cluster(work)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Refused.UNKNOWN_STREAM, UnknownStream),
        (Refused.BUSY, Busy),
        (Refused.NOT_STEADY, Busy),
        (Refused.LEADER, BadOption),
        (Refused.NO_SUCH_NODE, BadOption),
        (Refused.NOTHING_TO_ABORT, WrongState),
    ],
)
def test_what_an_operator_refuses_is_told_with_its_reason(
    reason: Refused, kind: type[LogError]
) -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.operators[NodeId(1)].refuses = reason
        await ask(cluster, AbortChange(1))

    with pytest.raises(kind, match=reason.value):
        with_cluster(work)


def test_operators_are_paused_for_all() -> None:
    async def work(cluster: SmallCluster) -> None:
        await ask(cluster, PauseOperators(paused=True))
        assert (await status_of(cluster)).operators_paused
        await ask(cluster, PauseOperators(paused=False))
        assert not (await status_of(cluster)).operators_paused

    with_cluster(work)


def test_who_pauses_operators_is_told_so_only_if_they_are_though_others_are_faster() -> None:
    async def work(cluster: SmallCluster) -> None:
        metadata = cluster.metadata

        def others_pause_and_go_on() -> None:
            for paused in (True, False):
                metadata.apply(SetPaused(paused, metadata.machine.paused_revision))

        metadata.before_ask = [others_pause_and_go_on]
        await ask(cluster, PauseOperators(paused=True))
        assert metadata.machine.is_paused

    with_cluster(work)


# --- the metadata repository -------------------------------------------------------------------


def test_members_are_changed_by_the_leader_whoever_is_asked() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.metadata.leader = NodeId(2)
        await ask(cluster, ChangeMembers("add", 4, "tcp://h:1"))
        await ask(cluster, ChangeMembers("transfer", 3))
        await ask(cluster, ChangeMembers("remove", 1))
        assert cluster.members[NodeId(2)].changes == [
            ("add", 4, "tcp://h:1"),
            ("transfer", 3, ""),
            ("remove", 1, ""),
        ]

    with_cluster(work)


def test_a_leader_that_was_just_deposed_does_not_change_members() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.metadata.leader, cluster.metadata.leader_told = NodeId(3), NodeId(2)
        await ask(cluster, ChangeMembers("remove", 1))

    with pytest.raises(NotLeader):
        with_cluster(work)


# --- other processes ---------------------------------------------------------------------------


def test_processes_pass_on_nothing_for_one_another() -> None:
    async def work(cluster: SmallCluster) -> None:
        receive = cluster.boxes.receivers[NodeId(1), AskNode]
        for request in (ClusterFigures(), SealStream(1, sealed=True), RemoveNode(3)):
            with pytest.raises(BadFrame):
                receive(NodeId(2), AskNode(1, encode_message(request)))
        with pytest.raises(BadFrame):
            receive(NodeId(2), AskNode(1, b"\x93nonsense"))

    with_cluster(work)


def test_too_many_questions_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, "ADMIN_QUESTIONS_MAX", 2)

    async def work(cluster: SmallCluster) -> int:
        question = AskNode(1, encode_message(NodeFigures()))
        for _ in range(5):
            cluster.boxes.receivers[NodeId(1), AskNode](NodeId(2), question)
        await asyncio.sleep(0)
        sent = [m for _, _, m in cluster.boxes.sent if isinstance(m, NodeAnswer)]
        return sum(b"Busy" in one.answer for one in sent)

    assert with_cluster(work) == 3


def test_an_answer_of_another_node_does_not_count() -> None:
    async def work(cluster: SmallCluster) -> None:
        cluster.boxes.silent.add(NodeId(2))
        asking = asyncio.ensure_future(ask(cluster, NodeFigures(2)))
        await asyncio.sleep(0)
        question = next(m for _, _, m in cluster.boxes.sent if isinstance(m, AskNode))
        forged = NodeAnswer(question.number, encode_message(Done()))
        cluster.boxes.receivers[NodeId(1), NodeAnswer](NodeId(3), forged)
        await asking

    with pytest.raises(Unreachable):
        with_cluster(work)


def _elect() -> object:
    from tidelog.formats.cluster_messages import OperatorRequest

    return OperatorRequest(0, "elect", StreamId(1))
