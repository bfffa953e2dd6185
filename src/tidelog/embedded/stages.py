"""Stages: batches that wait to be published.

A stage is an entry of the internal topic ``~stage``; its number is its GLSN there.  The batches
of a large one lie in a file that it names (``storage/stage_files.py``).  ``staging`` says when one
is published, and needed no more.

Invariants:
  G4  A stage file goes when its stage was trimmed, or can never have come to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Final

from tidelog.embedded.positions import find_time
from tidelog.embedded.requests import TrimRequest
from tidelog.embedded.stage_facts import (
    StageDraft,
    StageFacts,
    check_parts,
    expired,
    facts_of,
)
from tidelog.errors import BatchTooLarge
from tidelog.formats.batch import HEADER_BYTES, Batch
from tidelog.formats.batch_encode import encode_value
from tidelog.formats.messages import STAGES_MAX
from tidelog.formats.staged import (
    StagedHeader,
    batch_pieces,
    body_of,
    decode_batches,
    decode_staged,
    decode_staged_header,
    named_pieces,
    smallest_version,
    staged_pieces,
)
from tidelog.formats.wal_payloads import BodyPlace
from tidelog.interface.appends import Append, Part
from tidelog.limits import KIB, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from tidelog.embedded.engine import Engine
    from tidelog.formats.manifest import TopicManifest
    from tidelog.storage.stream_store import StreamStore

STAGE_TOPIC: Final = "~stage"
_FILE_BYTES_MIN: Final = 256 * KIB
"""Smaller stages are written sooner with others into the WAL than into a file each."""
_FACTS_MAX: Final = STAGES_MAX


class Stages:
    """The stages of one log.  Drafts may be made by any thread; one at a time does the rest."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._done: set[int] = set()
        """Stages that nobody needs any more, but that lie behind others that are needed."""
        self._facts: dict[int, StageFacts] = {}
        """Those that are known; of other stages, as after a restart, they are looked up."""
        self._files: dict[int, int] = {}
        """Stage → its file, if it has one."""
        self._drafted: dict[int, int] = {}
        """File of a stage that may have yet to come to be → when it was written."""

    def recover(self) -> None:
        """At a start: find the files of all stages, and delete those that none has."""
        if self._engine.has_topic(STAGE_TOPIC):
            self._files = self._named_files()
        self._engine.node.stages.keep_only(self._files.values())

    # -- coming -------------------------------------------------------------------------------

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

    def drop(self, draft: StageDraft) -> None:
        """A draft was refused, for good (G4)."""
        if draft.file:
            self._drafted.pop(draft.file, None)
            self._engine.node.stages.release([draft.file])

    # -- being there --------------------------------------------------------------------------

    def find(self, stage: int) -> int:
        """The LLSN of a stage that is still there."""
        store = self._stage_store()
        if stage not in self._done:
            llsn = store.llsn_at_or_after(stage)
            if llsn >= store.trim_llsn_end and store.glsn_of(llsn) == stage:
                return llsn
        raise expired(stage)

    def facts_of(self, stage: int) -> StageFacts:
        known = self._facts.get(stage)
        return facts_of(*self.read(stage)) if known is None else known

    def read(self, stage: int) -> tuple[int, list[Part]]:
        """For which topic a stage is, and its parts, which lie where the store has them."""
        llsn = self.find(stage)
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

    def _stage_store(self) -> StreamStore:
        topic = self._engine.internal_topic(STAGE_TOPIC)
        return self._engine.node.streams[topic.streams[0]]

    # -- going --------------------------------------------------------------------------------

    def forget(self, stages: Sequence[int]) -> None:
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

    def expire(self, seconds: float, needed: Iterable[int]) -> None:
        """Trim the stages that are older than this and lie before all that are ``needed``."""
        topic = self._engine.internal_topic(STAGE_TOPIC)
        oldest = time_ns() // 1000 - int(seconds * 1_000_000)
        end = find_time(self._engine, topic, oldest).glsn
        self._trim(topic, min([end, *needed]))
        self._forget_drafts(oldest)

    def _forget_drafts(self, oldest: int) -> None:
        """Of drafts that are too old nobody knows the outcome, but whether they are there (G4)."""
        late = {file for file, drafted in self._drafted.copy().items() if drafted < oldest}
        if late:
            self._files |= self._named_files()
            self._engine.node.stages.release(late.difference(self._files.values()))
            for file in late:
                del self._drafted[file]

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
