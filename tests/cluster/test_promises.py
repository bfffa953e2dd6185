"""Every promise of docs/guarantees.md names tests that guard it, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
PROMISE = re.compile(r"^\*\*(G\d+)\.", re.MULTILINE)
GUARD = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_guards_a_promise_exists() -> None:
    guards = GUARD.findall(PAGE.read_text(encoding="utf-8"))
    assert guards
    for path, name in guards:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), f"{path}::{name}"


def test_every_promise_is_guarded_by_a_test() -> None:
    """Promises that stand together before a list of tests share it."""
    text = PAGE.read_text(encoding="utf-8")
    numbers = PROMISE.findall(text)
    assert numbers == [f"G{number}" for number in range(1, len(numbers) + 1)]
    for section in text.split("\n## ")[1:]:
        promises = list(PROMISE.finditer(section))
        if promises:
            assert GUARD.search(section, promises[-1].end()), f"{promises[-1][1]} has no test"
