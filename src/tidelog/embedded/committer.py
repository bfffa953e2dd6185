"""Commits groups of requests: places batches, decides the cut, writes one frame, answers.

An embedded log is one replica, so an entry may be ordered as soon as it is durable.  The cut
therefore rides in the frame of the entries that it orders: both survive a crash or neither does,
and one fsync makes an append STORED and ORDERED at once.

Invariants:
  E1  Nothing is answered before the frame that holds it is durable.
  E2  A request that is refused leaves no trace in LLSNs, GLSNs or producer tables.
  E3  A producer's sequences grow within a group, so a retry never races its original.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tidelog.core.order.commands import CutDecided, StreamCommit
from tidelog.core.order.machine import OrderMachine
from tidelog.embedded.commit_queue import Request
from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.requests import (
    AdminRequest,
    AppendRequest,
    BoundaryRequest,
    TrimRequest,
)
from tidelog.errors import Busy, LogError, OutOfOrder, OutOfRange, StaleWrite
from tidelog.formats.batch import seal_batch
from tidelog.formats.wal_payloads import Trim
from tidelog.interface.appends import Append, Part
from tidelog.interface.records import Receipt
from tidelog.storage.frame_write import BatchWrite, FrameWrite
from tidelog.storage.memtable import StoredBatch
from tidelog.storage.node_store import NodeStore
from tidelog.types import Llsn, StreamId, TopicId


class _Group(msgspec.Struct):
    """A frame in the making."""

    batches: list[BatchWrite] = []
    trims: list[tuple[int, Trim]] = []
    boundaries: list[tuple[int, int]] = []
    ends: dict[StreamId, Llsn] = {}
    """Where each stream will end once the frame is written."""
    sequences: dict[tuple[int, int], int] = {}
    """(stream, producer) → its last sequence in this group."""
    answers: list[tuple[Request, list[_Answer]]] = []
    commits: dict[int, StreamCommit] = {}
    """What the cut of the frame gave to each stream, once it is durable."""

    @property
    def is_empty(self) -> bool:
        return not (self.batches or self.trims or self.boundaries)


class _Answer(msgspec.Struct, frozen=True, gc=False):
    stream: int
    llsn: int
    count: int
    duplicate: bool
    glsn: int = 0
    """Of a duplicate; 0 if its entries are gone."""


class Committer:
    def __init__(
        self, node: NodeStore, order: OrderMachine, *, before: Callable[[bool], None]
    ) -> None:
        """``before`` is told whether the WAL rolled, before each frame is written."""
        self._node = node
        self._order = order
        self._before = before
        self.high_watermarks: dict[int, int] = {
            topic: order.topic(TopicId(topic)).high_watermark for topic in node.topics
        }
        """Per topic the last GLSN that is durable and readable; the order knows it earlier."""
        self.cut_ends = {topic: CutEnds(high + 1) for topic, high in self.high_watermarks.items()}

    def commit(self, requests: Sequence[Request]) -> None:
        """Carry out a group; every request is finished when this returns."""
        while requests:
            requests = self._commit_some(requests)

    def _commit_some(self, requests: Sequence[Request]) -> list[Request]:
        """Write one frame; returns the requests that have to wait for the next one."""
        later: list[Request] = []
        group = _Group()
        for request in requests:
            try:
                if not self._add(group, request):
                    later.append(request)
            except LogError as error:
                request.finish(error)
        if not group.is_empty:
            self._write(group)
        for request, answers in group.answers:
            if isinstance(request, AppendRequest):
                request.receipts = tuple(
                    [
                        self._receipt(request.append.topic, answer, group.commits)
                        for answer in answers
                    ]
                )
            request.finish()
        return later

    def _write(self, group: _Group) -> None:
        self._node.vfs.check_running()  # After a failure the order is ahead of the streams.
        others = len(group.trims) + len(group.boundaries)
        self._before(self._node.reserve(group.batches, others))
        try:
            cut = self._decide(group)
            self._node.write(FrameWrite(group.batches, cut, group.trims, (), group.boundaries))
        except BaseException as error:
            # The order is ahead of the WAL now, or the WAL of the streams: nothing may follow.
            if self._node.vfs.failed is None:
                self._node.vfs.stop(f"a commit was torn away: {error!r}")
            raise
        for commit in cut.commits if cut else ():
            self._note_end(commit)
            group.commits[commit.stream] = commit

    def _note_end(self, commit: StreamCommit) -> None:
        high = commit.high_watermark
        if high > self.high_watermarks.get(commit.topic, 0):
            ends = self.cut_ends.get(commit.topic)
            if ends is None:
                ends = self.cut_ends[commit.topic] = CutEnds(1)
            # The end comes first: who sees the high watermark must know the cut that made it.
            ends.add(high + 1)
            self.high_watermarks[commit.topic] = high

    # -- taking requests in -------------------------------------------------------------

    def _add(self, group: _Group, request: Request) -> bool:
        """Put a request into the group; False when it has to wait for the next one."""
        match request:
            case AppendRequest():
                return self._add_append(group, request)
            case TrimRequest():
                self._add_trim(group, request)
            case BoundaryRequest():
                self._add_boundary(group, request)
            case AdminRequest():
                request.action()
                request.finish()
        return True

    def _add_append(self, group: _Group, request: AppendRequest) -> bool:
        append = request.append
        parts, producer = append.parts, append.producer
        if producer and any(
            append.sequence <= group.sequences.get((part.stream, producer), 0) for part in parts
        ):
            return False  # E3: the table must first know what this group appends.
        for part in parts:
            self._check_version(part)
            self._check_copies(group, part)
        if producer:
            # All parts are looked up before any is placed: a conflict refuses the whole append.
            known = [self._find_duplicate(part, append) for part in parts]
            for part, answer, after in zip(parts, known, append.after, strict=False):
                if answer is None:
                    self._check_turn(group, part, append, after)
            placed = [
                answer or self._place(group, part, append)
                for part, answer in zip(parts, known, strict=True)
            ]
        else:
            placed = [self._place(group, part, append) for part in parts]
        group.answers.append((request, placed))
        return True

    def _check_version(self, part: Part) -> None:
        boundary = self._node.streams[part.stream].boundary
        if part.version_min is not None and part.version_min <= boundary:
            raise StaleWrite(
                f"write version {part.version_min} is not above the GC boundary {boundary}: "
                "write with a newer version"
            )

    def _check_copies(self, group: _Group, part: Part) -> None:
        """Busy unless copies would come right behind what they were chosen from."""
        copied = part.copied
        if copied is None:
            return
        store = self._node.streams[part.stream]
        if copied.first_llsn < store.trim_llsn_end:
            raise Busy("entries were trimmed while they were being copied: try again")
        if copied.end_llsn != group.ends.get(StreamId(part.stream), store.end_llsn):
            raise Busy("entries came while others were being copied: try again")

    def _find_duplicate(self, part: Part, append: Append) -> _Answer | None:
        store = self._node.streams[part.stream]
        known = store.producers.lookup(append.producer, append.sequence)
        if known is None:
            return None
        # Looked up now: once the frame is written, no damaged segment may refuse anything (E2).
        glsn = store.glsn_of(known.llsn_begin)
        return _Answer(part.stream, known.llsn_begin, known.count, duplicate=True, glsn=glsn)

    def _check_turn(self, group: _Group, part: Part, append: Append, after: int) -> None:
        """OutOfOrder if what the producer sent right before this has not arrived."""
        producer = append.producer
        if after <= group.sequences.get((part.stream, producer), 0):
            return
        if self._node.streams[part.stream].producers.is_new(producer, after):
            raise OutOfOrder(
                f"append {after} of producer {producer} has not arrived: send it before "
                f"{append.sequence}"
            )

    def _place(self, group: _Group, part: Part, append: Append) -> _Answer:
        store = self._node.streams[part.stream]
        stream = StreamId(part.stream)
        begin = group.ends.get(stream, store.end_llsn)
        end = Llsn(begin + part.body.count)
        header = seal_batch(
            part.body,
            stream=part.stream,
            term=store.term,
            first_llsn=begin,
            producer=append.producer,
            sequence=append.sequence,
        )
        stored = StoredBatch(begin, end, header + part.body.data)
        group.batches.append(
            BatchWrite(
                part.stream,
                stored,
                part.body.count,
                append.producer,
                append.sequence,
                part.place,
            )
        )
        group.ends[stream] = end
        if append.producer:
            group.sequences[part.stream, append.producer] = append.sequence
        return _Answer(part.stream, begin, part.body.count, duplicate=False)

    def _add_trim(self, group: _Group, request: TrimRequest) -> None:
        high = self._order.topic(TopicId(request.topic)).high_watermark
        if request.glsn_end > high + 1:
            raise OutOfRange(f"cannot trim before GLSN {request.glsn_end}: the last one is {high}")
        trims: list[tuple[int, Trim]] = []
        for stream in self._node.topics[request.topic].streams:
            llsn_end = self._node.streams[stream].llsn_at_or_after(request.glsn_end)
            trims.append((stream, Trim(request.topic, request.glsn_end, llsn_end)))
        group.trims += trims  # E2: whichever segment cannot be read, all are trimmed or none.
        group.answers.append((request, []))

    def _add_boundary(self, group: _Group, request: BoundaryRequest) -> None:
        for stream in self._node.topics[request.topic].streams:
            group.boundaries.append((stream, request.version))
        group.answers.append((request, []))

    # -- order ----------------------------------------------------------------------------

    def _decide(self, group: _Group) -> CutDecided | None:
        return self._order.order(group.ends) if group.ends else None

    def _receipt(self, topic: str, answer: _Answer, commits: Mapping[int, StreamCommit]) -> Receipt:
        glsn = answer.glsn
        if not answer.duplicate:
            commit = commits[answer.stream]
            glsn = commit.glsn_begin + answer.llsn - commit.llsn_begin
        return Receipt(
            topic=topic,
            stream=answer.stream,
            glsn=glsn,
            llsn=answer.llsn,
            count=answer.count,
            duplicate=answer.duplicate,
        )
