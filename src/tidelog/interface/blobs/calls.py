"""BLOBs of a topic for callers that block, embedded or served.

How they lie in the log is told in ``formats.topic_blob``, what is put when in ``upload``, and
what may go in ``census``.

B1  a BLOB goes in this order: nobody sees it any more, its parts, its description; whoever breaks
    off in between leaves a description that tells what is left
B2  the topic of the parts is made first, so where descriptions are there is room for parts
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future

from tidelog.errors import UnknownTopic
from tidelog.formats.topic_blob import BlobDescription, blob_key, topics_of_blobs
from tidelog.interface.blobs.census import BlobCensus, info_of
from tidelog.interface.blobs.collecting import CATCH_UPS, Collecting
from tidelog.interface.blobs.figures import BlobCollection, BlobInfo
from tidelog.interface.blobs.lookup import (
    deleted_in_part,
    deletes_of,
    key_of,
    mark_of,
    to_delete,
    to_read,
    unknown,
)
from tidelog.interface.blobs.reader import BlobReader
from tidelog.interface.blobs.sources import BlobSource, parts_of, size_of
from tidelog.interface.blobs.upload import PARTS_UNDER_WAY, UPLOAD_BYTES, Upload
from tidelog.interface.handles import TopicHandle
from tidelog.interface.records import Receipt


class BlobCalls:
    """What a handle of a topic offers for BLOBs."""

    _kept_blobs: TopicBlobs | None = None

    @abstractmethod
    def _topic_blobs(self) -> TopicBlobs: ...

    @property
    def _blobs(self) -> TopicBlobs:
        if self._kept_blobs is None:
            self._kept_blobs = self._topic_blobs()
        return self._kept_blobs

    def put_blob(self, source: BlobSource, *, progress: Callable[[int], None] | None = None) -> int:
        """Store the bytes of a source as a BLOB of the topic; returns its id for ``blobs=``.

        A few parts are in memory at a time.  All of it is durable and ordered when this returns.
        ``progress`` is told how many bytes are under way or done.
        """
        return self._blobs.put(source, progress)

    def open_blob(self, blob: int) -> BlobReader:
        """A file to read a BLOB of the topic; UnknownBlob if there is none of that id."""
        return self._blobs.open(blob)

    def blob_size(self, blob: int) -> int:
        """How many bytes a BLOB of the topic has."""
        return self._blobs.description(blob).size

    def delete_blob(self, blob: int) -> None:
        """Delete a BLOB, whatever refers to it; one whose deletion broke off is gone on with."""
        self._blobs.delete(blob)

    def list_blobs(self) -> Iterator[BlobInfo]:
        """The BLOBs of the topic, with uploads and deletions that are not at their end."""
        return self._blobs.listed()

    def collect_blobs(
        self,
        older_than: float = 86400.0,
        *,
        progress: Callable[[BlobCollection], None] | None = None,
    ) -> BlobCollection:
        """Delete BLOBs to which no entry of the topic refers, and uploads that broke off.

        Those that were put in the last ``older_than`` seconds are left alone: somebody may be about
        to refer to them.
        """
        return self._blobs.collect(older_than, progress)


class TopicBlobs:
    """The BLOBs of one topic.  Thread-safe.

    ``companion`` gives a handle for the topic of a name; one with ``streams`` is made if missing.
    """

    def __init__(self, topic: TopicHandle, companion: Callable[[str, int], TopicHandle]) -> None:
        self._topic = topic
        self._companion = companion
        self._known: tuple[TopicHandle, TopicHandle] | None = None

    # -- the topics ---------------------------------------------------------------------------

    def _made(self) -> tuple[TopicHandle, TopicHandle]:
        """The topics of descriptions and parts (B2)."""
        if self._known is None:
            names = topics_of_blobs(self._topic.name)
            parts = self._companion(names[1], len(self._topic.streams))
            self._known = self._companion(names[0], 1), parts
        return self._known

    def _there(self) -> tuple[TopicHandle, TopicHandle] | None:
        """The same if they have been made; None if there never was a BLOB."""
        if self._known is None:
            names = topics_of_blobs(self._topic.name)
            try:
                self._known = self._companion(names[0], 0), self._companion(names[1], 0)
            except UnknownTopic:
                return None
        return self._known

    # -- one BLOB -----------------------------------------------------------------------------

    def put(self, source: BlobSource, progress: Callable[[int], None] | None) -> int:
        upload = Upload(size_of(source))
        descriptions, parts = self._made()
        under_way: deque[Future[Receipt]] = deque()
        with parts.appender(bytes_max=UPLOAD_BYTES) as appender:
            for data in parts_of(source):
                if (news := upload.announcement()) is not None:
                    descriptions.put(upload.key, news)
                if len(under_way) == PARTS_UNDER_WAY:
                    under_way.popleft().result()
                under_way.append(appender.put(*upload.part(data)))
                if progress is not None:
                    progress(upload.size)
        descriptions.put(upload.key, upload.description())
        return upload.blob

    def open(self, blob: int) -> BlobReader:
        description = self.description(blob)
        return BlobReader(description, self._made()[1].get)

    def description(self, blob: int) -> BlobDescription:
        """What is known of a complete BLOB."""
        key, topics = key_of(blob), self._there()
        if topics is None:
            raise unknown(blob)
        return to_read(blob, topics[0].get(key))

    def delete(self, blob: int) -> None:
        key, topics = key_of(blob), self._there()
        if topics is None:
            raise unknown(blob)
        self._erase(to_delete(blob, topics[0].get(key)))

    def _erase(self, found: BlobDescription) -> None:
        """B1."""
        descriptions, parts = self._made()
        key = blob_key(found.blob)
        if (mark := mark_of(found)) is not None:
            descriptions.put(key, mark)
        with deleted_in_part(found.blob):
            for entries in deletes_of(found):
                parts.write(entries)
            descriptions.delete(key)

    # -- all of them --------------------------------------------------------------------------

    def listed(self) -> Generator[BlobInfo, None, None]:
        topics = self._there()
        if topics is None:
            return
        descriptions, _ = topics
        begin, end = _bounds(descriptions)
        census = BlobCensus()
        for record in descriptions.read(begin, end):
            census.see(record)
        for record in descriptions.read(begin, end):
            if (info := census.show(record)) is not None:
                yield info
        for blob in census.torn:
            if (info := info_of(descriptions.get(blob_key(blob)))) is not None:
                yield info

    def collect(
        self, older_than: float, progress: Callable[[BlobCollection], None] | None
    ) -> BlobCollection:
        collecting = Collecting(older_than, progress)
        topics = self._there()
        if topics is None:
            return collecting.figures()
        descriptions, _ = topics
        census = collecting.census
        for record in descriptions.read():
            census.see(record)
        self._look_for_references(collecting)
        for blob in census.candidates():
            found = census.may_go(descriptions.get(blob_key(blob)))
            if found is not None:
                self._erase(found)
                collecting.erased(found)
        return collecting.figures()

    def _look_for_references(self, collecting: Collecting) -> None:
        """Look at every entry of the topic, also at those that come meanwhile."""
        begin, end = _bounds(self._topic)
        for _ in range(CATCH_UPS):
            if begin == end or not collecting.census.complete:
                return
            for record in self._topic.read(begin, end):
                collecting.look(record)
            begin, end = end, self._topic.position().glsn


def _bounds(topic: TopicHandle) -> tuple[int, int]:
    place = topic.position()
    return place.first_available, place.glsn
