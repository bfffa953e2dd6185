"""Making topics and log streams: planned from the newest view, and again if others were faster.

No state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.core.metadata.placement import plan_streams, plan_topic
from tidelog.core.metadata.view import MetadataView
from tidelog.core.order.commands import AddStreams, CreateTopic, Quorum, TopicVersions
from tidelog.core.order.state import TopicOrder
from tidelog.errors import BadOption, Rejected, TopicExists, UnknownTopic
from tidelog.runtime.metadata_changes import Changing, left


async def create_topic(
    metadata: Changing,
    name: str,
    *,
    streams: int,
    replicas: int = 0,
    versions: TopicVersions = "log",
    quorum: Quorum = Quorum.MAJORITY,
    seconds: float,
) -> TopicOrder:
    """Make a topic; TopicExists if there is one of that name, DeadlineExceeded if unknown."""

    def plan(view: MetadataView) -> CreateTopic:
        return plan_topic(
            view,
            name,
            streams=streams,
            replicas=replicas,
            versions=versions,
            quorum=quorum,
        )

    return await _make(metadata, name, plan, seconds)


async def add_streams(metadata: Changing, name: str, *, streams: int, seconds: float) -> TopicOrder:
    """Give a topic more log streams; its GLSN sequence goes on."""

    def plan(view: MetadataView) -> AddStreams:
        return plan_streams(view, name, streams=streams)

    return await _make(metadata, name, plan, seconds)


async def _make(
    metadata: Changing,
    name: str,
    plan: Callable[[MetadataView], CreateTopic | AddStreams],
    seconds: float,
) -> TopicOrder:
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        view = await metadata.read(seconds=left(deadline))
        change = plan(view)
        try:
            await metadata.ask(change, seconds=left(deadline))
            break
        except (TopicExists, BadOption) as error:
            await _check_overtaken(metadata, view, error, deadline)
    made = (await metadata.read(seconds=left(deadline))).topics_by_name().get(name)
    if made is None:
        raise UnknownTopic(f"the topic {name!r} was removed again at once")
    return made


async def _check_overtaken(
    metadata: Changing, view: MetadataView, error: Rejected, deadline: float
) -> None:
    """Raise the refusal unless another one took the numbers that were planned with."""
    newest = await metadata.read(seconds=left(deadline))
    if (newest.next_topic, newest.next_stream) == (view.next_topic, view.next_stream):
        raise error
