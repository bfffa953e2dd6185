"""Group commit: whoever comes while a commit runs is part of the next one.

There is no timer and no thread of its own.  The first caller that finds nobody committing takes
all that is queued, commits it, hands the lead to the first caller that queued up meanwhile, and
returns.  A lone append so costs one write and one sync, without a change of threads; many appends
share one.

Invariants:
  Q1  At most one thread leads; the lead is handed over under the lock, so it is never lost.
  Q2  Every request is finished exactly once, also when a commit fails.
  Q3  The queue is bounded in bytes; who comes on top waits, up to the deadline.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, TypeVar

from tidelog.errors import BadOption, Busy, DeadlineExceeded, LogClosed, StorageFailed
from tidelog.invariants import check
from tidelog.limits import APPEND_QUEUE_BYTES_MAX, GROUP_BYTES_MAX, GROUP_RECORDS_MAX


class Request:
    """Something to commit; subclasses say what it is and hold the outcome."""

    __slots__ = ("_wake", "done", "error", "leads", "size")

    def __init__(self, size: int) -> None:
        self.size: Final = size
        self.error: BaseException | None = None
        self.done = False
        self.leads = False
        """The lead was handed to whoever waits for this request."""
        self._wake = threading.Lock()
        self._wake.acquire()

    def finish(self, error: BaseException | None = None) -> None:
        check(not self.done, "Q2: a request was finished twice")
        self.error, self.done = error, True
        self.wake()

    def wake(self) -> None:
        """Tell whoever waits that the request is done or leads; called once for each."""
        try:
            self._wake.release()
        except RuntimeError:
            # Who waited had given up and then seen under the lock that it leads: the word that
            # it does is still there, and nobody will wait for the next one.
            pass

    def wait(self, seconds: float) -> bool:
        return self._wake.acquire(timeout=max(seconds, 0))


R = TypeVar("R", bound=Request)


class CommitQueue(Generic[R]):
    """``commit`` gets a group of requests and finishes each of them."""

    def __init__(self, commit: Callable[[list[R]], None]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._queue: deque[R] = deque()
        self._queued_bytes = 0
        self._held_back = 0
        """Threads that wait for room, or for the queue to run dry."""
        self._leading = False
        self._leader = 0
        """The thread that commits right now; 0 if none does."""
        self._closed = False

    def submit(self, request: R, timeout: float) -> None:
        """Commit ``request`` with whatever else is queued; returns when it is finished."""
        self.check_caller()
        deadline = monotonic() + timeout
        if not self._enqueue(request, deadline):
            self._wait(request, deadline)
        if not request.done:
            self.lead()

    def check_caller(self) -> None:
        """Raise unless the caller may wait for a commit: one that is told of it is inside it."""
        if self._leader == threading.get_ident():
            raise BadOption(
                "an append in a callback of another one would wait for itself: make it in a thread "
                "of your own"
            )

    def post(self, request: R) -> bool:
        """Queue ``request`` without waiting; True when somebody must call ``lead`` now."""
        with self._lock:
            self._check_open()
            if self._queue and self._queued_bytes + request.size > APPEND_QUEUE_BYTES_MAX:
                raise Busy(f"{self._queued_bytes} bytes wait: await earlier appends first")
            return self._push(request)

    def lead(self) -> None:
        """Commit what is queued, then hand the lead to the first of those who came meanwhile."""
        group: list[R] = []
        try:
            with self._lock:
                group = self._take_group()
            self._leader = threading.get_ident()
            self._commit(group)
        except Exception as error:
            _fail(group, error)
        except BaseException as error:
            # Others wait for this thread: they must not wait in vain when it is torn away (Q2).
            _fail(group, StorageFailed(f"the commit was torn away ({error!r}); it may take effect"))
            raise
        finally:
            self._leader = 0
            with self._lock:
                follower = self._hand_over()
                if self._held_back:
                    self._room.notify_all()
            if follower is not None:
                follower.wake()

    def close(self) -> None:
        """Refuse what comes from now on, and wait until all that is queued is committed."""
        self.check_caller()
        with self._lock:
            self._closed = True
            self._room.notify_all()
            self._held_back += 1
            self._room.wait_for(lambda: not self._leading)
            self._held_back -= 1

    # -- inside --------------------------------------------------------------------------

    def _enqueue(self, request: R, deadline: float) -> bool:
        """Queue a request; True when the caller leads."""
        with self._lock:
            self._check_open()
            while self._queue and self._queued_bytes + request.size > APPEND_QUEUE_BYTES_MAX:
                self._wait_for_room(deadline)
                self._check_open()
            return self._push(request)

    def _wait_for_room(self, deadline: float) -> None:
        self._held_back += 1
        try:
            if not self._room.wait(max(deadline - monotonic(), 0)):
                raise Busy(f"{self._queued_bytes} bytes wait to be committed: try again later")
        finally:
            self._held_back -= 1

    def _push(self, request: R) -> bool:
        self._queue.append(request)
        self._queued_bytes += request.size
        if self._leading:
            return False
        self._leading = True
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosed("the log is closed")

    def _wait(self, request: R, deadline: float) -> None:
        """Wait until the request is finished or this thread was given the lead."""
        try:
            if request.wait(deadline - monotonic()):
                return
        except BaseException:
            self._abandon(request)
            raise
        with self._lock:
            if request.done or request.leads:
                return
            if request in self._queue:
                self._remove(request)
                raise Busy("the append was not started before its deadline; nothing was written")
        raise DeadlineExceeded("the append was being written at its deadline; it may take effect")

    def _abandon(self, request: R) -> None:
        """The waiting thread is torn away: take its request back and pass its lead on (Q1)."""
        with self._lock:
            if request in self._queue:
                self._remove(request)
            follower = self._hand_over() if request.leads and not request.done else None
            self._room.notify_all()
        if follower is not None:
            follower.wake()

    def _remove(self, request: R) -> None:
        self._queue.remove(request)
        self._queued_bytes -= request.size

    def _hand_over(self) -> R | None:
        if not self._queue:
            self._leading = False
            return None
        follower = self._queue[0]
        follower.leads = True
        return follower

    def _take_group(self) -> list[R]:
        if len(self._queue) == 1:
            self._queued_bytes = 0
            return [self._queue.popleft()]
        group: list[R] = []
        size = 0
        while self._queue and len(group) < GROUP_RECORDS_MAX:
            if group and size + self._queue[0].size > GROUP_BYTES_MAX:
                break
            request = self._queue.popleft()
            size += request.size
            group.append(request)
        self._queued_bytes -= size
        return group


def _fail(group: list[R], error: BaseException) -> None:
    for request in group:
        if not request.done:
            request.finish(error)
