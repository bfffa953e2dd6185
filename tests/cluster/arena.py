"""A cluster of processes under load: what was promised before a fault must hold behind it.

A story is a list of faults.  Around each of them a minimum of appends must be acknowledged, so
that a cluster that stands still cannot pass; at the end every node is read back from the first
record on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import monotonic
from types import TracebackType
from typing import Final, Self

import tidelog
from tests.cluster.checks import check_all
from tests.cluster.history import Outcome, Seen
from tests.cluster.load import DEFAULT, RECONNECT, Habit, Load
from tests.cluster.payload import read_payload
from tidelog.errors import LogError
from tidelog.interface.cluster_figures import ClusterStatus, ClusterStream
from tidelog.testing import LocalCluster, LocalNode

BEFORE: Final = 200
"""Records that must be acknowledged before a fault, and below, after it."""
AFTER: Final = 200
FAULT_SECONDS: Final = 30.0
"""So long a fault may hold everything up before it counts as a failure of the cluster."""
HEAL_SECONDS: Final = 60.0
LOG_LINES: Final = 40


class Arena:
    """Watches over a running cluster and its load."""

    def __init__(
        self,
        cluster: LocalCluster,
        *,
        habits: Sequence[Habit] = DEFAULT,
        subscribers: int = 2,
        seed: int = 1,
    ) -> None:
        self.cluster = cluster
        self.random = Random(seed)
        self.rounds = 0
        self.load = Load(
            [self._url_from(number) for number in range(len(self.storing))],
            habits=habits,
            subscribers=subscribers,
        )

    @property
    def storing(self) -> list[LocalNode]:
        """The nodes that serve clients."""
        return [node for node in self.cluster.nodes if "storage" in node.roles]

    def _url_from(self, first: int) -> str:
        """All nodes, so that each client begins with another one."""
        nodes = self.storing[first:] + self.storing[:first]
        places = ",".join(node.url.removeprefix("tidelog://").rstrip("/") for node in nodes)
        return f"tidelog://{places}/"

    def __enter__(self) -> Self:
        self.load.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.last_words())
        self.load.__exit__(kind, error, trace)

    # -- a round ------------------------------------------------------------------------------

    def fault(
        self,
        happens: Callable[[], None],
        *,
        before: int = BEFORE,
        after: int = AFTER,
        seconds: float = FAULT_SECONDS,
    ) -> None:
        """Let something happen between appends that are acknowledged (the rule against vacuity)."""
        self.load.wait_for_more(before, seconds)
        happens()
        self.load.wait_for_more(after, seconds)
        for stream in self.streams():
            self.load.wait_for_stream(stream, 1, seconds)
        self.rounds += 1

    # -- looking ------------------------------------------------------------------------------

    def status(self, node: LocalNode | None = None) -> ClusterStatus:
        """As one node that runs sees the cluster; any if none is named."""
        nodes = (
            [node] if node is not None else [one for one in self.cluster.nodes if one.is_running]
        )
        problems: list[LogError] = []
        for one in nodes:
            try:
                with tidelog.connect(one.url, timeout=5.0, reconnect=RECONNECT) as log:
                    return log.admin.status()
            except LogError as error:
                problems.append(error)
        raise AssertionError(f"no node tells how the cluster is: {problems}")

    def streams(self) -> tuple[int, ...]:
        return tuple(sorted({append.stream for append in self.load.appends if append.stream}))

    def wait_until(
        self, condition: Callable[[], bool], what: str, seconds: float = HEAL_SECONDS
    ) -> None:
        """Look again and again; the pause only spares the processor."""
        deadline = monotonic() + seconds
        pause = threading.Event()
        while not condition():
            assert monotonic() < deadline, f"not within {seconds} s: {what}"
            pause.wait(0.05)

    def wait_for_status(
        self,
        condition: Callable[[ClusterStatus], bool],
        what: str,
        seconds: float = HEAL_SECONDS,
    ) -> None:
        """Until some node sees it."""

        def is_so() -> bool:
            try:
                return condition(self.status())
            except AssertionError:
                return False

        self.wait_until(is_so, what, seconds)

    def wait_until_whole(self, seconds: float = HEAL_SECONDS) -> None:
        """Until every stream has its leader and all of its replicas, none lagging far behind."""
        try:
            self.wait_for_status(is_whole, "the cluster is whole again", seconds)
        except AssertionError as error:
            error.add_note(self.described())
            raise

    def node_of(self, number: int) -> LocalNode:
        return self.cluster.node(number)

    def leader(self, stream: int | None = None) -> LocalNode:
        """Of a log stream; of one that the load writes to if none is named."""
        self.wait_until(lambda: bool(self.streams()), "something was appended")
        wanted = stream if stream is not None else self.random.choice(self.streams())

        def found() -> ClusterStream | None:
            return self.status().stream(wanted)

        self.wait_for_status(
            lambda status: bool((one := status.stream(wanted)) and one.leader),
            f"stream {wanted} has a leader",
        )
        stated = found()
        assert stated is not None
        return self.node_of(stated.leader)

    def follower(self, stream: int | None = None) -> LocalNode:
        """One that runs and does not lead the stream."""
        leader = self.leader(stream)
        others = [node for node in self.storing if node.is_running and node is not leader]
        return self.random.choice(others)

    def metadata_leader(self) -> LocalNode:
        self.wait_for_status(lambda status: bool(status.metadata.leader), "metadata is led")
        return self.node_of(self.status().metadata.leader)

    # -- mending ------------------------------------------------------------------------------

    def restart(self, *nodes: LocalNode) -> None:
        """Start what does not run; without names, everything."""
        for node in nodes or self.cluster.nodes:
            if not node.is_running:
                node.start()

    # -- the end ------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything, in the files too."""
        self.check_reading()
        self.check_replicas()

    def check_reading(self) -> None:
        """Stop the load, wait for all replicas, read every node back, hold it against history."""
        self.restart()
        self.load.stop()
        self.wait_until_whole()
        end = self._end()
        reads = [self.read_back(node, end) for node in self.storing]
        if reads[0].glsns:
            self.load.wait_for_subscribers(reads[0].glsns[-1] + 1)
        terms = sum(stream.term for stream in self.status().streams)
        problems = check_all(self.load.appends, reads, self.load.subscribers, end=end, hidden=terms)
        assert not problems, "\n".join(problems)

    def check_replicas(self) -> None:
        """Digests of all replicas, which also know the entries that no reader is shown."""
        with tidelog.connect(self.cluster.url) as log:
            checked = list(log.admin.verify())
        problems = [one for one in checked if one.problem]
        assert not problems, "\n".join(map(str, problems))
        assert any(one.kind == "replicas" for one in checked), "nothing was compared"

    def _end(self) -> int:
        """Behind the last GLSN that any node knows of."""
        ends = []
        for node in self.storing:
            with tidelog.connect(node.url) as log:
                ends.append(log.position().glsn)
        acknowledged = [a.glsn_end for a in self.load.appends if a.outcome is Outcome.ACKNOWLEDGED]
        return max([*ends, *acknowledged])

    def read_back(self, node: LocalNode, end: int) -> Seen:
        """All that a node shows, once it shows everything below ``end``."""
        found = Seen(f"node {node.id}")
        with tidelog.connect(node.url) as log:
            self.wait_until(lambda: log.position().glsn >= end, f"node {node.id} shows {end}")
            for record in log.read(1, end):
                found.add(record.glsn, read_payload(record.value))
        return found

    # -- for whoever has to find out ----------------------------------------------------------

    def described(self) -> str:
        try:
            status = self.status()
        except AssertionError as error:
            return str(error)
        lines = [f"metadata {status.metadata}"]
        lines += [str(stream) for stream in status.streams]
        lines += [f"node {node.node} answers={node.answers}" for node in status.nodes]
        return "\n".join(lines)

    def last_words(self) -> str:
        """The end of every node's log."""
        words = [f"{self.rounds} rounds, {self.load.acknowledged} records", self.described()]
        for node in self.cluster.nodes:
            words.append(f"-- node {node.id}, running: {node.is_running}")
            words += tail_of(node.log)
        return "\n".join(words)


def tail_of(path: Path, lines: int = LOG_LINES) -> list[str]:
    if not path.exists():
        return ["no log"]
    return path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]


def is_whole(status: ClusterStatus) -> bool:
    """Whether everything that should be there is there."""
    return (
        set(status.metadata.answering) == set(status.metadata.members)
        and all(node.answers for node in status.nodes)
        and all(is_steady(stream) for stream in status.streams)
    )


def is_steady(stream: ClusterStream) -> bool:
    """Led, and nobody lags behind what is ordered."""
    return (
        stream.plan == "steady"
        and stream.leader != 0
        and all(
            replica.facts is not None
            and replica.facts.is_complete
            and replica.facts.role in ("leader", "follower")
            and replica.facts.ordered_end_llsn >= stream.ordered_end_llsn
            for replica in stream.replicas
        )
    )
