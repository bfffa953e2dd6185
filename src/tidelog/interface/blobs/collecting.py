"""How far a collection of BLOBs is."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from time import time_ns
from typing import Final

from tidelog.errors import BadOption
from tidelog.formats.topic_blob import BlobDescription, BlobState
from tidelog.interface.blobs.census import BlobCensus
from tidelog.interface.blobs.figures import BlobCollection
from tidelog.interface.records import Record

CATCH_UPS: Final = 8
"""How often a collection looks whether entries came while it looked at others."""
_TELL_ENTRIES: Final = 1000


class Collecting:
    """The census of a collection, and what it has done so far."""

    def __init__(
        self, older_than: float, progress: Callable[[BlobCollection], None] | None
    ) -> None:
        if not isfinite(older_than) or older_than < 0:
            raise BadOption(
                f"older_than is {older_than}, but must be a number of seconds from 0 on"
            )
        self.census: Final = BlobCensus(time_ns() // 1000 - int(older_than * 1_000_000))
        self._progress = progress
        self._entries = self._deleted = self._torn = self._bytes = 0

    def look(self, record: Record) -> None:
        """An entry of the topic."""
        if record.blobs:
            self.census.refer(record.blobs)
        self._entries += 1
        if self._entries % _TELL_ENTRIES == 0:
            self._tell()

    def erased(self, found: BlobDescription) -> None:
        """A BLOB is gone."""
        if found.state is BlobState.COMPLETE:
            self._deleted += 1
            self._bytes += found.size
        else:
            self._torn += 1
        self._tell()

    def figures(self) -> BlobCollection:
        """What was done so far."""
        return BlobCollection(
            entries=self._entries,
            kept=len(self.census.there) - self._deleted - self._torn,
            deleted=self._deleted,
            torn=self._torn,
            bytes=self._bytes,
            unreadable=self.census.unreadable,
        )

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(self.figures())
