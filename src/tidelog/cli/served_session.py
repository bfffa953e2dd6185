"""A served log for commands: unlike for ``tidelog.connect``, it need not have any topic yet."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import msgspec

from tidelog.cli.security_options import client_security
from tidelog.client.blocking import RemoteTopic
from tidelog.client.log import CLIENT, CONNECT_SECONDS, DEFAULT_TIMEOUT
from tidelog.client.own_session import OwnSession, open_session
from tidelog.client.topic import AsyncRemoteTopic
from tidelog.client.topic_creation import create_topic
from tidelog.formats.messages import (
    AddStreams,
    Done,
    Figures,
    ListTopics,
    LogFigures,
    Ping,
    TopicDescription,
    TopicNames,
)
from tidelog.interface.figures import LogStats
from tidelog.net.endpoint import parse_url


class ServedSession(OwnSession):
    """The log of a node, or of a cluster."""

    def topic(self, name: str) -> RemoteTopic:
        return self._handle(self._session.describe(name, seconds=CONNECT_SECONDS))

    def connect(self) -> None:
        """A log that cannot be reached at all is told soon; what a node answers may take longer."""
        self._thread.run(self._session.ask(Ping(), Done, seconds=CONNECT_SECONDS))

    def topics(self) -> list[str]:
        asked = self._session.ask(ListTopics(), TopicNames, seconds=CONNECT_SECONDS)
        return sorted(self._thread.run(asked).names)

    def create_topic(self, name: str, *, streams: int = 1, versions: str = "log") -> RemoteTopic:
        return self._handle(create_topic(self._session, name, streams, versions, replicas=0))

    def add_streams(self, name: str, count: int) -> RemoteTopic:
        request = AddStreams(name, count)  # Twice would be twice as many.
        return self._handle(self._session.ask(request, TopicDescription, repeat=False))

    def log_stats(self) -> LogStats:
        answer = self._thread.run(self._session.ask(LogFigures(), Figures))
        return msgspec.json.decode(answer.json, type=LogStats)

    def _handle(self, described: Coroutine[Any, Any, TopicDescription]) -> RemoteTopic:
        async def made() -> AsyncRemoteTopic:
            return AsyncRemoteTopic(self._session, await described)

        return RemoteTopic(self._thread.run(made()), self._session, self._thread)


def connect_session(url: str) -> ServedSession:
    """Connect to one of the nodes of a URL."""
    endpoints = parse_url(url).endpoints
    opened = open_session(
        endpoints, client=CLIENT, timeout=DEFAULT_TIMEOUT, security=client_security()
    )
    session = ServedSession(*opened)
    try:
        session.connect()
    except BaseException:
        session.close()
        raise
    return session
