"""Safeguards of Raft and of the metadata repository, each switched off and hunted by seeds.

``seeds`` is how many a hunt may take; figure 8 of Raft and others that chance does not meet in
reasonable time are hunted by stories, in the tests of ``core/raft``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tests.mutation.left_out import Change, replaced, together
from tests.mutation.mutant import instead
from tidelog.core.metadata import repository
from tidelog.core.metadata.delivery import Delivery
from tidelog.core.order import machine as order_machine
from tidelog.core.raft import election, roles
from tidelog.core.raft.entries import HardState, Index
from tidelog.core.raft.following import Following
from tidelog.core.raft.leadership import Leadership
from tidelog.core.raft.messages import AppendAnswer
from tidelog.core.raft.reads import ReadRounds
from tidelog.core.raft.writes import Writes
from tidelog.storage.raft_store import RaftStore
from tidelog.testing.sometimes import Kind
from tidelog.types import NO_NODE, NodeId


@dataclass(frozen=True, slots=True)
class SeedMutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    caught_by: tuple[str, ...]
    """The checkers that may notice."""
    kind: Kind = Kind.RAFT
    seeds: int = 10


def always(*_: object, **__: object) -> bool:
    return True


def nothing(*_: object, **__: object) -> None:
    return None


def vote_forgotten(writes: Writes, hard_state: HardState) -> None:
    writes._hard_state = HardState(hard_state.term, NO_NODE)


def acknowledged_at_once(following: Following, index: Index) -> None:
    state = following._state
    following._matched = max(following._matched, index)
    state.messages.append(
        AppendAnswer(state.node, following.leader, state.term, following._matched)
    )


def counts_itself_at_once(original: Callable[..., Any]) -> Callable[..., Any]:
    def durable_at(leadership: Leadership, voter: NodeId) -> Any:
        if voter == leadership._state.node:
            return leadership._state.log.last_index
        return original(leadership, voter)

    return durable_at


def confirmed_by_nobody(rounds: ReadRounds, _: object) -> Any:
    done, rounds._confirming = rounds._confirming, []
    return rounds._index, done


def due_in_any_term(leadership: Leadership) -> bool:
    return leadership._reads.is_waiting


def counts_what_was_replaced(writes: Writes, begin: Index) -> None:
    writes.handed = min(writes.handed, Index(begin - 1))
    writes.durable = min(writes.durable, Index(begin - 1))


def end_of_any_replica(replicas: Any, _: object) -> Any:
    return max(replica.end for replica in replicas)


MUTANTS: Final = (
    SeedMutant(
        "a vote is not written down",
        instead(Writes, "set_hard_state", vote_forgotten),
        ("promises",),
    ),
    SeedMutant(
        "a vote is given before it is durable",
        instead(Writes, "hard_state_durable", property(always)),
        ("promises",),
    ),
    SeedMutant(
        "a follower acknowledges entries before they are durable",
        instead(Following, "_match", acknowledged_at_once),
        ("promises", "acked_durable"),
    ),
    SeedMutant(
        "a leader counts its own entries before they are durable",
        replaced(Leadership, "_durable_at", counts_itself_at_once),
        ("acked_durable",),
        seeds=20,
    ),
    SeedMutant(
        "a completed write counts for entries that were replaced meanwhile",
        instead(Writes, "truncate", counts_what_was_replaced),
        ("invariant", "promises", "acked_durable"),
        seeds=60,
    ),
    SeedMutant(
        "a vote is given to a log that lacks entries",
        together(
            instead(election, "is_up_to_date", always), instead(roles, "is_up_to_date", always)
        ),
        ("raft_safety",),
        seeds=60,
    ),
    SeedMutant(
        "a follower truncates whatever it is sent",
        instead(Following, "_first_difference", lambda following, entries: 0),
        ("invariant", "promises", "raft_safety", "acked_durable"),
        seeds=100,
    ),
    SeedMutant(
        "a read is served before the leader has committed in its term",
        instead(Leadership, "_reads_due", property(due_in_any_term)),
        ("reads",),
        seeds=40,
    ),
    SeedMutant(
        "a read is served without asking a quorum",
        instead(ReadRounds, "confirmed", confirmed_by_nobody),
        ("reads",),
        seeds=100,
    ),
    SeedMutant(
        "the store says that it has synced, and has not",
        instead(RaftStore, "sync", nothing),
        ("stored",),
    ),
    SeedMutant(
        "one replica is enough to order a record",
        instead(order_machine, "durable_end", end_of_any_replica),
        ("acked_durable",),
        Kind.CLUSTER,
    ),
    SeedMutant(
        "the changes of each life of a metadata node have the same numbers",
        instead(repository, "REQUEST_NUMBERS", 1),
        ("answers",),
        Kind.CLUSTER,
        seeds=20,
    ),
    SeedMutant(
        "a lost commit result is not sent again",
        instead(Delivery, "tick", lambda delivery: []),
        ("liveness",),
        Kind.CLUSTER,
        seeds=20,
    ),
)
