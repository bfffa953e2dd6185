"""Changes of the metadata that are made from the newest view, and again if others were faster.

No state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from tidelog.core.metadata.commands import Change
from tidelog.core.metadata.view import MetadataView
from tidelog.errors import DeadlineExceeded, RevisionConflict


class Changing(Protocol):
    """What is needed of a ``MetadataClient``."""

    async def ask(self, change: Change, *, seconds: float) -> None: ...

    async def read(self, *, seconds: float) -> MetadataView: ...


async def bring_about(
    metadata: Changing, wish: Callable[[MetadataView], Change | None], *, seconds: float
) -> None:
    """See to it that nothing is left to be asked for, as ``wish`` tells by a view.

    Raises what ``wish`` raises, and any refusal but a conflict.  DeadlineExceeded: it may hold.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        change = wish(await metadata.read(seconds=left(deadline)))
        if change is None:
            return
        try:
            return await metadata.ask(change, seconds=left(deadline))
        except (RevisionConflict, DeadlineExceeded):
            # Somebody was faster, or it is not known whether it was made: the next view tells.
            continue


def left(deadline: float) -> float:
    """How many seconds remain; DeadlineExceeded if none do."""
    remaining = deadline - asyncio.get_running_loop().time()
    if remaining <= 0:
        raise DeadlineExceeded("the metadata repository did not answer in time")
    return remaining
