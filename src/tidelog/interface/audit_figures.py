"""What a node tells an audit of itself, as values that serialise well.  No state."""

from __future__ import annotations

import msgspec


class AuditedReplica(msgspec.Struct, frozen=True):
    """A replica as its own node sees it between two writes."""

    topic: str
    stream: int
    first_llsn: int
    """The first LLSN that it has, or the end if it has none."""
    end_llsn: int
    """The first LLSN that it does not have."""
    ordered_end_llsn: int
    settled_index: int
    """Compaction and trims may have taken entries up to here."""
    settled_glsn_end: int
    """The first GLSN that only an entry above ``settled_index`` can have."""
    context: tuple[int, int, int, int, int]
    """Its commit context: version, high watermark, GLSN begin, LLSN begin, length."""
    context_flaw: str = ""
    """What is wrong with that, if anything is."""
    is_complete: bool = True
    """Whether it has all that it ever acknowledged."""
    bytes: int = 0
    """Of its segments."""


class AuditedNode(msgspec.Struct, frozen=True):
    """All replicas of one node, by log stream."""

    node: int
    log_id: str
    replicas: tuple[AuditedReplica, ...]
