"""Positions that are stored while the disk is slow: of two that saw the same, one gets its way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.embedded.logs import (
    INLINE,
    WAIT_SECONDS,
    gated,
    noted_waits,
    open_sim,
    wait_for_queued,
    wait_until,
)
from tidelog.errors import Busy, RevisionConflict
from tidelog.interface.positions import NamedPosition
from tidelog.testing.disk import SimDisk


def test_a_position_that_takes_too_long_is_waited_for_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever looked before it has landed would store over it without having seen it."""
    vfs, gate = gated(SimDisk())
    options = replace(INLINE, append_timeout_seconds=1.0)

    with open_sim(SimDisk(), vfs=vfs, options=options) as log, ThreadPoolExecutor(3) as pool:
        log.store_position("reader", 1, expected=0)
        with gate.shut():
            # The second append leads the group that the position is in.
            pool.submit(log.append, b"first", timeout=WAIT_SECONDS)
            gate.wait_until_held()
            pool.submit(log.append, b"second", timeout=WAIT_SECONDS)
            wait_for_queued(log, 1)
            waits = noted_waits(monkeypatch)
            stored = pool.submit(log.store_position, "reader", 10, expected=1)
            wait_for_queued(log, 2)
            gate.let_pass(1)
            wait_until(lambda: len(waits) >= 2, "its deadline has passed, and it still waits")
            with pytest.raises(Busy):
                log.store_position("reader", 20, expected=1)
        assert stored.result(WAIT_SECONDS) == NamedPosition(10, 2)
        with pytest.raises(RevisionConflict):
            log.store_position("reader", 20, expected=1)
        assert log.position_of("reader") == NamedPosition(10, 2)
