"""Every test over sockets runs in the loop of asyncio and in that of uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.security.material import run

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run_in_loop(request: pytest.FixtureRequest) -> Run:
    """Runs the coroutine of a test."""
    if request.param == "asyncio":
        return partial(run, asyncio.new_event_loop)
    return partial(run, pytest.importorskip("uvloop").new_event_loop)
