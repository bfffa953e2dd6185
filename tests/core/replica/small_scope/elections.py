"""All that can happen to three replicas in a few elections, up to a number of steps.

A step is one of: a message arrives; a message arrives and its receiver crashes before its disk is
done; a node crashes and comes back; the operator begins a term; the operator chooses a leader; a
client appends.  Messages may be lost (they never arrive), late and in any order.  States that look
alike are visited once.

To get through more elections in as many steps, an election may be one step (``whole_elections``):
two or three nodes are fenced and one of them leads, before anything else happens.  Messages of one
node to another in one term then arrive in order.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.core.replica.protocol.harness import OPERATOR, STREAM, Group
from tidelog.core.replica.messages import (
    AddFollowerRequest,
    BecomeLeaderResponse,
    FenceResponse,
    FollowerHead,
    Message,
    Refusal,
    Role,
)
from tidelog.types import Term

NODES = (1, 2, 3)
Action: TypeAlias = tuple[str, int]


@dataclass(slots=True)
class Budget:
    """How often each costly thing may still happen."""

    terms: int
    crashes: int
    appends: int
    whole_elections: bool = False


@dataclass(slots=True)
class World:
    """Replicas, and an operator that does what the protocol says, in its own time."""

    budget: Budget
    group: Group = field(default_factory=lambda: Group(*NODES))
    heads: dict[int, FollowerHead] = field(default_factory=dict)
    chosen: int = 0
    is_led: bool = False

    # -- what can happen ---------------------------------------------------------------------

    def actions(self) -> Iterator[Action]:
        for place in self._deliverable():
            yield "deliver", place
            if self.budget.crashes:
                yield "deliver and crash", place
        if self.budget.crashes:
            yield from (("crash", node) for node in NODES)
        if self.budget.appends:
            for node in NODES:
                if self.group[node].role is Role.LEADER:
                    yield "append", node
        if self.budget.terms and self.budget.whole_elections:
            yield from (("elect without", node) for node in NODES)
        elif self.budget.terms:
            yield "begin term", 0
        complete = [head for head in self.heads.values() if head.is_complete]
        if not self.chosen and 2 * len(complete) > len(NODES):
            yield "choose", 0

    def _deliverable(self) -> Iterator[int]:
        wire = self.group.wire
        links: set[tuple[int, int, int]] = set()
        for place, message in enumerate(wire):
            link = (message.source, message.target, message.term)
            is_next = link not in links if self.budget.whole_elections else True
            links.add(link)
            if is_next and message not in wire[:place]:
                yield place

    def act(self, action: Action) -> None:
        kind, place = action
        match kind:
            case "deliver":
                self.group.step(self.group.wire.pop(place))
            case "deliver and crash":
                self._deliver_and_crash(self.group.wire.pop(place))
            case "crash":
                self.budget.crashes -= 1
                self.group.restart(place)
            case "append":
                self.budget.appends -= 1
                self.group.append(place, b"%d of node %d" % (self.budget.appends, place))
            case "begin term":
                self._begin_term()
            case "choose":
                self._choose()
            case "elect without":
                self._elect(place)
        self._take_answers()
        self.group.sent.clear()

    def _deliver_and_crash(self, message: Message) -> None:
        self.budget.crashes -= 1
        self.group.hold_back(message.target)
        self.group.step(message)
        self.group.restart(message.target)

    # -- the operator ------------------------------------------------------------------------

    def _begin_term(self) -> None:
        self.budget.terms -= 1
        self.group.write_row(term=self.group.row.term + 1)
        self.heads, self.chosen, self.is_led = {}, 0, False
        for node in NODES:
            self.group.put(self.group.fence_request(node, self.group.row.term))

    def _elect(self, absent: int) -> None:
        """Hold an election; the request to a node that is absent stays on its way."""
        late = self.group.wire
        self.group.wire = []
        self._begin_term()
        requests, self.group.wire = self.group.wire, late
        for request in requests:
            if request.target == absent:
                self.group.wire.append(request)
            else:
                self.group.step(request)
                self._take_answers()
        if 2 * sum(head.is_complete for head in self.heads.values()) > len(NODES):
            self._choose()
            self.group.step(self.group.wire.pop())

    def _choose(self) -> None:
        able = [head for head in self.heads.values() if head.is_complete]
        self.chosen = max(able, key=lambda each: (each.head, -each.node)).node
        self.group.had_leader = True
        term = self.group.row.term
        self.group.put(self.group.lead_request(self.chosen, term, *self.heads.values()))

    def _take_answers(self) -> None:
        """Answers reach the operator at once: requests are late enough for both."""
        wire, self.group.wire = self.group.wire, []
        for message in wire:
            if message.target != OPERATOR:
                self.group.wire.append(message)
            elif message.term == self.group.row.term:
                self._take(message)

    def _take(self, message: Message) -> None:
        match message:
            case FenceResponse() if message.source not in self.heads:
                head = FollowerHead(message.source, message.head, message.is_complete)
                self.heads[message.source] = head
                if self.is_led:
                    self._add(head)
            case BecomeLeaderResponse():
                told = self.is_led
                self.is_led = True
                if not told:
                    self.group.write_row(leader=self.chosen)
                    for head in self.heads.values():
                        if head.node != self.chosen:
                            self._add(head)
            case _:
                assert isinstance(message, FenceResponse | Refusal) or message.target == OPERATOR

    def _add(self, head: FollowerHead) -> None:
        term = Term(self.group.row.term)
        self.group.put(
            AddFollowerRequest(OPERATOR, self.group.members[self.chosen].node, STREAM, term, head)
        )

    # -- states ------------------------------------------------------------------------------

    def key(self) -> Hashable:
        """What makes a state differ from others."""
        replicas = tuple(self._replica_key(node) for node in NODES)
        wire = frozenset(Counter(map(repr, self.group.wire)).items())
        budget = (self.budget.terms, self.budget.crashes, self.budget.appends)
        heads = tuple(sorted(self.heads.items()))
        return replicas, wire, budget, repr(heads), self.chosen, self.is_led

    def _replica_key(self, node: int) -> Hashable:
        replica, disk = self.group[node], self.group.members[node].disk
        return (
            replica.role,
            replica.term,
            replica.reign,
            replica.commit_index,
            repr(disk.durable),
            repr(sorted(replica.cursors.items())),
        )

    def settle(self) -> None:
        """End well: with all nodes and messages back, all that was promised is there."""
        group = self.group
        self.budget = Budget(terms=1, crashes=0, appends=0)
        group.wire.clear()
        self.act(("begin term", 0))
        self.deliver_all()
        self.act(("choose", 0))
        self.deliver_all()
        leader = self.chosen
        assert group[leader].role is Role.LEADER
        group.append(leader, b"in the end")
        for _ in range(6):
            group.tick()
            self.deliver_all()
            group.report()
            group.cut()
            group.tell_cuts()
            self.deliver_all()
        logs = [group.log(node) for node in NODES]
        assert logs[0] == logs[1] == logs[2], logs
        assert group.data(leader)[-1] == b"in the end"
        assert group.row.llsn_end == group[leader].head.llsn + 1, "all was ordered"

    def deliver_all(self) -> None:
        for _ in range(200):
            if not self.group.wire:
                return
            self.act(("deliver", 0))
        raise AssertionError("the group does not come to rest")


def explore(budget: Budget, depth: int, *, settle_every: int = 0) -> tuple[int, int]:
    """Visit all states within a number of steps; return how many, and how many steps."""
    first = World(budget)
    first.act(("elect without" if budget.whole_elections else "begin term", 0))
    seen = {hash(first.key())}
    layer = [(pickle.dumps(first), list(first.actions()))]
    steps = 0
    for _ in range(depth):
        following: list[tuple[bytes, list[Action]]] = []
        for frozen, actions in layer:
            for action in actions:
                world: World = pickle.loads(frozen)
                world.act(action)
                steps += 1
                key = hash(world.key())
                if key in seen:
                    continue
                seen.add(key)
                following.append((pickle.dumps(world), list(world.actions())))
                if settle_every and len(seen) % settle_every == 0:
                    world.settle()
        layer = following
    return len(seen), steps
