"""What ``archive`` tells while it runs and when it ends."""

from __future__ import annotations

import msgspec


class ArchiveProgress(msgspec.Struct, frozen=True):
    """Some more files are part of the archive."""

    glsn_begin: int
    glsn_end: int
    glsn_last: int
    """Where the run will end."""
    files: int
    rows: int
    size: int
    """Bytes of the files."""
    seconds: float


class ArchiveSummary(msgspec.Struct, frozen=True):
    """What a run did, and what the archive holds now."""

    topic: str
    directory: str
    archive_begin: int
    """The first GLSN of the archive."""
    glsn_begin: int
    """Where the run went on."""
    glsn_end: int
    """The first GLSN that is not archived."""
    files: int
    """Files that the run added."""
    rows: int
    size: int
    missing: int
    """Positions of the run without an entry: compacted away before, or never shown to readers."""
    missed_before: int
    """Deletes below this GLSN may be missing from the archive; 1 if none is."""
    leftovers: int
    """Files that an interrupted run had left behind; they were removed."""
    archive_files: int
    archive_rows: int
    archive_size: int
    first_available: int
    """The first GLSN that the log itself has, after it was trimmed if that was asked for."""
    kept_for_keys: bool
    """The log was not trimmed as far as it could be, for entries with keys come next."""
    seconds: float
