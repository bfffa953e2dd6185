"""Files of large stages: batches one behind the other, written once.

What is published of such a file is not written again: a record of the WAL gives each batch its
place and says where its body lies.  The segments then get the bytes as they get all others.

Invariants:
  Y1  A file and its name are durable before a frame of the WAL names it.
  Y2  A file goes only when no stage needs it, and no WAL file that the manifest needs refers to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import CorruptData, LogError
from tidelog.storage.vfs import Vfs

STAGES_DIRECTORY: Final = "stages"
STAGE_SUFFIX: Final = ".stage"


@dataclass(slots=True)
class StageFiles:
    """The stage files of one log; thread-safe."""

    vfs: Vfs
    root: str
    _next: int = 0
    """The number of the next file; 0 until the directory was looked at."""
    _references: dict[int, int] = field(default_factory=dict)
    """File → the last WAL file that refers to it."""
    _referred_bytes: dict[int, int] = field(default_factory=dict)
    """WAL file → what its records refer to."""
    _released: set[int] = field(default_factory=set)
    """Files that no stage needs, but the WAL does."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Keep the pieces in a new file; returns its number when it is durable (Y1)."""
        number = self._take_number()
        path = self._path(number)
        # Under its own name at once: to rename it would take the file system a second commit.
        file = self.vfs.create(path)
        try:
            file.write_at(0, pieces)
            file.sync()
        except LogError:
            file.close()
            with suppress(LogError):
                self.vfs.unlink(path)
            raise
        file.close()
        self.vfs.sync_dir(self._directory)
        return number

    def read(self, number: int, offset: int, length: int) -> bytes:
        path = self._path(number)
        file = self.vfs.open(path)
        try:
            data = file.read_at(offset, length)
        finally:
            file.close()
        if len(data) < length:
            raise CorruptData(f"{path} ends {length - len(data)} bytes too early")
        return data

    # -- how long a file is kept (Y2) ---------------------------------------------------------

    def refer(self, number: int, wal_file: int, size: int) -> None:
        """A record of a WAL file refers to so many bytes of a file."""
        with self._lock:
            self._references[number] = max(wal_file, self._references.get(number, 0))
            self._referred_bytes[wal_file] = self._referred_bytes.get(wal_file, 0) + size

    def referred_bytes(self, wal_file: int) -> int:
        """What a WAL file would have more if it held all that it refers to."""
        return self._referred_bytes.get(wal_file, 0)

    def release(self, numbers: Iterable[int]) -> None:
        """No stage needs these files any more, for good."""
        with self._lock:
            self._released.update(numbers)
        self._sweep()

    def retire_below(self, wal_file: int) -> None:
        """The manifest needs no WAL file below this one."""
        with self._lock:
            for number in [n for n, last in self._references.items() if last < wal_file]:
                del self._references[number]
            for number in [n for n in self._referred_bytes if n < wal_file]:
                del self._referred_bytes[number]
        self._sweep()

    def keep_only(self, needed: Iterable[int]) -> None:
        """At a start: these are all that stages need."""
        if self.vfs.stat(self._directory) is not None:
            self.release(set(self._numbers()).difference(needed))

    def _sweep(self) -> None:
        with self._lock:
            gone = self._released.difference(self._references)
            self._released -= gone
        for number in gone:
            self.vfs.unlink(self._path(number))

    def paths(self) -> list[str]:
        """The files that are there; after a start, those that something needs."""
        if self.vfs.stat(self._directory) is None:
            return []
        return [self._path(number) for number in self._numbers()]

    # -- names --------------------------------------------------------------------------------

    @property
    def _directory(self) -> str:
        return f"{self.root}/{STAGES_DIRECTORY}"

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:016d}{STAGE_SUFFIX}"

    def _numbers(self) -> list[int]:
        stems = [name.removesuffix(STAGE_SUFFIX) for name in self.vfs.list_dir(self._directory)]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _take_number(self) -> int:
        with self._lock:
            if not self._next:
                self.vfs.make_dir(self._directory)
                self.vfs.sync_dir(self.root)
                self._next = max(self._numbers(), default=0) + 1
            self._next += 1
            return self._next - 1
