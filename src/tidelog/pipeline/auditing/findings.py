"""What an audit finds, and the summary of what it looked at.  No state."""

from __future__ import annotations

from enum import Enum

import msgspec


class FindingKind(Enum):
    """What can be wrong with a log."""

    UNREADABLE = "unreadable"
    """Entries of one replica that do not match their checksum."""
    FILE = "damaged file"
    """A file of one node that is not as it was written."""
    MISSING = "missing entries"
    """Entries that one replica should have and has not."""
    DIVERGED = "diverged replicas"
    """Replicas of one log stream that hold different entries in the same place."""
    ORDER = "GLSNs out of order"
    """A later entry of a log stream with a lower GLSN."""
    DOUBLED = "GLSN given twice"
    MISSING_GLSNS = "missing GLSNs"
    """GLSNs that were given, and that no entry has."""
    CONTEXT = "commit context"
    """A replica whose commit context does not fit to its entries, or to that of another."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is wrong; ranges are half open, and 0, 0 where they mean nothing."""

    kind: FindingKind
    topic: str = ""
    stream: int = 0
    nodes: tuple[int, ...] = ()
    """Whose replicas it is about; of diverged ones, one node of each version."""
    llsn_begin: int = 0
    llsn_end: int = 0
    glsn_begin: int = 0
    glsn_end: int = 0
    file: str = ""
    what: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """Something that could not be looked at, and why."""

    topic: str
    stream: int
    node: int
    why: str


class ReplicaAudit(msgspec.Struct, frozen=True, kw_only=True):
    """One replica, as the audit has read it."""

    topic: str
    stream: int
    node: int
    role: str
    llsn_end: int
    """The first LLSN that was not looked at."""
    entries: int = 0
    bytes: int = 0
    """What its entries took on their way."""
    compacted: int = 0
    """Entries that compaction or trims have taken."""
    lag: int = 0
    """Entries that are ordered and that it does not have yet."""
    version: int = 0
    """The last cut that it applied."""
    files: int = 0
    """Segments that were checked."""
    findings: int = 0


class Cell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of a topic's GLSNs, for plots."""

    glsn_begin: int
    glsn_end: int
    present: int
    doubled: int = 0


class TopicAudit(msgspec.Struct, frozen=True, kw_only=True):
    """The total order of one topic."""

    topic: str
    streams: tuple[int, ...]
    high_watermark: int
    dense_from: int
    """From this GLSN on each must be there; below it compaction or trims may have taken some."""
    present: int
    """GLSNs that some entry has."""
    cells: tuple[Cell, ...] = ()
    has_removed_streams: bool = False
    """Their GLSNs are gaps, and no damage."""


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All that an audit has to say."""

    log_id: str
    began_us: int
    seconds: float
    nodes: tuple[int, ...]
    topics: tuple[TopicAudit, ...]
    replicas: tuple[ReplicaAudit, ...]
    findings: tuple[Finding, ...]
    findings_more: int = 0
    """Findings that are not listed: there were too many."""
    left_out: tuple[LeftOut, ...] = ()
    wal_files: int = 0
    """Files of write-ahead logs that were checked."""
    report: str = ""
    """Where the report was written to."""

    @property
    def is_sound(self) -> bool:
        """Whether all that was looked at is as it should be."""
        return not self.findings

    @property
    def is_complete(self) -> bool:
        """Whether every replica could be looked at."""
        return not self.left_out

    @property
    def entries(self) -> int:
        """Of all replicas together."""
        return sum(replica.entries for replica in self.replicas)

    @property
    def bytes(self) -> int:
        return sum(replica.bytes for replica in self.replicas)


class AuditProgress(msgspec.Struct, frozen=True):
    """Told while the audit runs."""

    step: str
    """``plan``, ``read``, ``order`` or ``look closer``."""
    what: str
