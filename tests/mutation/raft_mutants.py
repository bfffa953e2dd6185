"""Safeguards of Raft and of the metadata repository, each switched off and hunted by seeds.

``seeds`` is how many a hunt may take; figure 8 of Raft and others that chance does not meet in
reasonable time are hunted by stories, in the tests of ``core/raft``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.mutation.left_out import Change, replaced, together
from tidelog.core.metadata import repository
from tidelog.core.order import machine as order_machine
from tidelog.core.raft import election, roles
from tidelog.core.raft.entries import HardState
from tidelog.core.raft.following import Following
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.messages import AppendAnswer
from tidelog.core.raft.reads import ReadRounds
from tidelog.core.raft.writes import Writes
from tidelog.storage.raft_store import RaftStore
from tidelog.testing.sometimes import Kind
from tidelog.testing.storage_replica import Replica
from tidelog.types import NO_NODE


@dataclass(frozen=True, slots=True)
class SeedMutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    caught_by: tuple[str, ...]
    """The checkers that may notice."""
    kind: Kind = Kind.RAFT
    seeds: int = 10


def instead(owner: Any, name: str, value: Any) -> Change:
    """``owner.name`` becomes ``value``."""
    return replaced(owner, name, lambda _: value)


def always(*_: object, **__: object) -> bool:
    return True


def nothing(*_: object, **__: object) -> None:
    return None


def vote_forgotten(writes: Writes, hard_state: HardState) -> None:
    writes._hard_state = HardState(hard_state.term, NO_NODE)


def acknowledged_at_once(following: Following, index: int) -> None:
    state = following._state
    following._matched = max(following._matched, index)  # type: ignore[type-var]
    state.messages.append(
        AppendAnswer(state.node, following.leader, state.term, following._matched)
    )


def counts_itself_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def durable_at(leadership: Leadership, voter: int) -> Any:
        if voter == leadership._state.node:
            return leadership._state.log.last_index
        return original(leadership, voter)

    return durable_at


def confirmed_by_nobody(rounds: ReadRounds, _: object) -> Any:
    done, rounds._confirming = rounds._confirming, []
    return rounds._index, done


def due_in_any_term(rounds: ReadRounds, *, committed_in_term: bool) -> bool:
    return bool(rounds._queued) and not rounds._confirming


def counts_what_was_replaced(writes: Writes, begin: int) -> None:
    kept = begin - 1
    writes.handed = min(writes.handed, kept)  # type: ignore[type-var]
    writes.durable = min(writes.durable, kept)  # type: ignore[type-var]


def of_any_replica(replicas: Any, _: object) -> Any:
    return max(replica.end for replica in replicas)


def without_a_quorum(replica: Replica) -> int:
    return min(replica.synced_records, replica.matched)
