"""Stages batches and publishes them, once for each writer and batch number.

``stages`` keeps what is staged.  What each writer published last is a key of the internal topic
``~publish``.  To publish is to append what the stages hold to their topic *and* to note it under
the writer's key, in one and the same append; of a stage file it says only where the batches lie.
So after a crash both are there or neither is, and there is nothing to look up in the topic.

What is too large for one append is published in several, each with a note of what is still to
come; the key ``unfinished`` lists the writers of such publications until they have ended.  A crash
in between is made good when the log is opened again, before anybody reads it.

Invariants:
  G1  Of each writer and batch number, everything is published exactly once or nothing is.
  G2  A stage is trimmed only when it was published or discarded, or when it is too old and no
      publication needs it.
  G3  No GC boundary moves while a publication is under way: what was staged stays publishable.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import time_ns
from typing import TYPE_CHECKING, Final

from tidelog.embedded.pages import find_piece
from tidelog.embedded.requests import AppendRequest
from tidelog.embedded.stage_facts import (
    StageFacts,
    check_publish,
)
from tidelog.embedded.stages import STAGE_TOPIC, Stages
from tidelog.errors import (
    BadOption,
    Busy,
    CorruptData,
    DiskFull,
    LogError,
    PartlyAppended,
    ReadOnly,
    StageExpired,
    StaleWrite,
)
from tidelog.formats.batch import encode_puts
from tidelog.formats.staged import (
    Publication,
    Unfinished,
    decode_publication,
    decode_unfinished,
    encode_publication,
    encode_unfinished,
)
from tidelog.interface.appends import Append, Part
from tidelog.interface.positions import Published
from tidelog.limits import GROUP_BYTES_MAX

if TYPE_CHECKING:
    from tidelog.embedded.engine import Engine
    from tidelog.formats.manifest import TopicManifest

PUBLISH_TOPIC: Final = "~publish"
_UNFINISHED_KEY: Final = b"unfinished"
_WRITER_KEY: Final = b"writer"
_STAGES_AT_ONCE_BYTES: Final = GROUP_BYTES_MAX // 2
"""What is published in one append."""


class Staging:
    """The stages and publications of one log; thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self.stages: Final = Stages(engine)

    # -- staging ------------------------------------------------------------------------------

    def stage(self, topic: TopicManifest, parts: Sequence[Part]) -> int:
        """Keep the parts until they are published; returns the number of the stage."""
        draft = self.stages.draft(topic, parts)
        request = AppendRequest(draft.append)
        try:
            self._engine.submit(request)
        except LogError as error:
            if error.definite:
                self.stages.drop(draft)
            raise
        return self.stages.staged(draft, request.receipts[0].glsn)

    def discard(self, stages: Sequence[int]) -> None:
        """Forget stages; what was published or forgotten before is no error."""
        with self._alone():
            needed = self._needed()
            self.stages.forget([stage for stage in stages if stage not in needed])

    def expire(self, seconds: float) -> None:
        """Forget stages that are older than this and belong to no publication (G2)."""
        if not self._engine.has_topic(STAGE_TOPIC):
            return
        with self._alone():
            self.stages.expire(seconds, self._needed())

    def _needed(self) -> set[int]:
        """The stages of publications that are not at their end (G2)."""
        if not self._engine.has_topic(PUBLISH_TOPIC):
            return set()
        found = [self._publication(key) for key in self._unfinished()]
        return {stage for publication in found if publication for stage in publication.stages}

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
            self.stages.recover()
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
            self._engine.await_settled()
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
        append = Append(topic.name, [*parts, Part(target.streams[0], body)])
        self._engine.settle(AppendRequest(append))  # G1: nobody looks before its note is there.
        return left

    def _next_parts(self, stages: Sequence[int]) -> tuple[list[Part], int]:
        """The parts of the first stages that fit into one append, and how many stages these are."""
        parts: list[Part] = []
        size = count = 0
        for stage in stages:
            size += self.stages.facts_of(stage).size
            if count and size > _STAGES_AT_ONCE_BYTES:
                break
            parts += self.stages.read(stage)[1]
            count += 1
        return parts, count

    def _check_stage(self, topic: TopicManifest, stage: int) -> None:
        """Before the first append: what is refused later would leave half a publication."""
        self.stages.find(stage)
        facts = self.stages.facts_of(stage)
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

    def _let_go(self, stages: Sequence[int]) -> None:
        """Forget what was published; if that cannot be now, another time will do.

        Whatever is in its way, the publication is there: no error may say otherwise.
        """
        with suppress(LogError):
            self.stages.forget(stages)

    # -- what is known ------------------------------------------------------------------------

    def _publication(self, key: bytes) -> Publication | None:
        value = self._note(key)
        return None if value is None else decode_publication(value)

    def _unfinished(self) -> tuple[bytes, ...]:
        value = self._note(_UNFINISHED_KEY)
        return () if value is None else decode_unfinished(value).keys

    def _note(self, key: bytes) -> bytes | None:
        found = find_piece(self._engine, self._engine.internal_topic(PUBLISH_TOPIC), key, 0)
        return None if found is None else found[1].batch.value_at(found[1].begin)


def _key_of(topic: TopicManifest, writer: str) -> bytes:
    return b"%s %d %s" % (_WRITER_KEY, topic.topic, writer.encode())
