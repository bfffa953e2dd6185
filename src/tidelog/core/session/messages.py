"""What a master asks its replica, and what the replica answers.  No state.

Every message goes from master to replica, and each has exactly one answer.  The first one on a
connection decides what the connection is: ``SessionBegin`` makes it the control channel of a new
replication session, ``LogChannelCreate`` one of its log channels.

Batches and parts of BLOBs are attached to their message as they lie on disk.  Which error answers
what, and what becomes of the session then: docs/sessions.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final, TypeAlias

import msgspec

SESSION_PROTOCOL: Final = 1
"""Version of the replication protocol itself; both sides must speak the same one."""

Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Word: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""An unsigned number of 64 bits: MessagePack has no longer ones."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]
Secret: TypeAlias = Annotated[str, msgspec.Meta(max_length=256)]
Version128: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
"""A write version, most significant byte first."""


class ErrorCode(IntEnum):
    """Why a request failed.  Numbers are part of the protocol and are never used again."""

    UNEXPECTED_MESSAGE = 1
    """Not a message that may stand here; or bytes that are none."""
    UNSUPPORTED_PROTOCOL = 2
    NOT_SUPPORTED = 3
    """A message that is reserved."""
    WRONG_CONFIGURATION = 10
    """The replica holds the data of another master."""
    WRONG_POSITION = 11
    """Master and replica are at different epochs."""
    SESSION_OPEN = 12
    """There is a session, and its master lives."""
    NO_SESSION = 13
    SESSION_BROKEN = 14
    """Entries may be missing; only a new session helps."""
    BAD_EPOCH = 20
    """A group commit at an epoch that is not beyond the last one."""
    LOG_SESSION_OPEN = 21
    """A group commit at an epoch in which a log channel is still writing."""
    BAD_BOUNDARY = 22
    """The GC boundary would go back."""
    WRONG_SECRET = 30
    TOO_MANY_CHANNELS = 31
    CHANNEL_TAKEN = 32
    NO_CHANNEL = 33
    EPOCH_COMMITTED = 40
    """The epoch of an entry was group-committed before."""
    EPOCH_WENT_BACK = 41
    """The epoch of an entry is below an earlier one of its channel."""
    NO_LOG_SESSION = 42
    """Begin and end of log sessions do not fit one another."""
    BAD_ENTRIES = 43
    """A batch that is damaged, or that does not continue its log channel."""
    BAD_BLOB = 44
    """A part of a BLOB that does not continue it, or an entry without its BLOB."""
    WRITE_FAILED = 50
    """The replica could not write or sync; its session is broken."""


def error_name(code: int) -> str:
    """How an error is called; a newer replica may have others."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """Base of all messages; the tag says which one it is."""


# -- control channel -----------------------------------------------------------------------------


class SessionBegin(_Message, frozen=True, tag=1):
    """Begin a replication session.  The answer is ``SessionBegun``."""

    protocol_version: Natural
    configuration_id: Text
    """Which master this is; a replica that is empty takes on any."""
    epoch: Epoch
    """The master's last group commit; the replica must be at the very same."""
    log_channel_count: Natural
    """How many log channels there may be: their numbers lie below it."""
    stamp: Text = ""
    """Which life of a master made that group commit; empty if there was none."""


class SessionEnd(_Message, frozen=True, tag=2):
    """End the session.  What was not group-committed is dropped."""


class GroupCommit(_Message, frozen=True, tag=3):
    """Make all entries of epochs up to this one durable, then the epoch itself."""

    epoch: Epoch


class GcBoundarySwitch(_Message, frozen=True, tag=4):
    """Of each key, only the newest write at or below this version is needed, and all above."""

    write_version: Version128


class SafeSnapshotSwitch(_Message, frozen=True, tag=5):
    """Reserved: refused with ``NOT_SUPPORTED``."""

    write_version: Version128


# -- log channels --------------------------------------------------------------------------------


class LogChannelCreate(_Message, frozen=True, tag=16):
    """Make this connection log channel ``channel`` of the session with this secret."""

    secret: Secret
    channel: Natural


class LogChannelDispose(_Message, frozen=True, tag=17):
    """The log channel is not used any more; a log session that is open in it is aborted."""


class LogEntryWrite(_Message, frozen=True, tag=18):
    """Append the attached batches, which may be none.

    In this order: a log session begins, batches, it ends or is aborted, flush.  Without ``flush``
    the answer says that the entries were taken; with it, that they are durable.
    """

    epoch: Epoch
    session_begin: bool = False
    session_end: bool = False
    session_abort: bool = False
    """All entries of the log session go, those of earlier messages too."""
    flush: bool = False


class LogChannelFlush(_Message, frozen=True, tag=19):
    """Make durable what was written on this channel."""


class BlobWrite(_Message, frozen=True, tag=20):
    """The attached bytes of a BLOB of ``size`` bytes, from ``offset`` on, in order.

    When the last byte was answered, the BLOB is durable under its final name.
    """

    blob: Word
    offset: Word
    size: Word


# -- answers -------------------------------------------------------------------------------------


class SessionBegun(_Message, frozen=True, tag=32):
    secret: Secret
    """To be shown when log channels are created."""
    boundary: Version128 = bytes(16)
    """The replica's GC boundary: it may have been the master once, and be ahead."""


class Ack(_Message, frozen=True, tag=33):
    """It was done."""

    append_us: Natural = 0
    """How long the replica wrote, apart from syncing."""
    sync_us: Natural = 0
    """How long it synced."""


class Error(_Message, frozen=True, tag=34):
    """It was not done."""

    code: Natural
    """An ``ErrorCode``; a newer replica may have others."""
    message: Text


Request: TypeAlias = (
    SessionBegin
    | SessionEnd
    | GroupCommit
    | GcBoundarySwitch
    | SafeSnapshotSwitch
    | LogChannelCreate
    | LogChannelDispose
    | LogEntryWrite
    | LogChannelFlush
    | BlobWrite
)
Answer: TypeAlias = SessionBegun | Ack | Error
