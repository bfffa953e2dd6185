"""Stages batches and publishes them, once for each writer and batch number.

A stage is an entry of the internal topic ``~stage``; its number is its GLSN there.  The batches
of a large one lie in a file that it names (``storage/stage_files.py``).  What each writer published
last is a key of the internal topic ``~publish``.  To publish is to append what the stages hold to
their topic *and* to note it under the writer's key, in one and the same append; of a file it says
only where the batches lie.  So after a crash both are there or neither is, and there is nothing to
look up in the topic.

What is too large for one append is published in several, each with a note of what is still to
come; the key ``unfinished`` lists the writers of such publications until they have ended.  A crash
in between is made good when the log is opened again, before anybody reads it.

Invariants:
  G1  Of each writer and batch number, everything is published exactly once or nothing is.
  G2  A stage is trimmed only when it was published or discarded, or when it is too old and no
      publication needs it.
  G3  No GC boundary moves while a publication is under way: what was staged stays publishable.
  G4  A stage file goes when its stage was trimmed, or can never have come to be.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import time_ns
from typing import TYPE_CHECKING, Final

from tidelog.embedded.pages import find_piece
from tidelog.embedded.positions import find_time
from tidelog.embedded.requests import AppendRequest, TrimRequest
from tidelog.embedded.stage_facts import (
    StageDraft,
    StageFacts,
    check_parts,
    check_publish,
    expired,
    facts_of,
)
from tidelog.errors import (
    BadOption,
    BatchTooLarge,
    Busy,
    CorruptData,
    DeadlineExceeded,
    DiskFull,
    LogError,
    PartlyAppended,
    ReadOnly,
    StageExpired,
    StaleWrite,
)
from tidelog.formats.batch import HEADER_BYTES, Batch, encode_puts
from tidelog.formats.batch_encode import encode_value
from tidelog.formats.messages import STAGES_MAX
from tidelog.formats.staged import (
    Publication,
    StagedHeader,
    Unfinished,
    batch_pieces,
    body_of,
    decode_batches,
    decode_publication,
    decode_staged,
    decode_staged_header,
    decode_unfinished,
    encode_publication,
    encode_unfinished,
    named_pieces,
    smallest_version,
    staged_pieces,
)
from tidelog.formats.wal_payloads import BodyPlace
from tidelog.interface.appends import Append, Part
from tidelog.interface.positions import Published
from tidelog.limits import GROUP_BYTES_MAX, KIB, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from tidelog.embedded.engine import Engine
    from tidelog.formats.manifest import TopicManifest
    from tidelog.storage.stream_store import StreamStore

STAGE_TOPIC: Final = "~stage"
PUBLISH_TOPIC: Final = "~publish"
_UNFINISHED_KEY: Final = b"unfinished"
_WRITER_KEY: Final = b"writer"
_LOOK_SECONDS: Final = 1.0
_STAGES_AT_ONCE_BYTES: Final = GROUP_BYTES_MAX // 2
"""What is published in one append."""
_FILE_BYTES_MIN: Final = 256 * KIB
"""Smaller stages are written sooner with others into the WAL than into a file each."""
_FACTS_MAX: Final = STAGES_MAX


class Staging:
    """The stages and publications of one log; thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._done: set[int] = set()
        """Stages that nobody needs any more, but that lie behind others that are needed."""
        self._facts: dict[int, StageFacts] = {}
        """Those that are known; of other stages, as after a restart, they are looked up."""
        self._files: dict[int, int] = {}
        """Stage → its file, if it has one."""
        self._drafted: dict[int, int] = {}
        """File of a stage that may have yet to come to be → when it was written."""

    # -- staging ------------------------------------------------------------------------------

    def stage(self, topic: TopicManifest, parts: Sequence[Part]) -> int:
        """Keep the parts until they are published; returns the number of the stage."""
        draft = self.draft(topic, parts)
        request = AppendRequest(draft.append)
        self._engine.submit(request)
        return self.staged(draft, request.receipts[0].glsn)

    def draft(self, topic: TopicManifest, parts: Sequence[Part]) -> StageDraft:
        """The append that stages the parts: the GLSN of its receipt is the number of the stage."""
        check_parts(topic, parts)
        bodies = [(part.stream, part.body) for part in parts]
        pieces = staged_pieces(topic.topic, bodies)
        size = sum(map(len, pieces))
        if size > VALUE_BYTES_MAX:
            raise BatchTooLarge(
                f"{size} bytes cannot be staged at once, the limit is {VALUE_BYTES_MAX}: "
                "stage them in parts"
            )
        internal = self._engine.internal_topic(STAGE_TOPIC)
        now, file = time_ns() // 1000, 0
        if size >= _FILE_BYTES_MIN:
            batches = batch_pieces(bodies)
            file = self._engine.node.stages.write(batches)
            self._drafted[file] = now
            pieces = named_pieces(topic.topic, bodies, file, sum(map(len, batches)))
        body = encode_value(pieces, timestamp_us=now)
        append = Append(STAGE_TOPIC, [Part(internal.streams[0], body)])
        return StageDraft(append, facts_of(topic.topic, parts), file)

    def staged(self, draft: StageDraft, stage: int) -> int:
        """A draft became durable under this number: a publication need not look it up."""
        if len(self._facts) >= _FACTS_MAX:
            self._facts.clear()
        self._facts[stage] = draft.facts
        if draft.file:
            self._files[stage] = draft.file
            self._drafted.pop(draft.file, None)
        return stage

    def discard(self, stages: Sequence[int]) -> None:
        """Forget stages; what was published or forgotten before is no error."""
        with self._alone():
            needed = self._needed()
            self._forget([stage for stage in stages if stage not in needed])

    def expire(self, seconds: float) -> None:
        """Forget stages that are older than this and belong to no publication (G2)."""
        if not self._engine.has_topic(STAGE_TOPIC):
            return
        with self._alone():
            topic = self._engine.internal_topic(STAGE_TOPIC)
            oldest = time_ns() // 1000 - int(seconds * 1_000_000)
            end = find_time(self._engine, topic, oldest).glsn
            self._trim(topic, min([end, *self._needed()]))
            self._forget_drafts(oldest)

    def _needed(self) -> set[int]:
        """The stages of publications that are not at their end (G2)."""
        if not self._engine.has_topic(PUBLISH_TOPIC):
            return set()
        found = [self._publication(key) for key in self._unfinished()]
        return {stage for publication in found if publication for stage in publication.stages}

    def _forget_drafts(self, oldest: int) -> None:
        """Of drafts that are too old nobody knows the outcome, but whether they are there (G4)."""
        late = {file for file, drafted in self._drafted.copy().items() if drafted < oldest}
        if late:
            self._files |= self._named_files()
            self._engine.node.stages.release(late.difference(self._files.values()))
            for file in late:
                del self._drafted[file]

    # -- publishing ---------------------------------------------------------------------------

    def publish(
        self, topic: TopicManifest, writer: str, batch: int, stages: Sequence[int]
    ) -> Published:
        """Append what was staged, in the order given, unless the writer has done that before.

        A writer's batch numbers ascend; one at or below its last one counts as done.
        """
        check_publish(writer, batch, stages)
        key = _key_of(topic, writer)
        with self._publishing(key):
            known = self._publication(key)
            if known is not None and batch <= known.batch:
                self._let_go(stages)
                return Published(known.entries if batch == known.batch else 0, duplicate=True)
            for stage in stages:
                self._check_stage(topic, stage)
            done = self._copy(key, Publication(topic.topic, batch, 0, tuple(stages)))
            self._let_go(stages)
            return Published(done.entries, duplicate=False)

    def recover(self) -> None:
        """Finish what a crash interrupted; what stands in the way is left to the next publish."""
        try:
            if self._engine.has_topic(STAGE_TOPIC):
                self._files = self._named_files()
            self._engine.node.stages.keep_only(self._files.values())
            if self._engine.has_topic(PUBLISH_TOPIC):
                with self._publishing():
                    pass
        except (DiskFull, ReadOnly, Busy, CorruptData, StageExpired, PartlyAppended):
            # What can be read stays readable; whoever publishes next is told.
            return

    @contextmanager
    def settled(self) -> Iterator[None]:
        """No publication is under way meanwhile (G3)."""
        if not self._engine.has_topic(PUBLISH_TOPIC):
            yield
            return
        with self._publishing():
            yield

    @contextmanager
    def _publishing(self, own: bytes = b"") -> Iterator[None]:
        """One at a time, and after all that were interrupted; ``own`` is that of the caller."""
        with self._alone():
            for key in self._unfinished():
                publication = self._publication(key)
                if publication is not None and publication.stages:
                    self._copy(key, publication, begun=key == own)
                    self._let_go(publication.stages)
            yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes stages meanwhile; Busy if that cannot be had in time."""
        if not self._lock.acquire(timeout=self._engine.options.append_timeout_seconds):
            raise Busy("another publication is under way: try again later")
        try:
            yield
        finally:
            self._lock.release()

    def _copy(self, key: bytes, publication: Publication, *, begun: bool = False) -> Publication:
        """Append all that is to be copied; every append notes how far that is (G1).

        PartlyAppended, which is not definite, if it cannot go on and has ``begun``.
        """
        while True:
            try:
                publication = self._copy_some(key, publication)
            except LogError as error:
                if begun and error.definite:
                    raise PartlyAppended(
                        f"a part is published, and the rest will be before all else: {error}"
                    ) from error
                raise
            if not publication.stages:
                return publication
            begun = True

    def _copy_some(self, key: bytes, publication: Publication) -> Publication:
        topic = self._engine.node.topics[publication.topic]
        target = self._engine.internal_topic(PUBLISH_TOPIC)
        parts, count = self._next_parts(publication.stages)
        entries = publication.entries + sum(part.body.count for part in parts)
        left = Publication(topic.topic, publication.batch, entries, publication.stages[count:])
        notes = {key: encode_publication(left)}
        unfinished = self._unfinished()
        if (key in unfinished) != bool(left.stages):
            others = tuple(other for other in unfinished if other != key)
            keys = (*others, key) if left.stages else others
            notes[_UNFINISHED_KEY] = encode_unfinished(Unfinished(keys))
        body = encode_puts(list(notes), list(notes.values()), timestamp_us=time_ns() // 1000)
        self._append(Append(topic.name, [*parts, Part(target.streams[0], body)]))
        return left

    def _append(self, append: Append) -> None:
        """Append, and come back only when it is certain what became of it (G1)."""
        request = AppendRequest(append)
        try:
            self._engine.submit(request)
        except DeadlineExceeded:
            # It is being written: its note is there, or will never be, before anybody looks again.
            while not request.done:
                request.wait(_LOOK_SECONDS)
            if request.error is not None:
                raise request.error from None

    def _next_parts(self, stages: Sequence[int]) -> tuple[list[Part], int]:
        """The parts of the first stages that fit into one append, and how many stages these are."""
        parts: list[Part] = []
        size = count = 0
        for stage in stages:
            size += self._facts_of(stage).size
            if count and size > _STAGES_AT_ONCE_BYTES:
                break
            parts += self._read(stage)[1]
            count += 1
        return parts, count

    def _check_stage(self, topic: TopicManifest, stage: int) -> None:
        """Before the first append: what is refused later would leave half a publication."""
        self._find(stage)
        facts = self._facts_of(stage)
        if facts.topic != topic.topic:
            raise BadOption(f"stage {stage} is for another topic than {topic.name!r}")
        self._check_versions(facts)

    def _check_versions(self, facts: StageFacts) -> None:
        for stream, version in facts.versions:
            boundary = self._engine.node.streams[stream].boundary
            if version <= boundary:
                raise StaleWrite(
                    f"write version {version} is not above the GC boundary {boundary}: "
                    "write with a newer version"
                )

    # -- stages -------------------------------------------------------------------------------

    def _find(self, stage: int) -> int:
        """The LLSN of a stage that is still there."""
        store = self._stage_store()
        if stage not in self._done:
            llsn = store.llsn_at_or_after(stage)
            if llsn >= store.trim_llsn_end and store.glsn_of(llsn) == stage:
                return llsn
        raise expired(stage)

    def _facts_of(self, stage: int) -> StageFacts:
        known = self._facts.get(stage)
        return facts_of(*self._read(stage)) if known is None else known

    def _read(self, stage: int) -> tuple[int, list[Part]]:
        """For which topic a stage is, and its parts, which lie where the store has them."""
        llsn = self._find(stage)
        for piece in self._stage_store().read(llsn, llsn + 1):
            value = piece.first_value()
            header, _ = decode_staged_header(value)
            if header.file:
                return header.topic, self._read_file(header)
            _, batches = decode_staged(value)
            return header.topic, [_part(batch) for batch in batches]
        raise expired(stage)

    def _read_file(self, header: StagedHeader) -> list[Part]:
        """The parts of a stage whose batches are in a file: publishing refers to that."""
        data = self._engine.node.stages.read(header.file, 0, header.size)
        parts: list[Part] = []
        offset = 0
        for batch in decode_batches(header, memoryview(data), verify=True):
            parts.append(_part(batch, BodyPlace(header.file, offset + HEADER_BYTES)))
            offset += batch.length
        return parts

    def _named_files(self) -> dict[int, int]:
        """The files of all stages that are there."""
        found: dict[int, int] = {}
        store = self._stage_store()
        for piece in store.read(store.trim_llsn_end, store.ordered_end):
            for place in range(piece.begin, piece.end):
                header, _ = decode_staged_header(memoryview(piece.batch.value_at(place)))
                if header.file:
                    found[piece.runs.glsn_of(piece.batch.llsn_at(place))] = header.file
        return found

    # -- what is known ------------------------------------------------------------------------

    def _stage_store(self) -> StreamStore:
        topic = self._engine.internal_topic(STAGE_TOPIC)
        return self._engine.node.streams[topic.streams[0]]

    def _publication(self, key: bytes) -> Publication | None:
        value = self._note(key)
        return None if value is None else decode_publication(value)

    def _unfinished(self) -> tuple[bytes, ...]:
        value = self._note(_UNFINISHED_KEY)
        return () if value is None else decode_unfinished(value).keys

    def _note(self, key: bytes) -> bytes | None:
        found = find_piece(self._engine, self._engine.internal_topic(PUBLISH_TOPIC), key, 0)
        return None if found is None else found[1].batch.value_at(found[1].begin)

    # -- trimming -----------------------------------------------------------------------------

    def _let_go(self, stages: Sequence[int]) -> None:
        """Forget what was published; if there is no room to say so, another time will do."""
        with suppress(DiskFull, Busy):
            self._forget(stages)

    def _forget(self, stages: Sequence[int]) -> None:
        """Trim the stages that nobody needs, as far as no other lies before them."""
        topic = self._engine.internal_topic(STAGE_TOPIC)
        begin = self._engine.first_available(topic)
        high = self._engine.high_watermark(topic.topic)
        self._done.update(stage for stage in stages if begin <= stage <= high)
        for stage in stages:
            self._facts.pop(stage, None)
        end = begin
        while end in self._done:
            end += 1
        self._trim(topic, end)

    def _trim(self, topic: TopicManifest, end: int) -> None:
        if end <= self._engine.first_available(topic):
            return
        self._engine.submit(TrimRequest(topic.topic, end))
        trimmed = [stage for stage in self._files.copy() if stage < end]
        self._engine.node.stages.release([self._files.pop(stage) for stage in trimmed])
        self._done = {stage for stage in self._done if stage >= end}
        store = self._stage_store()
        # The last segment stays in any case.
        if any(segment.end_llsn <= store.trim_llsn_end for segment in store.view.segments[:-1]):
            self._engine.drop_trimmed(store)


def _part(batch: Batch, place: BodyPlace | None = None) -> Part:
    body = body_of(batch)
    return Part(batch.stream, body, smallest_version(body), place=place)


def _key_of(topic: TopicManifest, writer: str) -> bytes:
    return b"%s %d %s" % (_WRITER_KEY, topic.topic, writer.encode())
