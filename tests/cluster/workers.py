"""Threads that use a cluster, each with a client of its own, until they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import tidelog
from tests.cluster.arena import FAULT_SECONDS
from tests.cluster.load import RECONNECT

Work: TypeAlias = Callable[[tidelog.RemoteTopic], None]
"""Is called once, and returns soon after ``stopping`` is set."""


class Workers:
    """What a thread raises is raised when they have stopped."""

    def __init__(self, url: str, topic: str) -> None:
        self.stopping = threading.Event()
        self.failures: list[BaseException] = []
        self._url = url
        self._topic = topic

    @contextmanager
    def running(self, works: Sequence[Work]) -> Iterator[None]:
        threads = [threading.Thread(target=self._run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(2 * FAULT_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a worker does not end"
        for failure in self.failures:
            raise AssertionError(f"a worker failed: {failure!r}") from failure

    def _run(self, work: Work) -> None:
        try:
            with tidelog.connect(self._url, timeout=FAULT_SECONDS, reconnect=RECONNECT) as log:
                work(log.topic(self._topic))
        except BaseException as error:
            self.failures.append(error)
