"""A replica that is asked directly, without a master."""

from __future__ import annotations

from tests.core.session.pair import Replica
from tests.core.session.stores import Store
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    Answer,
    Error,
    ErrorCode,
    LogChannelCreate,
    LogEntryWrite,
    SessionBegin,
    SessionBegun,
)

CONTROL_CONNECTION = 0
DONE = Ack(1, 2)
"""What the store's steps are answered with."""


def begin(*, epoch: int = 0, configuration_id: str = "c1", channels: int = 2) -> SessionBegin:
    return SessionBegin(SESSION_PROTOCOL, configuration_id, epoch, channels)


def begun(replica: Replica, connection: int = CONTROL_CONNECTION, *, epoch: int = 0) -> str:
    """Begin a session; returns its secret."""
    replica.connect(connection)
    answer = replica.ask(connection, begin(epoch=epoch))
    assert isinstance(answer, SessionBegun), answer
    return answer.secret


def with_channels(store: Store | None = None, *, channels: int = 2) -> tuple[Replica, str]:
    """A replica with a session; log channel n is connection n + 1."""
    replica = Replica(store)
    secret = begun(replica, epoch=replica.store.epoch)
    for channel in range(channels):
        replica.connect(channel + 1)
        assert replica.ask(channel + 1, LogChannelCreate(secret, channel)) == Ack()
    return replica, secret


def whole(epoch: int, *, flush: bool = True) -> LogEntryWrite:
    """A log session in one message."""
    return LogEntryWrite(epoch, session_begin=True, session_end=True, flush=flush)


def code(answer: Answer) -> ErrorCode:
    assert isinstance(answer, Error), answer
    assert answer.message
    return ErrorCode(answer.code)
