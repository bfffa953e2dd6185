"""What ``tidelog doctor`` finds about a directory and this machine.  No state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.cli.output import size_text
from tidelog.interface.cluster_figures import ClusterFinding, Severity
from tidelog.interface.cluster_health import (
    DISK_SHARE_EMPTY,
    DISK_SHARE_LOW,
    OPEN_FILES,
    SYNC_SECONDS,
)
from tidelog.storage.machine_facts import DiskRoom, disk_room, open_files, sync_seconds

SYNCS: Final = 50
UNREAL_SYNC_SECONDS: Final = 0.000_005
"""No disk is as fast as this: what was written lies in memory."""


def check_directory(path: str) -> tuple[list[str], tuple[ClusterFinding, ...]]:
    """Facts, and what is wrong with them."""
    times = sorted(sync_seconds(path, SYNCS))
    middle, slow = times[len(times) // 2], times[len(times) * 95 // 100]
    room = disk_room(path)
    facts = [
        f"a sync takes {1e6 * middle:,.0f} us (p95 {1e6 * slow:,.0f} us) in {path}",
        f"{size_text(room.free)} of {size_text(room.total)} are free there",
    ]
    findings = (*_sync(path, middle, slow), *_room(path, room), *_limits())
    return facts, findings


def _sync(path: str, middle: float, slow: float) -> Iterator[ClusterFinding]:
    if middle < UNREAL_SYNC_SECONDS:
        yield ClusterFinding(
            Severity.WARNING,
            f"syncs in {path} cost nothing: what is acknowledged may not survive a power loss",
            "use a directory on a disk, not in memory",
        )
    elif slow > SYNC_SECONDS:
        yield ClusterFinding(
            Severity.WARNING,
            f"syncs in {path} take up to {1000 * slow:.0f} ms",
            "use a faster disk for the data, one with a protected write cache, or not a shared one",
        )


def _room(path: str, room: DiskRoom) -> Iterator[ClusterFinding]:
    share = room.free / room.total if room.total else 1.0
    if share < DISK_SHARE_LOW:
        yield ClusterFinding(
            Severity.ERROR if share < DISK_SHARE_EMPTY else Severity.WARNING,
            f"the disk of {path} has {100 * share:.1f} % left",
            "trim or compact topics, or add room",
        )


def _limits() -> Iterator[ClusterFinding]:
    limit = open_files().limit
    if 0 < limit < OPEN_FILES:
        yield ClusterFinding(
            Severity.WARNING,
            f"processes started here may open {limit} files",
            f"raise the limit to {OPEN_FILES} at least (`ulimit -n`, LimitNOFILE= of systemd)",
        )
