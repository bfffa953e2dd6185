"""Fills the log, while the leader of one of its log streams dies."""

from __future__ import annotations

from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Final

from examples.ledger.branches import Branches, branches_at_work
from examples.ledger.movements import Plan
from examples.ledger.saying import Murmur, say
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteTopic

TOPIC: Final = "movements"
STREAMS: Final = 4
KILL_AT: Final = 0.4
BACK_AT: Final = 0.7
_LOOK_SECONDS: Final = 0.05


def fill(cluster: LocalCluster, plan: Plan) -> None:
    """All branches write; a node is killed on the way, and started again later."""
    started = perf_counter()
    with cluster.connect() as log:
        # Movements bring their versions, so all of them are kept until somebody says up to which
        # version history is not needed any more (set_gc_boundary).
        topic = log.create_topic(TOPIC, streams=STREAMS, versions="explicit")
        with branches_at_work(cluster.url_of(TOPIC), plan) as branches:
            _wait_for(int(plan.events * KILL_AT), topic, branches)
            leader = cluster.leader_of(topic.streams[0])
            leader.kill()
            say(f"kill -9 of node {leader.id}, the leader of log stream {topic.streams[0]}")
            _wait_for(int(plan.events * BACK_AT), topic, branches)
            leader.start()
            say(f"node {leader.id} is started again")
        seconds = perf_counter() - started
        count = topic.position().high_watermark
    say(f"{count:,} entries, {count / seconds:,.0f} a second; no branch noticed anything")
    cluster.wait_until_ready()
    say("all nodes are there again")


def _wait_for(count: int, topic: RemoteTopic, branches: Branches) -> None:
    murmur = Murmur()
    while (found := topic.position().high_watermark) < count:
        branches.check()
        murmur(f"{found:,} entries")
        Event().wait(_LOOK_SECONDS)
