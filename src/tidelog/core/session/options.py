"""How a master replicates.  No state."""

from __future__ import annotations

from enum import Enum

import msgspec


class FlushAt(Enum):
    """When entries are made durable."""

    SESSION_END = "session end"
    GROUP_COMMIT = "group commit"
    """With their epoch: fewer syncs, and ``end_session`` does not wait for any."""


class MasterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Each pair of a local and a remote step runs side by side, or one after the other."""

    parallel_append: bool = True
    """The local append and the sending of the entries."""
    parallel_flush: bool = True
    """The local sync and the replicas' one."""
    parallel_commit: bool = True
    """The local epoch write and the replicas' group commit."""
    flush_at: FlushAt = FlushAt.SESSION_END
