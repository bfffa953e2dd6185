"""A session with an event loop of its own, for callers that block and want no topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from tidelog.client.channel import Channel
from tidelog.client.loop_thread import LoopThread
from tidelog.client.session import Session
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity


class OwnSession:
    """Close it, or use it as a context manager."""

    def __init__(self, session: Session, thread: LoopThread) -> None:
        self._session = session
        self._thread = thread

    def close(self) -> None:
        """Hang up; twice is fine."""
        self._thread.close(self._session.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    endpoints: Sequence[Endpoint],
    *,
    client: str,
    timeout: float,
    log_id: bytes = b"",
    security: ClientSecurity | None = None,
) -> tuple[Session, LoopThread]:
    """A session with whichever of these nodes answers; ``log_id``: if it is of this log."""

    async def made() -> Session:
        channel = Channel(
            endpoints,
            client=client,
            log_id=log_id,
            security=ClientSecurity.from_environment() if security is None else security,
        )
        return Session(channel, timeout=timeout)

    thread = LoopThread()
    try:
        return thread.run(made()), thread
    except BaseException:
        thread.stop()
        raise
