"""One message of each kind.  No state."""

from __future__ import annotations

from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    Answer,
    BlobWrite,
    Error,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)

REQUESTS: tuple[Request, ...] = (
    SessionBegin(SESSION_PROTOCOL, "00" * 16, 7, 3),
    SessionEnd(),
    GroupCommit(8),
    GcBoundarySwitch(bytes(15) + b"\x05"),
    SafeSnapshotSwitch(bytes(16)),
    LogChannelCreate("secret", 1),
    LogChannelDispose(),
    LogEntryWrite(8, session_begin=True, session_end=True, flush=True),
    LogChannelFlush(),
    BlobWrite(1, 0, 4096),
)
ANSWERS: tuple[Answer, ...] = (
    SessionBegun("secret"),
    Ack(17, 90),
    Error(ErrorCode.WRONG_SECRET, "no"),
)
