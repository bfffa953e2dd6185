"""The event loop that programs get."""

from __future__ import annotations

import asyncio
import builtins
from typing import Any

import pytest

from tidelog.net.loops import new_loop, run


async def answer() -> tuple[int, str]:
    await asyncio.sleep(0)
    return 42, type(asyncio.get_running_loop()).__module__


def test_a_coroutine_runs_to_its_end() -> None:
    assert run(answer())[0] == 42


def test_the_fast_loop_is_used_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert run(answer())[1].startswith("uvloop")


def test_it_does_without_the_fast_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "uvloop":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    assert run(answer())[1].startswith("asyncio")
    new_loop().close()
