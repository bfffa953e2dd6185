"""What the caller's shell says about logs does not reach the tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_log_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_DATA", raising=False)
