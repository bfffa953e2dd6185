"""Compares the replicas of a running cluster with one another.  No state.

For every log stream all replicas are asked for digests over what none of them has compacted and all
of them know to be ordered.  For every topic the GLSNs of its streams together must leave no gap and
be given once.  Nothing is changed, and appends go on meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, Protocol

import msgspec

from tidelog.errors import CorruptData, OutOfRange
from tidelog.interface.cluster_figures import (
    ClusterReplica,
    ClusterStatus,
    ClusterStream,
    ClusterTopic,
    DigestFacts,
    GlsnFacts,
)
from tidelog.limits import ADMIN_RANGE_ENTRIES_MAX

RANGE_ENTRIES: Final = 1 << 17
"""What one question is about; a node reads all of it."""
TRIES: Final = 5


class Checked(msgspec.Struct, frozen=True):
    """Something that was compared; ``problem`` is empty if it was sound."""

    kind: str
    """``replicas``, ``glsns`` or ``left out``."""
    topic: str
    stream: int
    """0: all of the topic."""
    begin: int
    end: int
    nodes: tuple[int, ...]
    problem: str = ""


class Looks(Protocol):
    """What verification needs: ``AsyncAdmin`` is one."""

    async def status(self) -> ClusterStatus: ...

    async def digest(
        self, node: int, stream: int, llsn_begin: int, llsn_end: int
    ) -> DigestFacts: ...

    async def glsns(self, node: int, stream: int, glsn_begin: int, glsn_end: int) -> GlsnFacts: ...


async def verify(admin: Looks, *, range_entries: int = RANGE_ENTRIES) -> AsyncIterator[Checked]:
    """Compare all replicas of all streams, then the GLSNs of all topics."""
    status = await admin.status()
    for stream in status.streams:
        async for checked in _verify_stream(admin, stream.stream, range_entries):
            yield checked
    for topic in status.topics:
        async for checked in _verify_topic(admin, topic.name):
            yield checked


# -- streams -------------------------------------------------------------------------------------


async def _verify_stream(admin: Looks, number: int, range_entries: int) -> AsyncIterator[Checked]:
    done, topic = 0, ""
    for attempt in range(TRIES):
        stream = (await admin.status()).stream(number)
        if stream is None:
            return
        topic = stream.topic
        able = [replica for replica in stream.replicas if is_comparable(replica)]
        if attempt == 0:
            for checked in _left_out(stream, able):
                yield checked
        begin, end = common_range(able)
        begin = max(begin, done)
        try:
            while begin < end:
                until = min(begin + range_entries, end)
                yield await _compare(admin, stream, able, begin, until)
                begin = done = until
        except OutOfRange:
            continue  # A compaction was faster: what it left is above a higher index.
        return
    yield Checked("left out", topic, number, done, 0, (), "compaction was always faster")


def is_comparable(replica: ClusterReplica) -> bool:
    """Whether a replica can be held against others: what is ordered never changes again."""
    facts = replica.facts
    return facts is not None and facts.is_complete and facts.role != "not member"


def common_range(replicas: Sequence[ClusterReplica]) -> tuple[int, int]:
    """The LLSNs that all have: above all compactions, and ordered everywhere."""
    facts = [replica.facts for replica in replicas if replica.facts is not None]
    begin = max((one.snapshot_index + 1 for one in facts), default=1)
    end = min((one.ordered_end_llsn for one in facts), default=1)
    return begin, max(begin, end)


def _left_out(stream: ClusterStream, able: Sequence[ClusterReplica]) -> list[Checked]:
    compared = [replica.node for replica in able]
    return [
        Checked("left out", stream.topic, stream.stream, 0, 0, (replica.node,), _why(replica))
        for replica in stream.replicas
        if replica.node not in compared
    ]


def _why(replica: ClusterReplica) -> str:
    if replica.facts is None:
        return "its node does not answer"
    return "it is being filled up" if not replica.facts.is_complete else "it takes no part yet"


async def _compare(
    admin: Looks, stream: ClusterStream, able: Sequence[ClusterReplica], begin: int, end: int
) -> Checked:
    asked = (admin.digest(replica.node, stream.stream, begin, end) for replica in able)
    try:
        flaw = flaw_in_digests(await asyncio.gather(*asked))
    except CorruptData as error:
        flaw = str(error)
    nodes = tuple([replica.node for replica in able])
    return Checked("replicas", stream.topic, stream.stream, begin, end, nodes, flaw)


def flaw_in_digests(told: Sequence[DigestFacts]) -> str:
    """What replicas of one stream do not agree in; empty if they do."""
    for one in told:
        if one.context_flaw:
            return f"node {one.node}: {one.context_flaw}"
    if len({one.digest for one in told}) > 1:
        groups = [f"node {one.node}: {one.digest[:12]}" for one in told]
        return f"entries differ ({', '.join(groups)})"
    if len({one.glsn_first for one in told}) > 1:
        return "GLSNs of the first entry differ"
    contexts = {one.context[0]: one for one in told}
    for one in told:
        if contexts[one.context[0]].context != one.context:
            other = contexts[one.context[0]].node
            return f"nodes {one.node} and {other} have other commit contexts of one version"
    return ""


# -- topics --------------------------------------------------------------------------------------


async def _verify_topic(admin: Looks, name: str) -> AsyncIterator[Checked]:
    status = await admin.status()
    topic = next((one for one in status.topics if one.name == name), None)
    if topic is None:
        return
    streams = [one for one in status.streams if one.stream in topic.streams]
    if topic.has_removed_streams:
        yield Checked("left out", name, 0, 0, 0, (), "log streams were removed: GLSNs have gaps")
        return
    chosen = [(stream, _informed(stream)) for stream in streams]
    silent = [stream.stream for stream, node in chosen if node == 0]
    if silent:
        yield Checked("left out", name, silent[0], 0, 0, (), "no replica knows all that is ordered")
        return
    begin = await _first_glsn(admin, topic, chosen)
    while begin <= topic.high_watermark:
        end = min(begin + ADMIN_RANGE_ENTRIES_MAX, topic.high_watermark + 1)
        told = await asyncio.gather(
            *(admin.glsns(node, stream.stream, begin, end) for stream, node in chosen)
        )
        nodes = tuple(sorted({node for _, node in chosen}))
        yield Checked("glsns", name, 0, begin, end, nodes, flaw_in_glsns(told, begin, end))
        begin = end


def _informed(stream: ClusterStream) -> int:
    """A node that knows all that was ordered when the status was taken; 0 if there is none."""
    for replica in stream.replicas:
        facts = replica.facts
        knows = facts is not None and facts.ordered_end_llsn >= stream.ordered_end_llsn
        if knows and is_comparable(replica):
            return replica.node
    return 0


async def _first_glsn(
    admin: Looks, topic: ClusterTopic, chosen: Sequence[tuple[ClusterStream, int]]
) -> int:
    """The first GLSN that no compaction may have taken from any stream."""
    first = topic.first_available
    for stream, node in chosen:
        facts = next(one.facts for one in stream.replicas if one.node == node)
        if facts is None or facts.snapshot_index == 0:
            continue
        begin = facts.snapshot_index + 1
        if begin >= stream.ordered_end_llsn:
            first = max(first, stream.glsn_end)
            continue
        told = await admin.digest(node, stream.stream, begin, begin + 1)
        first = max(first, told.glsn_first)
    return first


def flaw_in_glsns(told: Sequence[GlsnFacts], begin: int, end: int) -> str:
    """Whether every GLSN of the range was given once; empty if so."""
    count = sum(one.count for one in told)
    if count != end - begin:
        return f"{count:,} entries have GLSNs in [{begin}, {end}), not {end - begin:,}"
    total, squares = sum(int(one.sum) for one in told), sum(int(one.squares) for one in told)
    if total != _sum(end) - _sum(begin) or squares != _squares(end) - _squares(begin):
        return f"GLSNs in [{begin}, {end}) were given twice, and others not at all"
    return ""


def _sum(end: int) -> int:
    """Of all numbers below ``end``."""
    return end * (end - 1) // 2


def _squares(end: int) -> int:
    return end * (end - 1) * (2 * end - 1) // 6
