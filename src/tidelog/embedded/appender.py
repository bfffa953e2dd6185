"""Appends many entries without waiting for each: what queues up meanwhile shares an fsync."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from tidelog.embedded.engine import Engine
from tidelog.embedded.requests import AppendRequest
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.appends import Append, Appends
from tidelog.interface.flow import Flow
from tidelog.interface.records import Receipt, Receipts, all_receipts, only_receipt

T = TypeVar("T")
_OVERHEAD: Final = 64
"""What an append weighs besides its bytes."""


class Appender:
    """Each call returns a future for the receipt, and blocks only while too much is under way.

    Use it as a context manager: a thread commits for it until then.
    """

    def __init__(self, engine: Engine, appends: Appends, bytes_max: int) -> None:
        self._engine = engine
        self._appends = appends
        self._flow = Flow(bytes_max)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-append")

    def append(
        self,
        value: bytes,
        *,
        key: bytes = b"",
        stream: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]:
        return self._submit(self._appends.append(value, key, stream, {}, blobs), only_receipt)

    def append_batch(
        self, values: Sequence[bytes], *, stream: int | None = None
    ) -> Future[Receipt]:
        """Append entries without keys, all or none; one receipt for all of them."""
        return self._submit(self._appends.append_batch(values, stream, {}), only_receipt)

    def put(
        self,
        key: bytes,
        value: bytes,
        *,
        storage_id: int = 0,
        write_version: int | None = None,
        blobs: tuple[int, ...] = (),
    ) -> Future[Receipt]:
        entry = Entry(Kind.PUT, value, key, storage_id, write_version, 0, blobs)
        return self._submit(self._appends.write([entry], {}), only_receipt)

    def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], *, storage_id: int = 0
    ) -> Future[Receipts]:
        """Set many keys at once; in each log stream that they go to, all or none."""
        return self._submit(self._appends.put_batch(items, storage_id, {}), all_receipts)

    def delete(
        self, key: bytes, *, storage_id: int = 0, write_version: int | None = None
    ) -> Future[Receipt]:
        entry = Entry(Kind.DELETE, b"", key, storage_id, write_version)
        return self._submit(self._appends.write([entry], {}), only_receipt)

    def flush(self) -> None:
        """Wait for all that was appended; raises the first failure since the last flush."""
        self._engine.check_caller()
        self._flow.flush()

    def _submit(self, append: Append, outcome: Callable[[Receipts], T]) -> Future[T]:
        self._engine.check_caller()
        request, future, size = AppendRequest(append), Future[T](), size_of(append)
        request.listener = partial(self._on_wake, request, future, size, outcome)
        self._flow.enter(size)
        try:
            leads = self._engine.post(request)
        except BaseException:
            self._flow.leave(size, None)
            raise
        if leads:
            self._lead()
        return future

    def _lead(self) -> None:
        """See to it that the lead, which was handed to us, is taken: the whole log waits for it."""
        try:
            self._thread.submit(self._engine.lead)
        except RuntimeError:  # The thread was told to end before all was through.
            self._engine.lead()

    def _on_wake(
        self,
        request: AppendRequest,
        future: Future[T],
        size: int,
        outcome: Callable[[Receipts], T],
    ) -> None:
        if not request.done:
            self._lead()
            return
        if future.set_running_or_notify_cancel():
            if request.error is not None:
                future.set_exception(request.error)
            else:
                future.set_result(outcome(request.receipts))
        self._flow.leave(size, request.error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._flow.close()
            if error is None:
                self._flow.flush()
        finally:
            self._thread.shutdown(wait=True)


def size_of(append: Append) -> int:
    """What an append weighs."""
    return sum([_OVERHEAD + len(part.body.data) for part in append.parts])
