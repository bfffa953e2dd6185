"""An operator's shell over a wire and a repository that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from time import monotonic

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.state import StorageNode
from tidelog.core.metadata.view import MetadataView
from tidelog.core.operator.plan import StreamPlan, encode_plan
from tidelog.core.order.state import ReplicaOrder, StreamOrder, TopicOrder
from tidelog.core.replica.messages import FromOperator
from tidelog.errors import LogError
from tidelog.formats.cluster_messages import ClusterMessage, OperatorToNode, Ping, Pong, of_operator
from tidelog.runtime.operator_node import OperatorNode, OperatorTiming
from tidelog.types import NO_NODE, NodeId, Revision, StreamId, Term, TopicId, Version

OPERATOR = NodeId(9)
NODES = (NodeId(1), NodeId(2), NodeId(3))
STREAM = StreamId(1)
FAST = OperatorTiming(
    tick=0.01, ping=0.02, suspect=0.1, patience=0.5, resend=0.05, start=0.02, election_pause=0.1
)
SECONDS = 10.0


class Wire:
    """Keeps what is sent; ``answering`` nodes answer pings at once."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, ClusterMessage]] = []
        self.answering = dict.fromkeys(NODES)
        self._heard: dict[NodeId, float] = {}
        self._receivers: dict[type, Callable[[NodeId, ClusterMessage], None]] = {}

    def send(self, target: NodeId, message: ClusterMessage) -> None:
        self.sent.append((target, message))
        if isinstance(message, Ping) and target in self.answering:
            asyncio.get_running_loop().call_soon(self.receive, target, Pong(message.number))

    def silent_seconds(self, node: NodeId) -> float:
        heard = self._heard.get(node)
        return inf if heard is None else asyncio.get_running_loop().time() - heard

    def on(
        self, kinds: tuple[type, ...], receive: Callable[[NodeId, ClusterMessage], None]
    ) -> None:
        self._receivers |= dict.fromkeys(kinds, receive)

    def receive(self, source: NodeId, message: ClusterMessage) -> None:
        self._heard[source] = asyncio.get_running_loop().time()
        if type(message) in self._receivers:
            self._receivers[type(message)](source, message)

    def to_nodes(self, kind: type) -> list[FromOperator]:
        """What the core said to replicas, of one kind."""
        found = [of_operator(one) for _, one in self.sent if isinstance(one, OperatorToNode)]
        return [one for one in found if isinstance(one, kind)]


class Repository:
    """Its writes wait until the test says what becomes of them."""

    def __init__(self) -> None:
        self.view: MetadataView | None = None
        self.asked: list[tuple[Change, asyncio.Future[None]]] = []
        self._told: list[Callable[[MetadataView], None]] = []

    def on_view(self, told: Callable[[MetadataView], None]) -> None:
        self._told.append(told)

    async def ask(self, change: Change, *, seconds: float) -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked.append((change, outcome))
        await outcome

    def show(self, view: MetadataView) -> None:
        self.view = view
        for told in self._told:
            told(view)

    def answer(self, error: LogError | None = None) -> None:
        """Let the oldest write that waits end."""
        outcome = next(outcome for _, outcome in self.asked if not outcome.done())
        if error is None:
            outcome.set_result(None)
        else:
            outcome.set_exception(error)


def view(
    number: int,
    *,
    plan: StreamPlan | None = None,
    leader: NodeId = NO_NODE,
    revision: int = 1,
    is_paused: bool = False,
    streams: bool = True,
) -> MetadataView:
    """One topic with one stream on all nodes."""
    order = StreamOrder(
        topic=TopicId(1),
        stream=STREAM,
        replicas=tuple(ReplicaOrder(node) for node in NODES),
        term=Term(revision),
        revision=Revision(revision),
        leader=leader,
        plan=b"" if plan is None else encode_plan(plan),
    )
    return MetadataView(
        number=number,
        version=Version(0),
        topics=(TopicOrder(TopicId(1), (STREAM,), "t"),),
        streams=(order,) if streams else (),
        nodes=tuple(StorageNode(node, f"tcp://n{node}:1 tcp://n{node}:2") for node in NODES),
        members=(NodeId(1),),
        leader=NodeId(1),
        is_paused=is_paused,
    )


class Bench:
    """A shell that runs, and what surrounds it."""

    def __init__(self, timing: OperatorTiming = FAST) -> None:
        self.wire = Wire()
        self.repository = Repository()
        self.failures: list[BaseException] = []
        self.shell = OperatorNode(
            node=OPERATOR,
            post=self.wire,
            metadata=self.repository,
            timing=timing,
            on_failure=self.failures.append,
            draw=lambda _: 0,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop run until something holds."""
        deadline = monotonic() + SECONDS
        while not condition():
            assert monotonic() < deadline, "it never came to that"
            assert not self.failures, self.failures
            await asyncio.sleep(0.002)

    async def ticks(self, count: int) -> None:
        """Let so much time of the operator pass."""
        due = self.shell.ticks + count
        await self.until(lambda: self.shell.ticks >= due)


def play(scenario: Callable[[Bench], Awaitable[None]], timing: OperatorTiming = FAST) -> None:
    """Run a scenario with a shell that was started, and is stopped behind it."""

    async def run() -> None:
        bench = Bench(timing)
        await bench.shell.start()
        try:
            await scenario(bench)
        finally:
            await bench.shell.stop()
        assert not bench.failures

    asyncio.run(run())
