"""Connections that the tasks of one Python process share.

Spark keeps its Python workers and gives them one task after the other; a connection for each task
would cost more than many a task.  One that was not used for a while is closed, so that idle
workers hold nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Final

import tidelog
from tidelog.errors import (
    BadAddress,
    BadFrame,
    LogClosed,
    Unauthorized,
    UnsupportedVersion,
    WrongLog,
)
from tidelog.spark.options import Connection

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog

IDLE_SECONDS: Final = 60.0
_HOPELESS: Final = (
    *(WrongLog, UnsupportedVersion, BadFrame, LogClosed),
    *(Unauthorized, BadAddress),
)
"""After one of these only a new connection may do better, with certificates and token read anew."""


@dataclass(slots=True)
class _Kept:
    """A connection and who uses it."""

    topic: RemoteLog
    watch: threading.Timer
    """Looks whether it is idle; lives exactly as long, but not in a forked process."""
    users: int = 0
    last_use: float = 0.0
    is_good: bool = True


class Connections:
    """One connection for each topic and its timeouts, kept between uses."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._kept: dict[Connection, _Kept] = {}

    @contextmanager
    def topic(self, connection: Connection, *, soon: bool) -> Iterator[RemoteLog]:
        """The topic, over the connection that there is, or over a new one."""
        kept = self._take(connection, soon)
        try:
            yield kept.topic
        except _HOPELESS:
            kept.is_good = False
            raise
        finally:
            with self._lock:
                kept.users -= 1
                kept.last_use = monotonic()

    def _take(self, connection: Connection, soon: bool) -> _Kept:
        with self._lock:
            kept = self._kept.get(connection)
            if kept is None or not (kept.is_good and kept.watch.is_alive()):
                if kept is not None:
                    kept.watch.cancel()
                    kept.topic.close()
                topic = _connect(connection, soon)
                kept = _Kept(topic, self._look_later(connection, self._idle_seconds))
                self._kept[connection] = kept
            kept.users += 1
        return kept

    def _look_later(self, connection: Connection, seconds: float) -> threading.Timer:
        timer = threading.Timer(seconds, self._look, (connection,))
        timer.name = "tidelog-idle"
        timer.daemon = True  # Nobody waits for it when a worker ends.
        timer.start()
        return timer

    def _look(self, connection: Connection) -> None:
        """Close a connection that is idle; look again when another one may be."""
        with self._lock:
            kept = self._kept.get(connection)
            if kept is None:
                return
            idle = monotonic() - kept.last_use if not kept.users else 0.0
            if idle < self._idle_seconds:
                kept.watch = self._look_later(connection, self._idle_seconds - idle)
                return
            del self._kept[connection]
            kept.topic.close()

    def close(self) -> None:
        """Close all connections, used or not."""
        with self._lock:
            for kept in self._kept.values():
                kept.watch.cancel()
                kept.topic.close()
            self._kept.clear()


def _connect(connection: Connection, soon: bool) -> RemoteLog:
    def connect(timeout: float) -> RemoteLog:
        return tidelog.connect(
            str(connection.url), topic=connection.topic, timeout=timeout, security=security
        )

    security = connection.files.read()
    if soon:
        # All later calls have the longer time, so this one is made only to see that it can be.
        connect(connection.connect_timeout).close()
    return connect(connection.timeout)


CONNECTIONS: Final = Connections()


def connected(connection: Connection, *, soon: bool = False) -> AbstractContextManager[RemoteLog]:
    """The topic, over the connection that this process has.

    ``soon``: if none can be made within the time to connect, give up; else go on until the
    deadline of all calls, as a worker should that meets a node which restarts.
    """
    return CONNECTIONS.topic(connection, soon=soon)


@cache
def settle_worker() -> None:
    """Once for each process: keep what was imported out of the garbage collector's sight.

    Spark collects garbage after every task, which takes longer than a small task does.
    """
    gc.collect()
    gc.freeze()
