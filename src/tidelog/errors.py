"""One exception tree, ordered by what the caller may do about it.

``definite`` says whether the operation certainly did not happen.  A broken
invariant is not in this tree (see ``invariants``): it stops the process.
"""

from __future__ import annotations

from typing import ClassVar


class LogError(Exception):
    """Base of all errors that Tidelog raises on purpose."""

    definite: ClassVar[bool] = True


class Rejected(LogError):
    """The request was refused as it stands; nothing changed."""


class BadEntry(Rejected):
    """An entry is not well formed (kind without its key, number out of range, ...)."""


class KeyTooLarge(BadEntry):
    """A key is longer than ``limits.KEY_BYTES_MAX``."""


class ValueTooLarge(BadEntry):
    """A value is longer than ``limits.VALUE_BYTES_MAX``."""


class BatchTooLarge(Rejected):
    """A batch has too many entries or bytes; send it in parts."""


class BadOption(Rejected):
    """An option has a value that the log cannot work with."""


class UnknownTopic(Rejected):
    """There is no topic of that name."""


class TopicExists(Rejected):
    """A topic of that name exists already."""


class UnknownStream(Rejected):
    """The topic has no log stream of that number."""


class UnknownBlob(Rejected):
    """The topic has no BLOB of that id: it was never put, not as a whole, or was deleted."""


class RevisionConflict(Rejected):
    """A stream's metadata changed since it was read; the message has the current revision."""


class ReplicasBehind(Rejected):
    """Too few replicas of a new ensemble know the stream's cuts; try again when they caught up."""


class OutOfRange(Rejected):
    """A position was asked for that the log has not reached yet."""


class Trimmed(Rejected):
    """The position was trimmed; ``first_available`` is the first one that was not."""

    def __init__(self, message: str, *, first_available: int) -> None:
        super().__init__(message)
        self.first_available = first_available


class MissedDeletes(Rejected):
    """Compaction dropped deletes that a table had not read; the message says what to do."""


class PlanRefused(Rejected):
    """A compaction plan does not fit to the log stream as it is here; nothing was done."""


class StaleWrite(Rejected):
    """An explicit write version lies at or below the GC boundary."""


class ProducerConflict(Rejected):
    """A producer's sequence was used before, for something else or too long ago."""


class Busy(Rejected):
    """A bound was reached; try again after a pause."""


class WrongState(Rejected):
    """The call does not fit to what was called before; the message says what is missing."""


class Sealed(Rejected):
    """The log stream takes no appends any more; nothing was done."""


class NotLeader(Rejected):
    """The node does not lead the log stream; nothing was done.

    ``leader`` is the address of the node that leads, as far as is known.
    """

    def __init__(self, message: str, *, leader: str = "") -> None:
        super().__init__(message)
        self.leader = leader


class OutOfOrder(Rejected):
    """The append before this one has not arrived; nothing was done: send both again, in order."""


class DeadlineExceeded(LogError):
    """The call's deadline passed; an append may still take effect."""

    definite = False


class LogClosed(LogError):
    """The log was closed."""


class LogLocked(LogError):
    """Another process has the log open."""


class NotALog(LogError):
    """The directory holds something else than a log, or another log."""


class DiskFull(LogError):
    """The disk had no room; nothing was written that readers could see."""


class ReadOnly(LogError):
    """The directory cannot be written to."""


class StorageFailed(LogError):
    """A write or fsync failed; the log stopped and must be opened again.

    Never retried in place: after a failed fsync the kernel may have dropped the data and
    report success next time.  Whether the last appends survive shows when it is opened again.
    """

    definite = False


class CorruptData(LogError):
    """Bytes do not match their checksum or structure; never taken for the end of a log."""


class UnsupportedVersion(CorruptData):
    """The bytes were written by a format version that this program does not know."""


class BadFrame(LogError):
    """The peer sent bytes that are no message of the protocol; the connection was closed."""


class WrongLog(LogError):
    """The node serves another log than the one that was asked for."""


class BadAddress(Rejected):
    """An endpoint or URL is not written as it should be."""


class Unreachable(LogError):
    """No connection to the node could be made; nothing was sent."""


class ConnectionLost(LogError):
    """The connection broke while the answer was awaited; the request may have taken effect."""

    definite = False


class LeaderLost(LogError):
    """The log stream's leader was deposed while the append was under way; it may take effect."""

    definite = False


class PartlyAppended(LogError):
    """An append to several log streams, or a publication, failed for a part of it, not for all."""

    definite = False


class WrongCluster(LogError):
    """The node belongs to another cluster, or the directory to another node."""


class StageExpired(Rejected):
    """Staged batches are not there any more: stage and publish them again."""


class Unavailable(LogError):
    """Something that this machine lacks is needed; the message says what to install."""


class Unauthorized(Rejected):
    """The peer did not show a token or certificate that is known here."""


class ReplicaRefused(Rejected):
    """A replica answered with an error; ``code`` is its ``ErrorCode``."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class ReplicationFailed(LogError):
    """A replica is lost, so the datastore has stopped; what was STORED is safe on this side."""

    definite = False
