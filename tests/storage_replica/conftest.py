"""The tests of this directory run without chance and clock, so that crashes can be repeated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.repeatable import repeatable


@pytest.fixture(autouse=True)
def _no_chance() -> Iterator[None]:
    with repeatable():
        yield
