"""Lets many requests wait for topics to grow on this node, and knows where cuts ended.

The storage node tells of new entries; whoever waits is looked at once for each telling.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.embedded.cut_ends import CutEnds
from tidelog.runtime.gateway.surroundings import Replicas
from tidelog.types import StreamId, TopicId

_WATCHED_MAX: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    topic: int
    streams: tuple[int, ...]
    end: int
    reached: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class _Watched:
    streams: tuple[int, ...]
    """Those of a topic that are here."""
    cuts: CutEnds


class Tides:
    """Belongs to one event loop."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._loop = asyncio.get_running_loop()
        self._waiters: set[_Waiter] = set()
        self._watched: dict[int, _Watched] = {}
        """Topics of which somebody wants to know where cuts end, the latest last."""
        self._stopped = False
        self._stop_listening = replicas.listen(self._look)

    def end(self, topic: int, streams: Sequence[int]) -> int | None:
        """The first GLSN that may not be shown; None if a stream cannot be read here."""
        return self._replicas.readable_end(TopicId(topic), [StreamId(stream) for stream in streams])

    async def wait_for(
        self, topic: int, streams: tuple[int, ...], end: int, seconds: float
    ) -> bool:
        """Wait until everything before ``end`` can be read here; False if that took too long."""
        if self._reaches(topic, streams, end):
            return True
        if self._stopped or seconds <= 0:
            return False
        self._hasten()
        waiter = _Waiter(topic, streams, end, self._loop.create_future())
        self._waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter.reached, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
        return self._reaches(topic, streams, end)

    def cut_ends(self, topic: int, streams: tuple[int, ...]) -> CutEnds | None:
        """Where cuts of a topic ended, since somebody first asked for them."""
        known = self._watched.pop(topic, None)
        if known is None or known.streams != streams:
            end = self.end(topic, streams)
            if end is None:
                return None
            known = _Watched(streams, CutEnds(end))
        self._watched[topic] = known
        if len(self._watched) > _WATCHED_MAX:
            del self._watched[next(iter(self._watched))]
        return known.cuts

    def stop(self) -> None:
        """Let all who wait go, and nobody wait from now on."""
        self._stopped = True
        self._stop_listening()
        for waiter in self._waiters:
            if not waiter.reached.done():
                waiter.reached.set_result(None)

    def _hasten(self) -> None:
        """What is waited for may be ordered, and wait for company on its way to the disk."""
        self._replicas.hasten_order()

    def _reaches(self, topic: int, streams: tuple[int, ...], end: int) -> bool:
        found = self.end(topic, streams)
        return found is not None and found >= end

    def _look(self) -> None:
        ends: dict[tuple[int, tuple[int, ...]], int | None] = {}
        for waiter in self._waiters:
            key = (waiter.topic, waiter.streams)
            if key not in ends:
                ends[key] = self.end(*key)
            found = ends[key]
            if found is None or found < waiter.end:
                self._hasten()
            elif not waiter.reached.done():
                waiter.reached.set_result(None)
        for topic, watched in list(self._watched.items()):
            key = (topic, watched.streams)
            found = ends[key] if key in ends else self.end(*key)
            if found is None:
                del self._watched[topic]  # A replica left: where cuts end is not known any more.
            elif found > watched.cuts.last:
                watched.cuts.add(found)
