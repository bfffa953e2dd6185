"""An embedded engine behind sessions.  No state of its own."""

from __future__ import annotations

from tidelog.errors import LogError
from tidelog.formats.messages import AppendBatches, FindEnd, Hello, ReadPage
from tidelog.interface.appends import Append
from tidelog.net.threads import WorkThreads
from tidelog.server.answers import answer
from tidelog.server.appends import decode_append
from tidelog.server.backend import PAGES_AT_ONCE, Outcome, Reply, WorkMessage
from tidelog.server.counters import Counters
from tidelog.server.parts import NodeParts
from tidelog.server.reads import wait_for_entries
from tidelog.server.refusals import check_log


class EngineBackend:
    """A ``Backend`` for everybody, and the ``Entrance`` to it."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    @property
    def counters(self) -> Counters:
        return self._parts.counters

    @property
    def readers(self) -> WorkThreads:
        return self._parts.readers

    @property
    def pages_at_once(self) -> int:
        return PAGES_AT_ONCE

    @property
    def log_id(self) -> bytes:
        return self._parts.engine.node.manifest.log_id

    def enter(self, hello: Hello) -> EngineBackend:
        self._parts.security.check_token(hello.token)
        check_log(hello, self.log_id)
        return self

    def on_failure(self, error: LogError) -> None:
        self._parts.on_failure(error)

    def check_append(self, message: AppendBatches, attachment: memoryview) -> Append:
        return decode_append(self._parts.topic(message.topic), message, attachment)

    def post_append(self, append: Append, seconds: float) -> Outcome:
        """``seconds`` mean nothing: the session answers when they have passed."""
        return self._parts.commits.post(append)

    def leader_hint(self, append: Append) -> str:
        return ""

    async def wait_for_entries(self, request: ReadPage | FindEnd, seconds: float) -> None:
        await wait_for_entries(self._parts, request, seconds)

    async def answer(self, request: WorkMessage, attachment: memoryview, seconds: float) -> Reply:
        return await answer(self._parts, request, attachment, seconds)
