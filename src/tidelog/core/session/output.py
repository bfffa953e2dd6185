"""What the two cores of a replication session want done.  No state.

Outputs are carried out in the order in which they were handed over.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

import msgspec

from tidelog.core.session.messages import Answer, Request

CONTROL: Final = -1
"""The lane of the control channel; those of log channels are their numbers, from 0."""


class ChannelBatch(msgspec.Struct, frozen=True, gc=False):
    """Entries of one log channel in ``[llsn_begin, llsn_end)``, as they lie on disk (``data``)."""

    llsn_begin: int
    llsn_end: int
    data: bytes | memoryview
    blobs: tuple[int, ...] = ()
    """BLOBs that the entries refer to."""


class Durability(Enum):
    """How safe an epoch is; in this order."""

    STORED = "stored"
    """Durable on the master."""
    PROPAGATED = "propagated"
    """Durable on every replica, too."""


class Notice(msgspec.Struct, frozen=True, gc=False):
    """All epochs up to this one are as safe as that."""

    epoch: int
    durability: Durability


# -- of the master -------------------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a request on a lane of a replica; ``Master.answered`` is told of the answer."""

    replica: int
    lane: int
    message: Request
    batches: tuple[ChannelBatch, ...] = ()


class SendBlob(msgspec.Struct, frozen=True, gc=False):
    """Send a BLOB on a lane of a replica, all its parts, and await their answers."""

    replica: int
    lane: int
    blob: int


class AppendLocally(msgspec.Struct, frozen=True, gc=False):
    """Hand batches to the local store, then tell ``stored``; they need not be durable."""

    lane: int
    epoch: int
    batches: tuple[ChannelBatch, ...]
    ticket: int


class FlushLocally(msgspec.Struct, frozen=True, gc=False):
    """Make durable what was appended on this lane, then tell ``Master.stored``."""

    lane: int
    ticket: int


class CutLocally(msgspec.Struct, frozen=True, gc=False):
    """A log session was aborted: its entries, from ``llsn_end`` on, go; then tell ``stored``."""

    lane: int
    llsn_end: int
    ticket: int


class RecordLocally(msgspec.Struct, frozen=True, gc=False):
    """Make durable all entries of epochs up to this one and the epoch, then tell ``stored``."""

    epoch: int
    ticket: int


class SetBoundaryLocally(msgspec.Struct, frozen=True, gc=False):
    """Store the GC boundary, then tell ``Master.stored``."""

    version: int
    ticket: int


MasterOutput: TypeAlias = (
    Send | SendBlob | AppendLocally | FlushLocally | CutLocally | RecordLocally | SetBoundaryLocally
)


# -- of the replica ------------------------------------------------------------------------------


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Answer the request that is open on a connection, and read its next one."""

    connection: int
    answer: Answer


class Hang(msgspec.Struct, frozen=True, gc=False):
    """Close a connection once what was said on it is sent."""

    connection: int


class Prepare(msgspec.Struct, frozen=True, gc=False):
    """Make the store if there is none, with this id; give it this many log channels; drop all
    entries that were not group-committed.  ``ReplicaSessions.prepared`` is told."""

    ticket: int
    configuration_id: str
    channels: int


class Write(msgspec.Struct, frozen=True, gc=False):
    """On one channel: append, cut back if told so, flush if told so.

    Those of one channel are carried out in their order.
    """

    ticket: int
    channel: int
    epoch: int
    batches: tuple[ChannelBatch, ...] = ()
    cut_to: int | None = None
    """Entries from this LLSN on go."""
    flush: bool = False


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Make durable all entries of epochs up to this one and the epoch."""

    ticket: int
    epoch: int


class SetBoundary(msgspec.Struct, frozen=True, gc=False):
    """Store the GC boundary; compact if that is worth while."""

    ticket: int
    version: int


class WriteBlob(msgspec.Struct, frozen=True, gc=False):
    """Add a part to a BLOB; with the last one it is to be durable under its final name."""

    ticket: int
    channel: int
    blob: int
    offset: int
    size: int
    data: bytes | memoryview


class DropBlob(msgspec.Struct, frozen=True, gc=False):
    """The rest of a BLOB will not come: forget its parts.  Nobody waits for this."""

    channel: int
    blob: int


StoreOutput: TypeAlias = Prepare | Write | Commit | SetBoundary | WriteBlob
ReplicaOutput: TypeAlias = Reply | Hang | DropBlob | StoreOutput
