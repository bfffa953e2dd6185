"""What enough replicas of a stream have in common.  No state."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.core.order.commands import Quorum
from tidelog.core.order.state import ReplicaOrder
from tidelog.types import Llsn, Version


def durable_end(replicas: Sequence[ReplicaOrder], quorum: Quorum) -> Llsn:
    """How far the write quorum has the stream durable in its term; 0 if too few say anything."""
    ends = sorted([replica.end for replica in replicas])
    return ends[0 if quorum is Quorum.ALL else _lowest_of_majority(len(ends))]


def applied_version(replicas: Sequence[ReplicaOrder]) -> Version:
    """The highest cut that a majority knows: whatever majority is fenced, one of it knows it."""
    versions = sorted([replica.version for replica in replicas])
    return versions[_lowest_of_majority(len(versions))]


def surviving_version(replicas: Sequence[ReplicaOrder]) -> Version:
    """The highest cut that more replicas know than may fail while a majority is left."""
    versions = sorted([replica.version for replica in replicas])
    return versions[len(versions) // 2]


def _lowest_of_majority(count: int) -> int:
    """Which of ``count`` ascending values is the lowest of the highest ``count // 2 + 1``."""
    return (count - 1) // 2
