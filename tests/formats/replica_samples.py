"""One message of each kind that replicas and operators send, with all its fields set."""

from __future__ import annotations

from tidelog.core.order.commands import Quorum
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import (
    AbortRequest,
    AbortResponse,
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    AddFollowerResponse,
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    CommitRequest,
    CommitResponse,
    CutsRequest,
    CutsResponse,
    DropRequest,
    DropResponse,
    FenceRequest,
    FenceResponse,
    FollowerHead,
    Message,
    PrepareRequest,
    PrepareResponse,
    Reason,
    Refusal,
    Role,
    SnapshotRequest,
    SnapshotResponse,
    StatusRequest,
    StatusResponse,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    SyncRequest,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.types import Llsn, NodeId, ProducerId, StreamId, Term, Version

SOURCE, TARGET, STREAM = NodeId(2), NodeId(1), StreamId(70)
_AT = (SOURCE, TARGET, STREAM, Term(9))
_TWO, _THREE = NodeId(2), NodeId(3)


def entry(term: int, llsn: int) -> EntryId:
    return EntryId(Term(term), Llsn(llsn))


HEAD = entry(8, 1 << 40)
CONTEXT = CommitContext(version=5, high_watermark=100, glsn_begin=90, llsn_begin=11, length=3)
RUNS = (GlsnRun(Llsn(11), 90, 2), GlsnRun(Llsn(13), 99, (1 << 64) - 1))
BATCHES = (
    Batch(Term(8), Llsn(11), 2, b"first", ProducerId(77), 4),
    Batch(Term(9), Llsn(13), 1, b"", is_control=True),
    Batch(Term(9), Llsn(14), 1 << 20, b"third" * 100),
)

SAMPLES: tuple[Message, ...] = (
    FenceRequest(*_AT, is_first=True),
    FenceResponse(*_AT, HEAD, False, Version(4), entry(7, 3)),
    BecomeLeaderRequest(
        *_AT, (TARGET, _TWO, _THREE), Quorum.ALL, (FollowerHead(_TWO, HEAD, True),)
    ),
    BecomeLeaderResponse(*_AT),
    AddFollowerRequest(*_AT, FollowerHead(_THREE, HEAD, False)),
    AddFollowerResponse(*_AT, _THREE),
    TruncateRequest(*_AT, Term(8), HEAD, entry(7, 12)),
    TruncateResponse(*_AT, HEAD),
    AddEntriesRequest(*_AT, Term(8), entry(8, 10), BATCHES, Llsn(9)),
    AddEntriesResponse(*_AT, Llsn(14)),
    AddEntriesRefusal(*_AT, HEAD, entry(7, 2), False),
    PrepareRequest(*_AT, ChangeKind.SWAP, _TWO, _THREE),
    PrepareResponse(*_AT, Term(8), HEAD),
    SnapshotRequest(*_AT, Term(8), _TWO, HEAD, Version(3)),
    SnapshotResponse(*_AT, HEAD, Version(3)),
    CommitRequest(*_AT, ChangeKind.EXPAND, _TWO, _THREE, HEAD),
    CommitResponse(*_AT, True),
    AbortRequest(*_AT),
    AbortResponse(*_AT),
    DropRequest(*_AT),
    DropResponse(*_AT),
    StatusRequest(*_AT),
    StatusResponse(
        *_AT, Term(10), Role.LEADER, _TWO, HEAD, True, (TARGET, _TWO), (_TWO,), Version(6)
    ),
    Refusal(*_AT, Term(11), Reason.TERM_PASSED),
    SyncRequest(*_AT),
    SyncInitRequest(
        *_AT, Term(8), 3, Llsn(5), HEAD, CONTEXT, Llsn(4), ((Term(7), Llsn(1)), (Term(8), Llsn(6)))
    ),
    SyncInitResponse(*_AT, 3, Llsn(5), Llsn(6)),
    SyncEntriesRequest(*_AT, Term(8), 3, Llsn(5), Llsn(99), BATCHES, RUNS, CONTEXT, b"state"),
    SyncEntriesResponse(*_AT, 3, Llsn(99)),
    CutsRequest(*_AT, Llsn(14), Version(5)),
    CutsResponse(*_AT, Llsn(9), Llsn(11), RUNS, CONTEXT),
)
