"""Looks at the newest metadata, each for all who came before it began.  Belongs to one event loop.

Invariants:
  K1  nobody gets an answer that was asked for before he came
  K2  one look is under way, and at most one waits
"""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from tidelog.core.metadata.view import MetadataView
from tidelog.errors import DeadlineExceeded, LogClosed, LogError
from tidelog.runtime.gateway.surroundings import Metadata

_Look: TypeAlias = "asyncio.Task[MetadataView | LogError]"


class SharedLooks:
    """A read of each key has to know how far its topic goes, and the metadata has one answer."""

    def __init__(self, metadata: Metadata, *, seconds: float) -> None:
        """A look that takes longer than ``seconds`` finds nothing."""
        self._metadata = metadata
        self._seconds = seconds
        self._last: _Look | None = None
        """The last one that began."""
        self._next: _Look | None = None
        self._is_closed = False

    async def look(self, seconds: float) -> MetadataView:
        """A view with all that was answered before; DeadlineExceeded if none came."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._look_after(self._last))
        try:
            async with asyncio.timeout(min(seconds, self._seconds)):
                found = await asyncio.shield(self._next)
        except TimeoutError:
            raise DeadlineExceeded("the metadata repository told nothing in time") from None
        if isinstance(found, LogError):
            raise found
        return found

    async def close(self) -> None:
        """End all looks; whoever waits for one is told so."""
        self._is_closed = True
        looks = [look for look in (self._last, self._next) if look is not None]
        if self._last is not None:
            self._last.cancel()
        await asyncio.gather(*looks)

    async def _look_after(self, last: _Look | None) -> MetadataView | LogError:
        try:
            if last is not None:
                await asyncio.wait((last,))
            self._last, self._next = self._next, None  # K1: who comes from here on needs another.
            if self._is_closed:
                return LogClosed("the node stops")
            return await self._metadata.read(seconds=self._seconds)
        except LogError as error:
            return error
        except asyncio.CancelledError:
            return LogClosed("the node stops")
