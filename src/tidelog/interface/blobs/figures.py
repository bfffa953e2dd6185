"""What is told of BLOBs: those that there are, and what a collection did.  No state."""

from __future__ import annotations

import msgspec


class BlobInfo(msgspec.Struct, frozen=True, gc=False):
    """One BLOB of a topic."""

    blob: int
    size: int
    """0 unless it is complete."""
    timestamp_us: int
    """When its description was last written, by the clock of who did it."""
    is_complete: bool = True
    """Whether it can be opened; if not, it is being uploaded or deleted, or that broke off."""


class BlobCollection(msgspec.Struct, frozen=True, gc=False):
    """What a collection did, or has done so far."""

    entries: int = 0
    """Entries of the topic that were looked at."""
    kept: int = 0
    """BLOBs that something refers to, or that are too new to say."""
    deleted: int = 0
    """BLOBs that nothing refers to."""
    torn: int = 0
    """Uploads and deletions that had broken off, and of which nothing is left now."""
    bytes: int = 0
    """What the deleted BLOBs had, as far as is known."""
    unreadable: int = 0
    """Entries among the descriptions that are none; they were left alone."""
