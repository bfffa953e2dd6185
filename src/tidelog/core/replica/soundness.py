"""Which messages no sound node sends: numbers out of range, batches that do not join.  No state.

A peer may be broken, or of another version; whatever it sends, it must not break this replica.
What contradicts this replica's own log is not found here but where the logs are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tidelog.core.replica.commit_context import CommitContext, flaw_in_context
from tidelog.core.replica.entries import Batch, EntryId, GlsnRun
from tidelog.core.replica.messages import (
    AddEntriesRefusal,
    AddEntriesRequest,
    AddEntriesResponse,
    AddFollowerRequest,
    BecomeLeaderRequest,
    CommitRequest,
    CutsRequest,
    CutsResponse,
    FollowerHead,
    PrepareRequest,
    Refusal,
    SnapshotRequest,
    SyncEntriesRequest,
    SyncEntriesResponse,
    SyncInitRequest,
    SyncInitResponse,
    ToReplica,
    TruncateRequest,
    TruncateResponse,
)
from tidelog.limits import (
    BATCH_BODY_BYTES_MAX,
    BATCH_ENTRIES_MAX,
    ENSEMBLE_NODES_MAX,
    ORDER_NUMBER_END,
    WORD_END,
)
from tidelog.types import FIRST_LLSN, NO_NODE, Llsn, NodeId, Term


def is_nonsense(message: ToReplica) -> bool:
    """Whether a message is broken in itself."""
    return not (
        NO_NODE < message.source < ORDER_NUMBER_END
        and 0 < message.term < ORDER_NUMBER_END
        and is_sound_message(message)
    )


def is_sound_message(message: ToReplica) -> bool:
    match message:
        case AddEntriesRequest() | AddEntriesResponse() | AddEntriesRefusal():
            return is_sound_replication(message)
        case TruncateRequest() | TruncateResponse():
            return is_sound_truncation(message)
        case BecomeLeaderRequest():
            return is_sound_election(message)
        case AddFollowerRequest():
            return is_sound_head(message.follower, message.term)
        case PrepareRequest() | CommitRequest():
            return is_number(message.old) and is_number(message.new)
        case SnapshotRequest():
            is_sound = is_reign(message.reign, message.term) and is_id(message.head, message.term)
            return is_sound and is_number(message.version)
        case SyncInitRequest() | SyncInitResponse() | SyncEntriesRequest() | SyncEntriesResponse():
            return is_sound_part(message)
        case CutsRequest():
            return message.llsn_end >= FIRST_LLSN and is_number(message.version)
        case CutsResponse():
            is_sound = are_sound_runs(message.runs) and flaw_in_context(message.context) is None
            return is_sound and message.asked >= FIRST_LLSN
        case Refusal():
            return is_number(message.known_term)
        case _:
            return True


def is_sound_replication(
    message: AddEntriesRequest | AddEntriesResponse | AddEntriesRefusal,
) -> bool:
    match message:
        case AddEntriesRequest():
            return is_sound_append(message)
        case AddEntriesResponse():
            return is_number(message.confirmed)
        case AddEntriesRefusal():
            return is_id(message.previous, message.term) and is_id(message.head, message.term)


def is_sound_truncation(message: TruncateRequest | TruncateResponse) -> bool:
    if isinstance(message, TruncateResponse):
        return is_id(message.head, message.term)
    return (
        is_reign(message.reign, message.term)
        and is_id(message.head, message.term)
        and is_id(message.cut, message.term)
    )


def is_sound_part(
    message: SyncInitRequest | SyncInitResponse | SyncEntriesRequest | SyncEntriesResponse,
) -> bool:
    match message:
        case SyncInitRequest():
            return is_sound_init(message)
        case SyncInitResponse():
            return (
                is_number(message.number)
                and is_place(message.begin)
                and is_place(message.ordered_end)
            )
        case SyncEntriesRequest():
            return is_sound_entries(message)
        case SyncEntriesResponse():
            return is_number(message.number) and is_place(message.end)


def is_place(llsn: Llsn) -> bool:
    return FIRST_LLSN <= llsn < ORDER_NUMBER_END


def is_number(number: int) -> bool:
    return 0 <= number < ORDER_NUMBER_END


def is_reign(reign: Term, term: Term) -> bool:
    return 0 < reign <= term


def is_id(entry: EntryId, term: Term) -> bool:
    """Whether an id may be that of an entry, or of none, in a term."""
    if not (0 <= entry.term <= term and is_number(entry.llsn)):
        return False
    return (entry.term == 0) == (entry.llsn == 0)


def is_sound_append(request: AddEntriesRequest) -> bool:
    return (
        is_reign(request.reign, request.term)
        and is_id(request.previous, request.term)
        and is_number(request.commit)
        and are_sound_batches(request.batches, request.previous, request.term)
        and all_abut(request.batches, request.previous.llsn + 1)
    )


def are_sound_batches(batches: Sequence[Batch], previous: EntryId, term: Term) -> bool:
    """Whether batches come after an entry, in order, and are such as a leader writes."""
    end, written = previous.llsn + 1, previous.term
    for batch in batches:
        if (
            batch.llsn_begin < end
            or not 1 <= batch.count <= BATCH_ENTRIES_MAX
            or batch.llsn_end >= ORDER_NUMBER_END
            or not max(written, 1) <= batch.term <= term
            or len(batch.data) > BATCH_BODY_BYTES_MAX
            or not (0 <= batch.producer < WORD_END and is_number(batch.sequence))
            or (batch.producer > 0) != (batch.sequence > 0)
            or (batch.is_control and batch.count != 1)
        ):
            return False
        end, written = batch.llsn_end, batch.term
    return True


def all_abut(batches: Sequence[Batch], begin: int) -> bool:
    """Whether batches follow one another from a place on without gap."""
    for batch in batches:
        if batch.llsn_begin != begin:
            return False
        begin = batch.llsn_end
    return True


def is_sound_election(request: BecomeLeaderRequest) -> bool:
    others = [follower.node for follower in request.followers]
    return (
        is_ensemble(request.ensemble)
        and len(set(others)) == len(others)
        and set(others) <= set(request.ensemble) - {request.target}
        and all(is_sound_head(follower, request.term) for follower in request.followers)
    )


def is_ensemble(nodes: tuple[NodeId, ...]) -> bool:
    return (
        1 <= len(nodes) <= ENSEMBLE_NODES_MAX
        and len(set(nodes)) == len(nodes)
        and all(NO_NODE < node < ORDER_NUMBER_END for node in nodes)
    )


def is_sound_head(follower: FollowerHead, term: Term) -> bool:
    return NO_NODE < follower.node < ORDER_NUMBER_END and is_id(follower.head, term)


def is_sound_init(request: SyncInitRequest) -> bool:
    context = request.context
    return (
        is_reign(request.reign, request.term)
        and 1 <= request.number < ORDER_NUMBER_END
        and is_id(request.head, request.term)
        and flaw_in_context(context) is None
        and 1 <= request.first <= context.llsn_end <= request.head.llsn + 1
        and 0 <= request.snapshot_index < context.llsn_end
        and are_sound_terms(request.terms, request.head)
    )


def are_sound_terms(terms: Sequence[tuple[Term, Llsn]], head: EntryId) -> bool:
    """Whether terms and the places where they begin rise, up to the head."""
    rising = all(a < b and c < d for (a, c), (b, d) in pairwise(terms))
    within = all(term >= 1 and FIRST_LLSN <= begin <= head.llsn for term, begin in terms)
    return rising and within and (terms[-1][0] if terms else 0) == head.term


def is_sound_entries(request: SyncEntriesRequest) -> bool:
    before = EntryId(Term(0), Llsn(request.begin - 1))
    return (
        is_reign(request.reign, request.term)
        and is_number(request.number)
        and is_place(request.begin)
        and request.begin <= request.end < ORDER_NUMBER_END
        and are_sound_batches(request.batches, before, request.term)
        and all(batch.llsn_end <= request.end for batch in request.batches)
        and are_sound_runs(request.runs)
        and (request.context is None or is_sound_context(request.context))
    )


def is_sound_context(context: CommitContext) -> bool:
    return flaw_in_context(context) is None


def are_sound_runs(runs: Sequence[GlsnRun]) -> bool:
    """Whether runs rise in both numbers."""
    llsn = glsn = 1
    for run in runs:
        if run.llsn_begin < llsn or run.glsn_begin < glsn or run.length < 1:
            return False
        llsn, glsn = run.llsn_end, run.glsn_begin + run.length
    return glsn < ORDER_NUMBER_END and llsn < ORDER_NUMBER_END
