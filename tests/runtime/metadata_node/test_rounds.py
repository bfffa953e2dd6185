"""How long batches of a metadata leader take, with a Raft node that is made up."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidelog.core.raft.entries import NO_INDEX, Index
from tidelog.core.raft.options import Role
from tidelog.runtime.metadata_node.rounds import Rounds


@dataclass
class MadeUp:
    role: Role = Role.LEADER
    applied: Index = NO_INDEX
    last_index: Index = NO_INDEX

    def propose(self) -> None:
        self.last_index = Index(self.last_index + 1)

    def apply(self) -> None:
        self.applied = self.last_index


def test_a_batch_is_timed_from_its_proposal_to_the_turn_that_applies_it() -> None:
    raft = MadeUp()
    rounds = Rounds(raft)
    raft.propose()
    rounds.look(1.0, 1.5)
    rounds.look(2.0, 2.0)
    raft.apply()
    raft.propose()  # The next one, in the same turn.
    rounds.look(3.0, 3.5)
    raft.apply()
    rounds.look(5.0, 5.0)
    rounds.look(6.0, 6.0)
    assert rounds.count == 2
    assert rounds.seconds == pytest.approx((3.5 - 1.0) + (5.0 - 3.0))


def test_a_batch_of_a_leader_that_is_deposed_is_not_timed() -> None:
    raft = MadeUp()
    rounds = Rounds(raft)
    raft.propose()
    rounds.look(1.0, 1.0)
    raft.role = Role.FOLLOWER
    rounds.look(2.0, 2.0)
    raft.apply()
    raft.role = Role.LEADER
    rounds.look(9.0, 9.0)
    assert rounds.count == 0
