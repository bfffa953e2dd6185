"""Brings appends to the leaders of their log streams: here, elsewhere, or when there is one.

Input: appends in the order of their arrival, new views, answers of other nodes.  Output: what
became of each append.

Invariants:
  R1  appends to one log stream are sent on in the order in which they arrived
  R2  what may have taken effect is never sent again: whoever asked decides
  R3  when a stream's leader changes, nobody waits for the answer of the old one
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import Final

from tidelog.client.link import Reply
from tidelog.errors import (
    BadFrame,
    ConnectionLost,
    LeaderLost,
    LogError,
    NotLeader,
    StaleWrite,
    UnknownStream,
    UnknownTopic,
    Unreachable,
)
from tidelog.formats.messages import AppendBatches, Receipts
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt
from tidelog.runtime.gateway.append_shares import Share, shares_of
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.counters import GatewayCounters
from tidelog.runtime.gateway.peers import PassedOn, Peers
from tidelog.runtime.gateway.surroundings import Replicas
from tidelog.runtime.storage_node.appends import Placed
from tidelog.server.appends import decode_append
from tidelog.server.backend import Outcome
from tidelog.types import NO_NODE, NodeId, StreamId

_LOOK_SECONDS: Final = 0.05
"""How often it is looked whether somebody leads, while appends wait for that."""


class AppendRouter:
    """Belongs to one event loop."""

    def __init__(
        self,
        replicas: Replicas,
        cluster: ClusterMap,
        peers: Peers,
        counters: GatewayCounters,
        *,
        leader_seconds: float,
    ) -> None:
        self._replicas = replicas
        self._cluster = cluster
        self._peers = peers
        self._counters = counters
        self._leader_seconds = leader_seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[StreamId, deque[tuple[float, Share]]] = {}
        """Until when each append waits for a leader, and behind it all that came later (R1)."""
        self._passed: dict[StreamId, dict[PassedOn, NodeId]] = {}
        """What other nodes have not answered yet, and which node that is."""
        self._timer: asyncio.TimerHandle | None = None
        cluster.listen(self._on_view)

    # -- what comes in ------------------------------------------------------------------------

    def check(self, message: AppendBatches, attachment: memoryview) -> Append:
        """The append in a request; NotLeader for what is only too new to be known here."""
        try:
            return decode_append(self._cluster.topic(message.topic), message, attachment)
        except (UnknownTopic, UnknownStream) as error:
            if self._cluster.doubts(message.topic):
                raise NotLeader(f"{error}; it may be too new to be known here yet") from error
            raise

    def post(self, append: Append, seconds: float) -> Outcome:
        """Append wherever the leaders are; the future tells what became of all parts."""
        shares, outcome = shares_of(append, self._loop.time() + seconds)
        for share in shares:
            waiting = self._waiting.get(share.stream)
            if waiting or not self._send(share):
                self._wait(share)
        return outcome

    def post_here(self, append: Append, seconds: float) -> Outcome:
        """Append to what is led here, and to nothing else."""
        shares, outcome = shares_of(append, self._loop.time() + seconds)
        for share in shares:
            if not self.append_here(share):
                share.end(self._not_leader(share.stream))
        return outcome

    def hint(self, append: Append) -> str:
        """Where such appends had better be sent; empty: here, or nobody knows."""
        leader = self._replicas.leader_of(StreamId(append.parts[0].stream))
        return "" if leader in (NO_NODE, self._replicas.node) else self._cluster.address(leader)

    def close(self) -> None:
        """Refuse what waits for a leader."""
        if self._timer is not None:
            self._timer.cancel()
        for waiting in self._waiting.values():
            for _, share in waiting:
                share.end(self._not_leader(share.stream))
        self._waiting.clear()

    # -- here ---------------------------------------------------------------------------------

    def append_here(self, share: Share) -> bool:
        """Append if this node leads; False, with nothing done, if it does not."""
        append, part = share.append, share.part
        try:
            self._check_version(share)
            placed = self._replicas.append(
                share.stream,
                part.body,
                producer=append.producer,
                sequence=append.sequence,
                after=share.after,
                ack=append.ack,
            )
        except NotLeader:
            return False
        except LogError as error:
            share.end(error)
            return True
        self._counters.appends_here += 1
        placed.add_done_callback(partial(_on_placed, share))
        return True

    def _check_version(self, share: Share) -> None:
        """StaleWrite if an explicit version does not lie above the GC boundary."""
        version = share.part.version_min
        if version is None:
            return
        store = self._replicas.node_store.streams.get(share.part.stream)
        if store is None:
            raise NotLeader(f"log stream {share.stream} is not here")
        boundary = max(store.boundary, self._cluster.boundary(store.topic))
        if version <= boundary:
            raise StaleWrite(
                f"write version {version} is not above the GC boundary {boundary}: "
                "write with a newer version"
            )

    # -- elsewhere ----------------------------------------------------------------------------

    def _send(self, share: Share) -> bool:
        """Send a part to whoever leads; False if nobody does."""
        leader = self._replicas.leader_of(share.stream)
        if leader == self._replicas.node:
            return self.append_here(share)
        if leader == NO_NODE:
            return False
        self._pass_on(share, leader)
        return True

    def _pass_on(self, share: Share, leader: NodeId) -> None:
        append, part = share.append, share.part
        message = AppendBatches(
            append.topic,
            (part.stream,),
            append.producer,
            append.sequence,
            (share.after,),
            append.ack.value,
        )
        passed = PassedOn(
            message,
            (share.header(), part.body.data),
            share.size,
            share.deadline,
            lambda outcome: self._on_answer(share, passed, outcome),
        )
        self._passed.setdefault(share.stream, {})[passed] = leader
        self._counters.appends_passed_on += 1
        try:
            self._peers.peer(leader).pass_on(passed)
        except Unreachable as error:
            passed.end(error)

    def _on_answer(self, share: Share, passed: PassedOn, outcome: Reply | LogError) -> None:
        on_way = self._passed.get(share.stream)
        if on_way is not None:
            on_way.pop(passed, None)
            if not on_way:
                del self._passed[share.stream]
        share.end(self._judge(share, outcome))

    def _judge(self, share: Share, outcome: Reply | LogError) -> Receipt | LogError:
        """What the answer of another node means to the client (R2)."""
        if isinstance(outcome, Unreachable):
            return NotLeader(str(outcome), leader=self._address_of_leader(share.stream))
        if isinstance(outcome, ConnectionLost):
            return LeaderLost(f"{outcome}; the append may take effect")
        if isinstance(outcome, LogError):
            return outcome
        answer = outcome.answer
        if not isinstance(answer, Receipts) or len(answer.receipts) != 1:
            return BadFrame(f"a node answered an append with {type(answer).__name__}")
        one = answer.receipts[0]
        return Receipt(
            share.append.topic,
            one.stream,
            one.glsn,
            one.llsn,
            one.count,
            share.append.ack,
            one.duplicate,
        )

    # -- when nobody leads --------------------------------------------------------------------

    def _wait(self, share: Share) -> None:
        now = self._loop.time()
        until = now + min(self._leader_seconds, (share.deadline - now) / 2)
        self._waiting.setdefault(share.stream, deque()).append((until, share))
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        now = self._loop.time()
        for stream in list(self._waiting):
            self._look_at(stream, now)
        if self._waiting:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look_again)

    def _look_at(self, stream: StreamId, now: float) -> None:
        """Send what waits, in its order; refuse what has waited for too long."""
        waiting = self._waiting[stream]
        while waiting:
            until, share = waiting[0]
            if not self._send(share):
                if now < until:
                    return
                self._counters.appends_without_leader += 1
                share.end(self._not_leader(stream))
            waiting.popleft()
        del self._waiting[stream]

    def _on_view(self) -> None:
        for stream, on_way in list(self._passed.items()):
            leader = self._replicas.leader_of(stream)
            for passed, node in list(on_way.items()):
                if node != leader:
                    passed.end(_deposed(stream, node))  # R3
        if self._waiting:
            now = self._loop.time()
            for stream in list(self._waiting):
                self._look_at(stream, now)

    def _not_leader(self, stream: StreamId) -> NotLeader:
        hint = self._address_of_leader(stream)
        who = f"it is led at {hint}" if hint else "nobody is known to lead it"
        return NotLeader(f"log stream {stream} is not led here: {who}", leader=hint)

    def _address_of_leader(self, stream: StreamId) -> str:
        leader = self._replicas.leader_of(stream)
        return "" if leader in (NO_NODE, self._replicas.node) else self._cluster.address(leader)


def _deposed(stream: StreamId, node: NodeId) -> LeaderLost:
    return LeaderLost(
        f"node {node} does not lead log stream {stream} any more; the append may take effect"
    )


def _on_placed(share: Share, placed: asyncio.Future[Placed]) -> None:
    if placed.cancelled():
        share.end(LeaderLost("the node stopped; the append may take effect"))
        return
    error = placed.exception()
    if error is not None:
        share.end(error if isinstance(error, LogError) else LogError(repr(error)))
        return
    found = placed.result()
    append = share.append
    share.end(
        Receipt(
            append.topic,
            found.stream,
            found.glsn,
            found.llsn,
            found.count,
            append.ack,
            found.duplicate,
        )
    )
