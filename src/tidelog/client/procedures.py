"""What takes long in a cluster, followed to its end.

What is under way stands in the metadata repository, not here: whoever stops to follow leaves it
going on, and whoever asks for the same again goes on to follow it.

Invariants:
  P1  nothing is begun on a log stream while something else is under way there
  P2  a node that is drained leads nothing when its replica is taken from it
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from tidelog.errors import Busy, ConnectionLost, UnknownStream, WrongState
from tidelog.interface.cluster_figures import ClusterStatus, ClusterStream

LOOK_SECONDS: Final = 0.3
"""How often to look at the metadata."""
TRIES: Final = 20
"""Elections that may end with another leader than is wanted: of equal logs the preferred one is
chosen, and under load the old leader's is often the longest."""
AGAIN: Final = 5
"""How often a change is asked for again that an election has undone."""

Kind: TypeAlias = Literal["swap", "expand", "contract"]


class Step(msgspec.Struct, frozen=True):
    """How far a procedure is."""

    stream: int
    text: str
    done: int | None = None
    """Entries that were copied, of ``total``."""
    total: int | None = None


class Changes(Protocol):
    """What procedures need: ``AsyncAdmin`` is one."""

    async def status(self) -> ClusterStatus: ...

    async def move_leader(self, stream: int, target: int = 0) -> None: ...

    async def change_ensemble(
        self, stream: int, kind: Kind, *, old: int = 0, new: int = 0
    ) -> None: ...


async def change_ensemble(
    admin: Changes,
    stream: int,
    kind: Kind,
    *,
    old: int = 0,
    new: int = 0,
    look: float = LOOK_SECONDS,
) -> AsyncIterator[Step]:
    """Swap, expand or contract, until it is so."""
    for _ in range(AGAIN):
        async for step in settled(admin, stream, look=look):
            yield step
        await admin.change_ensemble(stream, kind, old=old, new=new)
        while True:
            found = _stream(await admin.status(), stream)
            if found.change is None and found.plan == "steady":
                break
            yield _step(found)
            await asyncio.sleep(look)
        if _is_so(found, kind, old, new):
            yield Step(stream, f"{kind} is done: nodes {_list(found.ensemble)}")
            return
    raise WrongState(
        f"{kind} of log stream {stream} was undone {AGAIN} times: look whether its nodes live"
    )


async def move_leader(
    admin: Changes, stream: int, *, target: int = 0, away: int = 0, look: float = LOOK_SECONDS
) -> AsyncIterator[Step]:
    """Elect until ``target`` leads, or, without one, anybody but ``away``."""
    found = _stream(await admin.status(), stream)
    away = away or (0 if target else found.leader)
    for attempt in range(TRIES):
        async for step in settled(admin, stream, look=look):
            yield step
        found = _stream(await admin.status(), stream)
        if found.leader and (found.leader == target if target else found.leader != away):
            yield Step(stream, f"node {found.leader} leads in term {found.term}")
            return
        yield Step(stream, f"election {attempt + 1}: node {found.leader} leads")
        try:
            await admin.move_leader(stream, target)
        except (Busy, ConnectionLost):
            pass  # Another election was faster, or this one had no answer: look how it ended.
        await asyncio.sleep(look)
    raise Busy(
        f"log stream {stream} is still led by node {found.leader} after {TRIES} elections: its "
        "log is always ahead of the others'; try again when less is appended"
    )


async def drain(
    admin: Changes, node: int, *, contract: bool = False, look: float = LOOK_SECONDS
) -> AsyncIterator[Step]:
    """Take all leaderships and replicas from a node, to others that hold the fewest.

    ``contract``: where no other node is left for a replica, do without it.
    """
    while True:
        status = await admin.status()
        hosted = [one for one in status.streams if node in _involved(one)]
        if not hosted:
            return
        first = min(hosted, key=lambda one: not one.has_quorum)  # Without one it may wait for ever.
        if first.plan != "steady":
            async for step in settled(admin, first.stream, look=look):
                yield step
            continue  # What was under way may have taken the replica already.
        async for step in _leave(admin, status, first, node, contract=contract, look=look):
            yield step


async def settled(
    admin: Changes, stream: int, *, look: float = LOOK_SECONDS
) -> AsyncIterator[Step]:
    """Wait until a log stream has a leader and nothing is under way (P1)."""
    while True:
        found = _stream(await admin.status(), stream)
        if found.plan == "steady":
            return
        yield _step(found)
        await asyncio.sleep(look)


# -- draining ------------------------------------------------------------------------------------


async def _leave(
    admin: Changes,
    status: ClusterStatus,
    stream: ClusterStream,
    node: int,
    *,
    contract: bool,
    look: float,
) -> AsyncIterator[Step]:
    """Take the replica of a steady stream from a node."""
    number = stream.stream
    new = spare_node(status, stream, node)
    alone = len(stream.replicas) == 1
    if new == 0 and (alone or not contract):
        raise WrongState(
            f"no other node can take the replica of log stream {number}: add a node"
            + ("" if alone else ", or contract")
        )
    if alone:
        async for step in change_ensemble(admin, number, "expand", new=new, look=look):
            yield step
    if _stream(await admin.status(), number).leader == node:  # P2
        async for step in move_leader(admin, number, away=node, look=look):
            yield step
    kind: Kind = "contract" if alone or new == 0 else "swap"
    joining = new if kind == "swap" else 0
    async for step in change_ensemble(admin, number, kind, old=node, new=joining, look=look):
        yield step


def spare_node(status: ClusterStatus, stream: ClusterStream, leaving: int) -> int:
    """The living storage node that may take a replica and holds the fewest; 0 if there is none."""
    able = [
        node
        for node in status.nodes
        if node.answers
        and "storage" in node.roles
        and node.clients
        and node.node != leaving
        and node.node not in _involved(stream)
    ]
    best = min(able, key=lambda node: (node.replicas, node.node), default=None)
    return 0 if best is None else best.node


def _involved(stream: ClusterStream) -> tuple[int, ...]:
    change = stream.change
    return stream.ensemble if change is None else (*stream.ensemble, change.new)


# -- looking -------------------------------------------------------------------------------------


def _stream(status: ClusterStatus, number: int) -> ClusterStream:
    found = status.stream(number)
    if found is None:
        raise UnknownStream(f"there is no log stream {number}")
    return found


def _is_so(stream: ClusterStream, kind: Kind, old: int, new: int) -> bool:
    joined = kind == "contract" or new in stream.ensemble
    left = kind == "expand" or old not in stream.ensemble
    return joined and left


def _step(stream: ClusterStream) -> Step:
    change = stream.change
    if change is None:
        return Step(stream.stream, f"{stream.plan} in term {stream.term}")
    text = f"{change.kind}: {change.phase}"
    return Step(stream.stream, text, change.copied if change.new else None, change.to_copy)


def _list(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))
