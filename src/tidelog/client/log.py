"""``tidelog.connect_async``: a served log for asyncio, with the names of an embedded one."""

from __future__ import annotations

from typing import Final, Self

import msgspec

from tidelog.client.admin import AsyncAdmin
from tidelog.client.channel import Channel
from tidelog.client.retries import Reconnect
from tidelog.client.session import Session
from tidelog.client.topic import AsyncRemoteTopic
from tidelog.client.topic_creation import create_topic
from tidelog.errors import BadOption, UnknownTopic
from tidelog.formats.messages import (
    AddStreams,
    Figures,
    ListTopics,
    LogFigures,
    TopicDescription,
    TopicNames,
)
from tidelog.interface.figures import LogStats
from tidelog.net.endpoint import LogUrl, parse_url
from tidelog.net.security import ClientSecurity

DEFAULT_TOPIC: Final = "default"
DEFAULT_TIMEOUT: Final = 60.0
CONNECT_SECONDS: Final = 10.0
"""A log that cannot be reached at all is told soon; one that was lost is worth more patience."""
CLIENT: Final = "tidelog-python"


class AsyncRemoteLog(AsyncRemoteTopic):
    """A connected log: a handle for its first topic, and the way to the others.

    Close it, or use it as a context manager.
    """

    def __init__(self, session: Session, described: TopicDescription) -> None:
        super().__init__(session, described)
        self.session: Final = session

    @property
    def log_id(self) -> bytes:
        """Which log this is; ``connect`` can insist on it."""
        return self.session.channel.log_id

    @property
    def admin(self) -> AsyncAdmin:
        """What people do to a cluster: nodes, log streams, metadata members, operators."""
        return AsyncAdmin(self.session)

    async def create_topic(
        self, name: str, *, streams: int = 1, versions: str = "log", replicas: int = 0
    ) -> AsyncRemoteTopic:
        """Create a topic.  ``versions="explicit"``: every keyed write brings its write version.

        ``replicas``: of each log stream, in a cluster; 0: as many as are usual there.
        """
        described = await create_topic(self.session, name, streams, versions, replicas)
        return AsyncRemoteTopic(self.session, described)

    async def add_streams(self, name: str, count: int) -> AsyncRemoteTopic:
        """Give a topic more log streams; they take entries without keys.

        Not repeated when the connection breaks, for nobody could tell once from twice.
        """
        if count < 1:
            raise BadOption(f"at least one log stream is added, not {count}")
        request = AddStreams(name, count)
        described = await self.session.ask(request, TopicDescription, repeat=False)
        return AsyncRemoteTopic(self.session, described)

    async def topic(self, name: str) -> AsyncRemoteTopic:
        """A handle for an existing topic."""
        return AsyncRemoteTopic(self.session, await self.session.describe(name))

    async def topics(self) -> list[str]:
        return sorted((await self.session.ask(ListTopics(), TopicNames)).names)

    async def log_stats(self) -> LogStats:
        """Figures of the whole log."""
        answer = await self.session.ask(LogFigures(), Figures)
        return msgspec.json.decode(answer.json, type=LogStats)

    async def close(self) -> None:
        """Let appends under way arrive, and hang up; closing twice is fine."""
        await self.session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def connect_async_log(
    url: str,
    *,
    topic: str | None = None,
    create: bool = False,
    streams: int = 1,
    versions: str = "log",
    replicas: int = 0,
    timeout: float = DEFAULT_TIMEOUT,
    log_id: bytes = b"",
    reconnect: Reconnect | None = None,
    security: ClientSecurity | None = None,
) -> AsyncRemoteLog:
    """Connect to a served log, for asyncio; the arguments are those of ``tidelog.connect``."""
    place = parse_url(url)
    name = topic_of(place, topic)
    if not timeout > 0:
        raise BadOption(f"timeout is {timeout}, but must be positive")
    channel = Channel(
        place.endpoints,
        client=CLIENT,
        log_id=log_id,
        reconnect=reconnect,
        security=ClientSecurity.from_environment() if security is None else security,
    )
    session = Session(channel, timeout=timeout)
    try:
        try:
            described = await session.describe(name, seconds=min(timeout, CONNECT_SECONDS))
        except UnknownTopic as error:
            if not create:
                raise UnknownTopic(f"{error}; create=True makes it") from None
            made = name or DEFAULT_TOPIC
            described = await create_topic(session, made, streams, versions, replicas)
        return AsyncRemoteLog(session, described)
    except BaseException:
        await session.close()
        raise


def topic_of(place: LogUrl, topic: str | None) -> str:
    """The topic that is meant: given by name or in the URL; empty stands for the log's first."""
    if topic is not None and place.topic and topic != place.topic:
        raise BadOption(f"the URL names topic {place.topic!r}, the argument {topic!r}: give one")
    return topic or place.topic
