"""The bytes of one file of a simulated disk: what is durable, and what is not yet.

Invariants:
  D1  readers see every write at once: the volatile bytes.
  D2  durable bytes = base + synced writes; a pending write is in neither.
  D3  base bytes are immutable and shared by all copies of a disk.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.testing.disk_effects import Choice, torn_length

SYNCED_WRITES_MAX: Final = 1024
SYNCED_BYTES_MIN: Final = 1 << 20
"""Synced writes are folded into the base when they outgrow it by this much: amortised O(1)."""


class PendingWrite(NamedTuple):
    sequence: int
    path: str
    offset: int
    data: bytes


def put(buffer: bytearray, offset: int, data: bytes) -> None:
    """Write as a file does: a gap before ``offset`` reads as zeros."""
    if offset > len(buffer):
        buffer.extend(bytes(offset - len(buffer)))
    buffer[offset : offset + len(data)] = data


def put_chosen(buffer: bytearray, write: PendingWrite, choice: Choice) -> None:
    """Put as much of a write as survived the crash."""
    cut = torn_length(write.offset, len(write.data))
    if choice is Choice.KEPT:
        put(buffer, write.offset, write.data)
    elif choice is Choice.TORN:
        put(buffer, write.offset, write.data[:cut])
    elif choice is Choice.TORN_TAIL:
        put(buffer, write.offset + cut, write.data[cut:])


class FileNode:
    """One inode with bytes; names are not its business."""

    __slots__ = (
        "_base",
        "_cache",
        "_cache_only",
        "_synced",
        "_synced_bytes",
        "links",
        "number",
        "pending",
    )

    def __init__(self, number: int, base: bytes = b"") -> None:
        self.number = number
        self.links = 0
        self.pending: list[PendingWrite] = []
        self._base = base
        self._synced: list[PendingWrite] = []
        self._synced_bytes = 0
        # The volatile bytes, built when first needed; None means base + synced + pending.
        self._cache: bytearray | None = None
        # Set when the cache holds bytes that a failed sync dropped: it cannot be rebuilt then.
        self._cache_only = False

    def durable(self) -> bytes:
        """What a crash cannot take."""
        if self._synced:
            if self._cache is not None and not self.pending and not self._cache_only:
                self._base = bytes(self._cache)
            else:
                buffer = bytearray(self._base)
                for write in self._synced:
                    put(buffer, write.offset, write.data)
                self._base = bytes(buffer)
            self._synced.clear()
            self._synced_bytes = 0
        return self._base

    def size(self) -> int:
        if self._cache is None and not self.pending:
            return len(self.durable())
        return len(self._volatile())

    def read(self, offset: int, length: int) -> bytes:
        if self._cache is None and not self.pending:
            return self.durable()[offset : offset + length]
        return bytes(memoryview(self._volatile())[offset : offset + length])

    def write(self, write: PendingWrite) -> None:
        put(self._volatile(), write.offset, write.data)
        self.pending.append(write)

    def sync(self) -> None:
        self._synced += self.pending
        self._synced_bytes += sum(len(write.data) for write in self.pending)
        self.pending.clear()
        if (
            len(self._synced) > SYNCED_WRITES_MAX
            or self._synced_bytes > len(self._base) + SYNCED_BYTES_MIN
        ):
            self.durable()

    def drop_pending(self) -> None:
        """A sync failed: the pages count as clean and readers see them, but they are gone."""
        if self.pending:
            self._volatile()
            self._cache_only = True
            self.pending.clear()

    def flip_bit(self, byte: int, bit: int) -> None:
        """Damage a byte wherever it is: on the disk, in flight and in the cache."""
        if not 0 <= byte < self.size():
            raise IndexError(f"byte {byte} is not in the file")
        mask = 1 << bit
        self._base = _flipped(self.durable(), byte, mask)
        self.pending = [
            write._replace(data=_flipped(write.data, byte - write.offset, mask))
            for write in self.pending
        ]
        if self._cache is not None:
            self._cache[byte] ^= mask

    def truncate(self, length: int) -> None:
        """Cut the file off, on the disk, in flight and in the cache."""
        self._base = self.durable()[:length]
        cut = (
            write._replace(data=write.data[: max(0, length - write.offset)])
            for write in self.pending
        )
        self.pending = [write for write in cut if write.data]
        if self._cache is not None:
            del self._cache[length:]

    def copy(self) -> FileNode:
        node = FileNode(self.number, self.durable())
        node.links = self.links
        node.pending = list(self.pending)
        if self._cache_only and self._cache is not None:
            node._cache = bytearray(self._cache)
            node._cache_only = True
        return node

    def _volatile(self) -> bytearray:
        if self._cache is None:
            cache = bytearray(self.durable())
            for write in self.pending:
                put(cache, write.offset, write.data)
            self._cache = cache
        return self._cache


def _flipped(data: bytes, index: int, mask: int) -> bytes:
    if not 0 <= index < len(data):
        return data
    return b"".join((data[:index], bytes((data[index] ^ mask,)), data[index + 1 :]))
