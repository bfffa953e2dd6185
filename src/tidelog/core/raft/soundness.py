"""Which messages no sound node sends: numbers out of range, entries that do not join.  No state.

A peer may be broken, or of another version; whatever it sends, it must not break this node.  What
contradicts this node's own log is not found here but where the log is compared.
"""

from __future__ import annotations

from tidelog.core.raft.entries import EntryKind, SnapshotHead
from tidelog.core.raft.membership import decode_membership, is_sound
from tidelog.core.raft.messages import (
    AppendAnswer,
    AppendRefusal,
    AppendRequest,
    CommitNotice,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    PreVoteAnswer,
    PreVoteRequest,
    ReadAnswer,
    ReadRequest,
    SnapshotAnswer,
    SnapshotChunk,
    TimeoutNow,
    VoteAnswer,
    VoteRequest,
)
from tidelog.limits import (
    RAFT_CHUNK_BYTES_MAX,
    RAFT_ENTRY_BYTES_MAX,
    RAFT_NUMBER_END,
    RAFT_SNAPSHOT_BYTES_MAX,
)


def is_nonsense(message: Message) -> bool:
    """Whether a message is broken in itself."""
    return not (
        0 < message.term < RAFT_NUMBER_END
        and 0 < message.source < RAFT_NUMBER_END
        and is_sound_message(message)
    )


def is_sound_message(message: Message) -> bool:
    match message:
        case AppendRequest():
            return is_sound_append(message)
        case AppendAnswer():
            return is_number(message.match)
        case Heartbeat():
            return is_number(message.commit) and is_number(message.read_round)
        case CommitNotice():
            return is_number(message.commit)
        case HeartbeatAnswer():
            return is_number(message.read_round)
        case AppendRefusal():
            return is_number(message.previous_index) and is_number(message.hint)
        case SnapshotChunk():
            return is_sound_chunk(message)
        case SnapshotAnswer():
            return is_number(message.index) and is_number(message.received_bytes)
        case PreVoteRequest() | VoteRequest():
            return is_number(message.last_index) and 0 <= message.last_term < message.term
        case ReadRequest():
            return is_number(message.context)
        case ReadAnswer():
            return is_number(message.context) and is_number(message.index)
        case PreVoteAnswer() | VoteAnswer() | TimeoutNow():
            return True


def is_number(number: int) -> bool:
    return 0 <= number < RAFT_NUMBER_END


def is_sound_append(request: AppendRequest) -> bool:
    index, term = request.previous_index, request.previous_term
    if not (is_number(index) and is_number(request.commit) and 0 <= term <= request.term):
        return False
    for entry in request.entries:
        if (
            entry.index != index + 1
            or not term <= entry.term <= request.term
            or len(entry.data) > RAFT_ENTRY_BYTES_MAX
            or (entry.kind is EntryKind.MEMBERSHIP and decode_membership(entry.data) is None)
        ):
            return False
        index, term = entry.index, entry.term
    return True


def is_sound_chunk(chunk: SnapshotChunk) -> bool:
    return (
        is_sound_head(chunk.head)
        and chunk.head.term <= chunk.term
        and chunk.offset >= 0
        and len(chunk.data) <= RAFT_CHUNK_BYTES_MAX
        and chunk.offset + len(chunk.data) <= chunk.total_bytes <= RAFT_SNAPSHOT_BYTES_MAX
    )


def is_sound_head(head: SnapshotHead) -> bool:
    return 0 < head.index < RAFT_NUMBER_END and head.term > 0 and is_sound(head.membership)
