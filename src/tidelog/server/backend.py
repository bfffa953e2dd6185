"""What stands behind the sessions of a node: the log of this process, or all of a cluster.

Sessions know frames, numbers and deadlines; a ``Backend`` knows the log.  An ``Entrance`` decides
who gets which backend, by what a client says in its hello.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from tidelog.errors import LogError
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.audit_messages import AuditRequest
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import (
    AddStreams,
    Answer,
    AppendBatches,
    Compact,
    CreateTopic,
    Describe,
    Discard,
    Explain,
    FindEnd,
    FindTime,
    Get,
    GetPosition,
    Hello,
    ListTopics,
    LogFigures,
    Publish,
    ReadPage,
    Rewrite,
    SetGcBoundary,
    SetPosition,
    StageBatches,
    TakeSnapshot,
    TopicFigures,
    Trim,
    encode_message,
)
from tidelog.formats.plan_messages import OfferPlan
from tidelog.interface.appends import Append
from tidelog.interface.records import Receipt
from tidelog.net.threads import WorkThreads
from tidelog.server.counters import Counters

TopicMessage: TypeAlias = (
    ListTopics
    | Describe
    | CreateTopic
    | AddStreams
    | Trim
    | SetGcBoundary
    | TakeSnapshot
    | Compact
    | Rewrite
    | Explain
    | TopicFigures
    | LogFigures
)
"""What changes topics, keeps them small, or tells about them."""
WorkMessage: TypeAlias = (
    ReadPage
    | Get
    | FindEnd
    | FindTime
    | StageBatches
    | OfferPlan
    | Publish
    | Discard
    | GetPosition
    | SetPosition
    | TopicMessage
    | AdminRequest
    | AuditRequest
)
"""Requests that take some time and do not have to keep their order, as appends do."""
PAGES_AT_ONCE: Final = 2
"""For the connection of a client."""
Outcome: TypeAlias = "asyncio.Future[tuple[Receipt, ...]]"


@dataclass(slots=True)
class Reply:
    """An answer on its way: the encoded message and what is attached to it."""

    message: bytes
    attachments: list[Buffer] = field(default_factory=list)

    @classmethod
    def of(cls, answer: Answer) -> Reply:
        return cls(encode_message(answer))


class Backend(Protocol):
    """All calls belong into the event loop, except where it says otherwise."""

    @property
    def counters(self) -> Counters: ...

    @property
    def readers(self) -> WorkThreads:
        """For what looks at entries."""
        ...

    @property
    def pages_at_once(self) -> int:
        """How many pages of one connection are read or wait to be sent."""
        ...

    def check_append(self, message: AppendBatches, attachment: memoryview) -> Append:
        """The append that is asked for; raises unless it may be appended.  For any thread."""
        ...

    def post_append(self, append: Append, seconds: float) -> Outcome:
        """Append behind all that were posted before; the client waits for ``seconds``.

        What it raises, and what the future is told, says what became of it.
        """
        ...

    def leader_hint(self, append: Append) -> str:
        """The address where such appends are better sent to; empty: here."""
        ...

    async def wait_for_entries(self, request: ReadPage | FindEnd, seconds: float) -> None:
        """Wait for something to read, as long as the request wants to and at most ``seconds``."""
        ...

    async def answer(self, request: WorkMessage, attachment: memoryview, seconds: float) -> Reply:
        """The answer to a request whose client waits for ``seconds``; LogError if it is refused."""
        ...


class Entrance(Protocol):
    """What all sessions of a node share."""

    @property
    def counters(self) -> Counters: ...

    @property
    def log_id(self) -> bytes:
        """The log that is served here."""
        ...

    def enter(self, hello: Hello) -> Backend:
        """What serves this client; raises if it may not come in."""
        ...

    def on_failure(self, error: LogError) -> None:
        """Told when the storage has failed, which ends the node."""
        ...
