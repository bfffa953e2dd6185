"""Positions that are stored while the disk is slow: of two that saw the same, one gets its way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.embedded.logs import (
    INLINE,
    WAIT_SECONDS,
    gated,
    open_sim,
    wait_for_queued,
)
from tidelog.errors import Busy, DeadlineExceeded, RevisionConflict
from tidelog.interface.positions import NamedPosition
from tidelog.testing.disk import SimDisk


def test_nobody_looks_before_a_position_that_took_too_long_shows() -> None:
    """Whoever looked before it has landed would store over it without having seen it."""
    vfs, gate = gated(SimDisk())
    options = replace(INLINE, append_timeout_seconds=0.5)

    with open_sim(SimDisk(), vfs=vfs, options=options) as log, ThreadPoolExecutor(3) as pool:
        log.store_position("reader", 1, expected=0)
        with gate.shut():
            # The second append leads the group that the position is in.
            pool.submit(log.append, b"first", timeout=WAIT_SECONDS)
            gate.wait_until_held()
            pool.submit(log.append, b"second", timeout=WAIT_SECONDS)
            wait_for_queued(log, 1)
            stored = pool.submit(log.store_position, "reader", 10, expected=1)
            wait_for_queued(log, 2)
            gate.let_pass(1)
            with pytest.raises(DeadlineExceeded):
                stored.result(WAIT_SECONDS)
            with pytest.raises(Busy, match="still being written"):
                log.store_position("reader", 20, expected=1)
            later = pool.submit(log.store_position, "reader", 20, expected=1)
        with pytest.raises((RevisionConflict, Busy)):
            later.result(WAIT_SECONDS)
        assert log.position_of("reader") == NamedPosition(10, 2)
        assert log.store_position("reader", 20, expected=2) == NamedPosition(20, 3)
