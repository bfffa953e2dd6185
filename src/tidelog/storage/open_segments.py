"""A bounded set of open segment files, shared by all streams of a node."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidelog.errors import LogClosed
from tidelog.limits import OPEN_SEGMENTS_MAX
from tidelog.storage.segment_file import SegmentReader
from tidelog.storage.vfs import Vfs


@dataclass(slots=True)
class _Opened:
    reader: SegmentReader
    users: int = 0
    forgotten: bool = False


class OpenSegments:
    """Leases readers by path; the least recently used ones are closed when too many are open.

    A leased reader stays open until it is given back, also when its file is replaced.
    """

    def __init__(self, vfs: Vfs, open_max: int = OPEN_SEGMENTS_MAX) -> None:
        self._vfs = vfs
        self._open_max = open_max
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, _Opened] = OrderedDict()
        self._closed = False

    @contextmanager
    def lease(self, path: str) -> Iterator[SegmentReader]:
        with self._lock:
            if self._closed:
                raise LogClosed("the log is closed")
            opened = self._opened.get(path)
            if opened is None:
                opened = self._opened[path] = _Opened(SegmentReader.open(self._vfs, path))
            self._opened.move_to_end(path)
            opened.users += 1
            self._close_surplus()
        try:
            yield opened.reader
        finally:
            with self._lock:
                opened.users -= 1
                if opened.forgotten and opened.users == 0:
                    opened.reader.close()

    @contextmanager
    def opened_anew(self, path: str) -> Iterator[SegmentReader]:
        """A reader that knows nothing by heart, for who asks whether the file is still sound."""
        with self._lock:
            if self._closed:
                raise LogClosed("the log is closed")
        reader = SegmentReader.open(self._vfs, path)
        try:
            yield reader
        finally:
            reader.close()

    def forget(self, path: str) -> None:
        """The file behind ``path`` was replaced or removed: open it anew next time."""
        with self._lock:
            opened = self._opened.pop(path, None)
            if opened is None:
                return
            opened.forgotten = True
            if opened.users == 0:
                opened.reader.close()

    def _close_surplus(self) -> None:
        surplus = len(self._opened) - self._open_max
        if surplus <= 0:
            return
        idle = [path for path, opened in self._opened.items() if opened.users == 0]
        for path in idle[:surplus]:
            self._opened.pop(path).reader.close()

    def close(self) -> None:
        """Close what nobody uses; the rest when it is given back.  Nothing is opened any more."""
        with self._lock:
            self._closed = True
        for path in list(self._opened):
            self.forget(path)
