"""Changes of who belongs to the metadata repository, step by step.

Every step is a change of the Raft group's membership, which is in its log: whoever asks again goes
on where the last one stopped, at this node or at the next leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tidelog.core.metadata.commands import Change, NameMember
from tidelog.core.metadata.repository import Repository
from tidelog.core.raft.membership import AddLearner, Promote, Remove
from tidelog.core.raft.membership import Change as MemberChange
from tidelog.core.raft.options import Refused, Role
from tidelog.errors import BadOption, DeadlineExceeded, LeaderLost, NotLeader, RevisionConflict
from tidelog.runtime.post import Post
from tidelog.types import NO_NODE, NodeId

_LOOK_SECONDS: Final = 0.05
_PASSING: Final = frozenset(
    {
        Refused.TRANSFERRING,
        Refused.TOO_MUCH_UNCOMMITTED,
        Refused.ANOTHER_CHANGE_PENDING,
        Refused.NO_COMMIT_IN_THIS_TERM,
        Refused.NOT_CAUGHT_UP,
        Refused.TOO_FEW_ALIVE,
    }
)
"""What is over after a while."""


class MemberChanges:
    """Belongs to a metadata node; only that of the leader is of use."""

    def __init__(
        self,
        repository: Repository,
        post: Post,
        ask: Callable[[Change], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._repository = repository
        self._post = post
        self._ask = ask
        self._wake = wake
        self._refused: Refused | None = None
        """Why the last change that was asked for has to wait."""

    async def within(self, seconds: float, change: Awaitable[None]) -> None:
        """Await a change; what was not reached when the time is over can be asked for again."""
        self._refused = None
        try:
            async with asyncio.timeout(seconds):
                await change
        except TimeoutError:
            why = "" if self._refused is None else f" ({self._refused.value})"
            raise DeadlineExceeded(
                f"the members did not change within {seconds} s{why}: ask again to go on"
            ) from None

    async def add(self, node: NodeId, address: str) -> None:
        """As a learner, until it has caught up; then as a voter."""
        self._check_leads()
        if not address:
            raise BadOption(f"nobody knows where node {node} is: give its address")
        await self._name(node, address)
        self._post.learn(node, address)
        raft = self._repository.raft
        while node not in raft.membership.voters:
            is_learner = node in raft.membership.learners
            await self._change(Promote(node) if is_learner else AddLearner(node))

    async def remove(self, node: NodeId) -> None:
        """Voter or learner; a leader that removes itself leads until that is committed."""
        raft = self._repository.raft
        self._check_leads()
        if node in (*raft.membership.voters, *raft.membership.learners):
            await self._change(Remove(node))
        if node != raft.node:
            await self._name(node, "")

    async def transfer(self, target: NodeId) -> None:
        """Returns when the other one leads; given up after an election timeout."""
        raft = self._repository.raft
        if target == raft.leader:
            return
        self._check_leads()
        refused = raft.transfer_leadership(target)
        self._wake()
        if refused is not None:
            raise BadOption(f"node {target} cannot lead now: {refused.value}")
        while raft.status().transfer_target == target or raft.leader == NO_NODE:
            await asyncio.sleep(_LOOK_SECONDS)
        if raft.leader != target:
            raise LeaderLost(f"node {raft.leader} leads, and not {target}: try again")

    async def _name(self, node: NodeId, address: str) -> None:
        """Say where a member is found; empty: nowhere.

        The next try sees who was faster: a refusal comes when it is applied here.
        """
        while True:
            revision = self._repository.machine.member_revision(node)
            with suppress(RevisionConflict):
                return await self._ask(NameMember(node, address, revision))

    async def _change(self, change: MemberChange) -> None:
        """Make one change, and wait until it is committed."""
        raft = self._repository.raft
        while True:
            self._check_leads()
            index = raft.change_membership(change)
            self._wake()
            if not isinstance(index, Refused):
                self._refused = None
                break
            if index not in _PASSING:
                raise BadOption(f"node {change.node}: {index.value}")
            self._refused = index
            await asyncio.sleep(_LOOK_SECONDS)
        term = raft.term
        while raft.commit < index:
            if raft.term != term:
                raise LeaderLost("the leader changed meanwhile: ask again to go on")
            await asyncio.sleep(_LOOK_SECONDS)

    def _check_leads(self) -> None:
        raft = self._repository.raft
        if raft.role is not Role.LEADER:
            who = "nobody" if raft.leader == NO_NODE else f"node {raft.leader}"
            raise NotLeader(f"{who} leads the metadata repository, and not node {raft.node}")
