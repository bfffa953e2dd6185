"""Runs a program's coroutine in the fastest event loop that is installed.  No state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop if that is there, else one of asyncio."""
    return loop_factory()()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes event loops; uvloop is an extra (``tidelog[fast]``)."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end, as ``asyncio.run`` does."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
