"""Publishes what was staged, once for each writer and batch number, on a cluster.

Whoever leads the internal topic ``~publish`` publishes.  First it is written down what is going to
be published (``Intent``), by compare-and-set on the writer's key; then the staged content is
appended, under numbers that follow from what was written down; then it is noted that this is done.
Whoever finds a publication that is not done finishes *that* one, with its stages, whatever it has
come for itself.

Invariants:
  G1  of each writer and batch number, everything is published exactly once or nothing is
  G2  a stage is trimmed only if no publication that is not done needs it: how far stages have
      expired is noted where publications are, before anything goes
  G3  no GC boundary moves over what is to be published: where it may move is noted there, too
  G4  what was written down is never told to be nothing: from then on no error is definite
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from time import time_ns
from typing import Any, Final

from tidelog.embedded.stage_facts import check_publish, expired
from tidelog.embedded.stages import STAGE_TOPIC
from tidelog.embedded.staging import PUBLISH_TOPIC
from tidelog.errors import (
    BadOption,
    DeadlineExceeded,
    LeaderLost,
    LogError,
    PartlyAppended,
    Sealed,
    StaleWrite,
)
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import STAGES_MAX, FindTime, Publish
from tidelog.formats.publications import (
    EXPIRED_KEY,
    UNFINISHED_KEY,
    Intent,
    boundary_key,
    decode_boundary,
    decode_intent,
    decode_keys,
    decode_number,
    encode_boundary,
    encode_intent,
    encode_number,
    writer_key,
)
from tidelog.interface.appends import Part
from tidelog.interface.positions import Published
from tidelog.runtime.gateway.append_shares import PASSING
from tidelog.runtime.gateway.cells import Cells, Lookup
from tidelog.runtime.gateway.cluster_map import ClusterMap
from tidelog.runtime.gateway.copying import Copying
from tidelog.runtime.gateway.counters import GatewayCounters
from tidelog.runtime.gateway.finishing import Finishing
from tidelog.runtime.gateway.reads import ClusterReads
from tidelog.runtime.gateway.stages import Stages
from tidelog.runtime.gateway.unfinished import unfinished, with_key, without_key
from tidelog.runtime.gateway.upkeep import ClusterUpkeep

_PUBLISH_SECONDS: Final = 300.0
"""What a publication may take, even if nobody waits for it any more."""
_STAGE_SECONDS: Final = 1.0
"""What it may take longer for each stage, since every try begins with the first one."""
_FINISH_SECONDS: Final = 30.0
_STEP_SECONDS: Final = 10.0
"""What a step of a publication may take that nobody waits for: others wait for its place."""


class LocalPublishing:
    """What this node does if it leads the stream that publications are noted in."""

    def __init__(
        self,
        cells: Cells,
        cluster: ClusterMap,
        stages: Stages,
        copying: Copying,
        reads: ClusterReads,
        upkeep: ClusterUpkeep,
        counters: GatewayCounters,
    ) -> None:
        self._cells = cells
        self._cluster = cluster
        self._stages = stages
        self._copying = copying
        self._reads = reads
        self._upkeep = upkeep
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._running: dict[bytes, asyncio.Task[Published]] = {}
        """By the writer's key: of one writer one publication is under way."""
        self._finishing = Finishing(self._resume)
        self._forgotten: set[int] = set()
        """Stages that nobody needs any more, but that lie behind others that are needed."""

    # -- publishing ---------------------------------------------------------------------------

    async def publish(self, topic: TopicManifest, message: Publish, seconds: float) -> Published:
        """Publish, or finish what was begun; it goes on if nobody waits for it any more."""
        check_publish(message.writer, message.batch, message.stages)
        key = writer_key(topic.topic, message.writer)
        make = partial(self._publish, topic, key, message.batch, message.stages)
        return await self._alone(key, make, seconds)

    async def _alone(
        self, key: bytes, make: Callable[[], Coroutine[Any, Any, Published]], seconds: float
    ) -> Published:
        """One at a time for each writer."""
        try:
            async with asyncio.timeout(seconds):
                while (before := self._running.get(key)) is not None:
                    await asyncio.wait([before])
                task = self._loop.create_task(make())
                self._running[key] = task
                task.add_done_callback(partial(self._on_end, key))
                return await asyncio.shield(task)
        except TimeoutError:
            raise DeadlineExceeded(
                "the publication is not done yet; it goes on: publish again to see"
            ) from None

    def _on_end(self, key: bytes, task: asyncio.Task[Published]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # Looked at: whoever waited was told.

    async def _publish(
        self, topic: TopicManifest, key: bytes, batch: int, stages: tuple[int, ...]
    ) -> Published:
        deadline = self._deadline(stages)
        while True:
            known = await self._intent(key)
            if known is not None and not known.is_done:
                self._counters.publications_resumed += 1
                await self._finish(key, known, self._deadline(known.stages))
                continue  # Others may have begun the next one meanwhile.
            if known is not None and batch <= known.batch:
                self._forget(stages)
                return Published(known.entries if batch == known.batch else 0, duplicate=True)
            versions = await self._check_stages(topic, stages, deadline)
            first = 1 if known is None else known.next_sequence
            intent = Intent(topic.topic, batch, first, stages)
            if await self._begin(key, known, intent, versions, deadline):
                done = await self._finish(key, intent, deadline)
                self._forget(stages)
                self._counters.publications += 1
                return Published(done.entries, duplicate=False)

    async def _check_stages(
        self, topic: TopicManifest, stages: Sequence[int], deadline: float
    ) -> list[int]:
        """What is refused later would leave half a publication; returns the smallest versions."""
        versions: list[int] = []
        if not stages:
            return versions
        first, end = await self._stages.range(self._left(deadline))
        for stage in stages:
            if not first <= stage < end or stage in self._forgotten:
                raise expired(stage)
            number, parts = await self._stages.read(stage, self._left(deadline))
            if number != topic.topic:
                raise BadOption(f"stage {stage} is for another topic than {topic.name!r}")
            await self._refuse_sealed(parts, deadline)
            versions += [part.version_min for part in parts if part.version_min is not None]
        return versions

    async def _refuse_sealed(self, parts: Sequence[Part], deadline: float) -> None:
        """While nothing is written down, this is definite; a seal that comes later is not."""
        streams = [part.stream for part in parts]
        sealed = await self._cluster.find_sealed(streams, self._left(deadline))
        if sealed is not None:
            raise Sealed(
                f"log stream {sealed} is sealed, nothing was published: unseal it, or stage the "
                "batches again for other streams"
            )

    async def _begin(
        self,
        key: bytes,
        known: Intent | None,
        intent: Intent,
        versions: Sequence[int],
        deadline: float,
    ) -> bool:
        """Write down what is going to be published; False if something else is there by now."""
        began = False

        def decide(look: Lookup) -> Mapping[bytes, bytes]:
            nonlocal began
            began = look(key) == (None if known is None else encode_intent(known))
            if not began:
                return {}
            oldest = decode_number(look(EXPIRED_KEY))
            for stage in intent.stages:
                if stage < oldest:
                    raise expired(stage)
            noted = decode_boundary(look(boundary_key(intent.topic)))
            _check_versions(versions, max(noted, self._cluster.boundary(intent.topic)))
            return {key: encode_intent(intent), UNFINISHED_KEY: with_key(look, key)}

        await self._cells.change(self._notes, decide, self._left(deadline))
        return began

    async def _finish(
        self, key: bytes, intent: Intent, deadline: float, step: float = _PUBLISH_SECONDS
    ) -> Intent:
        """Append what is written down, then note that it is done (G4)."""
        topic = self._cluster.order(intent.topic)
        name = "" if topic is None else topic.name
        try:
            entries = await self._copying.copy(key, intent, name, deadline, step)
            noted_by = min(deadline, self._loop.time() + step)
            return await self._note_done(key, intent, entries, noted_by)
        except LogError as error:
            if not error.definite:
                raise
            raise _not_done(intent, error) from error

    async def _note_done(self, key: bytes, intent: Intent, entries: int, deadline: float) -> Intent:
        """Returns what is written down by then."""
        done = Intent(intent.topic, intent.batch, intent.next_sequence, (), entries, is_done=True)
        found = done

        def decide(look: Lookup) -> Mapping[bytes, bytes]:
            nonlocal found
            value = look(key)
            if value != encode_intent(intent):  # Somebody else was faster.
                found = done if value is None else decode_intent(value)
                return {}
            found = done
            return {key: encode_intent(done), UNFINISHED_KEY: without_key(look, key)}

        await self._cells.change(self._notes, decide, self._left(deadline))
        return found

    # -- stages -------------------------------------------------------------------------------

    def discard(self, stages: Sequence[int]) -> None:
        """Forget stages; what was published or forgotten before is no error."""
        self._forget(stages)

    def _forget(self, stages: Sequence[int]) -> None:
        if len(self._forgotten) + len(stages) > STAGES_MAX:
            self._forgotten.clear()  # They expire instead.
        self._forgotten.update(stages[:STAGES_MAX])

    async def tend(self, stage_seconds: float) -> None:
        """Finish what was interrupted, and let stages go that nobody needs any more."""
        if not self._cluster.has_topic(PUBLISH_TOPIC) or not self._cells.is_led_here(self._notes):
            return
        keys = decode_keys(await self._cells.look(self._notes, UNFINISHED_KEY))
        trouble = await self._finishing.go_through(keys, _FINISH_SECONDS)
        if self._cluster.has_topic(STAGE_TOPIC):
            await self._expire(stage_seconds)  # Not of what is unfinished (G2).
        if trouble is not None:
            raise trouble

    async def _resume(self, key: bytes) -> None:
        """Finish what is written down, unless somebody is at it: that one sees to it."""
        if key not in self._running:
            await self._alone(key, partial(self._finish_interrupted, key), _PUBLISH_SECONDS)

    async def _finish_interrupted(self, key: bytes) -> Published:
        intent = await self._intent(key)
        if intent is None or intent.is_done:
            return Published(0, duplicate=True)
        self._counters.publications_resumed += 1
        done = await self._finish(key, intent, self._deadline(intent.stages), _STEP_SECONDS)
        self._forget(intent.stages)
        return Published(done.entries, duplicate=True)

    async def _expire(self, stage_seconds: float) -> None:
        """Trim stages that are too old, or done with, and that no publication needs (G2)."""
        topic = self._cluster.topic(STAGE_TOPIC)
        oldest = time_ns() // 1000 - int(stage_seconds * 1_000_000)
        request = FindTime(topic.name, oldest)
        found = await self._reads.find_time(topic, request, _FINISH_SECONDS)
        first = self._cluster.trim_end(topic.topic)
        end = max(found.glsn, self._forgotten_end(first))
        if end <= first:
            return
        noted = 0

        def decide(look: Lookup) -> Mapping[bytes, bytes]:
            nonlocal noted
            needed = [min(intent.stages) for intent in unfinished(look) if intent.stages]
            noted = max(min([end, *needed]), decode_number(look(EXPIRED_KEY)))
            return {EXPIRED_KEY: encode_number(noted)}

        await self._cells.change(self._notes, decide, _FINISH_SECONDS)
        if noted > first:
            await self._upkeep.retain(topic, _FINISH_SECONDS, trim_end=noted)
            self._forgotten = {stage for stage in self._forgotten if stage >= noted}

    def _forgotten_end(self, first: int) -> int:
        while first in self._forgotten:
            first += 1
        return first

    # -- boundaries (G3) ----------------------------------------------------------------------

    async def set_boundary(self, topic: TopicManifest, version: int, seconds: float) -> None:
        """Move the GC boundary of a topic when no publication is under way."""
        deadline = self._loop.time() + seconds
        while True:
            is_free = False

            def decide(look: Lookup) -> Mapping[bytes, bytes]:
                nonlocal is_free
                is_free = all(intent.topic != topic.topic for intent in unfinished(look))
                known = decode_boundary(look(boundary_key(topic.topic)))
                if not is_free or version <= known:
                    return {}
                return {boundary_key(topic.topic): encode_boundary(version)}

            await self._cells.change(self._notes, decide, self._left(deadline))
            if is_free:
                await self._upkeep.retain(topic, self._left(deadline), boundary=version)
                return
            await self._finish_those_of(topic, deadline)

    async def _finish_those_of(self, topic: TopicManifest, deadline: float) -> None:
        """Finish publications of a topic, or wait for those who are at it."""
        keys = []
        for key in decode_keys(await self._cells.look(self._notes, UNFINISHED_KEY)):
            intent = await self._intent(key)
            if intent is not None and not intent.is_done and intent.topic == topic.topic:
                keys.append(key)
        running = [self._running[key] for key in keys if key in self._running]
        if running:
            await asyncio.wait(running, timeout=self._left(deadline))
            return
        trouble = await self._finishing.go_through(keys, self._left(deadline))
        if trouble is not None:
            raise trouble

    # -- parts --------------------------------------------------------------------------------

    @property
    def _notes(self) -> TopicManifest:
        return self._cluster.topic(PUBLISH_TOPIC)

    async def _intent(self, key: bytes) -> Intent | None:
        value = await self._cells.look(self._notes, key)
        return None if value is None else decode_intent(value)

    def _deadline(self, stages: Sequence[int]) -> float:
        return self._loop.time() + _PUBLISH_SECONDS + len(stages) * _STAGE_SECONDS

    def _left(self, deadline: float) -> float:
        left = deadline - self._loop.time()
        if left <= 0:
            raise DeadlineExceeded("the publication took too long; it will be finished later")
        return left

    async def close(self) -> None:
        await self._finishing.close()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _not_done(intent: Intent, error: LogError) -> LogError:
    """What a definite error is once a publication was begun, for its caller or the next one's."""
    text = (
        f"batch {intent.batch} of this writer is begun and not done yet: {error}; it is finished "
        "as soon as that can be: publish again to see"
    )
    return LeaderLost(text) if isinstance(error, PASSING) else PartlyAppended(text)


def _check_versions(versions: Sequence[int], boundary: int) -> None:
    for version in versions:
        if version <= boundary:
            raise StaleWrite(
                f"write version {version} is not above the GC boundary {boundary}: "
                "write with a newer version"
            )
