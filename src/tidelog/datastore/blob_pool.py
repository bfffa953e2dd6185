"""BLOBs on their way into a datastore: they are registered first, and entries refer to them then.

G1  what a pool registered is durable before its number is known
G2  a BLOB that no entry took when its pool is released is deleted, and none that one took
G3  until its pool is released, compaction leaves a BLOB alone whatever entries say
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidelog.errors import BadEntry, BadOption, LogClosed, WrongState
from tidelog.storage.blob_store import BlobStore


class BlobPool:
    """Made by ``Datastore.blob_pool``, about once for each transaction.  Thread-safe."""

    def __init__(self, blobs: Callable[[], BlobStore], users: BlobUsers) -> None:
        """``blobs`` raises LogClosed when the datastore is closed."""
        self._blobs = blobs
        self._users = users
        self._lock = threading.Lock()
        self._mine: list[int] = []
        self._is_released = False

    def register_file(self, path: str | Path, *, temporary: bool = False) -> int:
        """The number of a new BLOB with the bytes of a file; a temporary file is moved away."""
        where = str(Path(path).absolute())
        with self._lock:
            blobs = self._open()
            self._check_file(where)
            blob = blobs.next_id()
            if temporary:
                blobs.adopt(blob, where)
            else:
                blobs.copy(blob, where)
            return self._keep(blobs, blob)

    def register_data(self, data: bytes | bytearray | memoryview) -> int:
        """The number of a new BLOB with these bytes."""
        view = memoryview(data).cast("B")
        with self._lock:
            blobs = self._open()
            blob = blobs.next_id()
            with blobs.begin(blob, len(view)) as writer:
                writer.write(0, view)
                writer.finish()
            return self._keep(blobs, blob)

    def duplicate(self, blob: int) -> int:
        """The number of a new BLOB with the bytes of another one."""
        with self._lock:
            blobs = self._open()
            if blobs.size(blob) is None:
                raise BadEntry(f"BLOB {blob} does not exist: register it first")
            copy = blobs.next_id()
            blobs.link(copy, blob)
            return self._keep(blobs, copy)

    def release(self) -> None:
        """Delete what no entry took; the pool takes nothing afterwards.  Harmless twice."""
        with self._lock:
            self._is_released = True
            mine, self._mine = self._mine, []
        # If it is closed the directory may be somebody else's; compaction finds what is left.
        with suppress(LogClosed):
            self._let_go(self._blobs(), mine)

    def _let_go(self, blobs: BlobStore, mine: Sequence[int]) -> None:
        # Entries say from now on which of them are needed, and log sessions that are open.
        blobs.referred(mine)
        blobs.unpin(mine)
        for blob in mine:
            if not self._users.forget(blob):
                blobs.delete_unheld(blob)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open(self) -> BlobStore:
        if self._is_released:
            raise WrongState("the pool was released: take a new one from Datastore.blob_pool()")
        return self._blobs()

    def _keep(self, blobs: BlobStore, blob: int) -> int:
        """G3."""
        blobs.pin((blob,))
        self._users.watch(blob)
        self._mine.append(blob)
        return blob

    def _check_file(self, path: str) -> None:
        """What the caller got wrong must not look like damage of the datastore."""
        if not Path(path).is_file():
            raise BadOption(f"{path} is no file that could become a BLOB")


class BlobUsers:
    """Which BLOBs of open pools entries took; those of an aborted log session are free again.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[int, int] = {}

    def watch(self, blob: int) -> None:
        """A pool has it now."""
        with self._lock:
            self._counts[blob] = 0

    def forget(self, blob: int) -> bool:
        """Its pool is released; whether an entry took it."""
        with self._lock:
            return self._counts.pop(blob, 0) > 0

    def take(self, blobs: Sequence[int]) -> None:
        """Entries refer to these."""
        self._add(blobs, 1)

    def give_back(self, blobs: Sequence[int]) -> None:
        """These entries are gone."""
        self._add(blobs, -1)

    def _add(self, blobs: Sequence[int], count: int) -> None:
        with self._lock:
            for blob in blobs:
                if blob in self._counts:
                    self._counts[blob] += count
