"""Mutation tests run without chance and clock, like the crash tests that they use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.repeatable import repeatable


@pytest.fixture(autouse=True)
def _no_chance() -> Iterator[None]:
    with repeatable():
        yield
