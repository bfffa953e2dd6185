"""What a node finds on its disk is what it had written: all that was synced, and no mixture.

Of the writes that were not synced a prefix may be there, each of them whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.raft.entries import Stored
from tidelog.core.raft.output import Write
from tidelog.testing.shadow_log import ShadowLog
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "stored"


def check_stored(
    node: NodeId, stored: Stored, synced: ShadowLog, unsynced: Iterable[Write]
) -> ShadowLog:
    """Check what a node found when it started; return it as a log."""
    found = ShadowLog(stored)
    expected = synced.copy()
    if found.facts() == expected.facts():
        return found
    for write in unsynced:
        expected.apply(write)
        if found.facts() == expected.facts():
            return found
    raise Violation(
        NAME,
        f"node {node} found {found.facts()}, it had synced {synced.facts()}"
        f" and at most written {expected.facts()}",
    )
