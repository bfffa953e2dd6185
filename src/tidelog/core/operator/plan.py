"""What operators write down about a stream, and the ensembles that follow from it.  No state.

A plan is a part of the stream's row in the metadata repository, so that any operator can go on
where another one stopped.  No bytes at all are the plan of a stream that was just created.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.messages import ChangeKind
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.types import NO_NODE, NO_VERSION, NodeId, Version

FORMAT: Final = 1
Ensemble: TypeAlias = tuple[NodeId, ...]


class Status(Enum):
    """How far a stream is on its way to a leader, or to another ensemble."""

    NEW = 0
    """No leader was ever chosen."""
    ELECTION = 1
    STEADY = 2
    RECONFIGURATION = 3


class Phase(Enum):
    """From *prepare* a reconfiguration goes to *commit* or to *abort*, and never back.

    The leader counts on the old node again when it aborts.  So it must not be asked to while
    somebody may still write *commit*, and that is what *abort* is written for.
    """

    PREPARE = 0
    COMMIT = 1
    ABORT = 2


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A reconfiguration; in *commit*, ``head`` and ``version`` are what the new node has.

    ``head`` is where its log ended, ``version`` the last cut that it knew.
    """

    kind: ChangeKind
    phase: Phase
    old: NodeId = NO_NODE
    new: NodeId = NO_NODE
    head: EntryId = NO_ENTRY
    version: Version = NO_VERSION


class StreamPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``is_first``: an election of a stream that nobody was ever asked to lead.

    A ``change`` in *commit* outlives elections until one completes.
    """

    status: Status
    change: Change | None = None
    is_first: bool = False


NEW: Final = StreamPlan(Status.NEW)
STEADY: Final = StreamPlan(Status.STEADY)


# -- bytes ---------------------------------------------------------------------------------------

_decoder: Final = msgspec.msgpack.Decoder(tuple[int, StreamPlan])


def encode_plan(plan: StreamPlan) -> bytes:
    """Return the bytes for the stream's row."""
    return b"" if plan == NEW else msgspec.msgpack.encode((FORMAT, plan))


def decode_plan(data: bytes) -> StreamPlan:
    """Read the bytes of a row; raise CorruptData if they are no sound plan."""
    if not data:
        return NEW
    try:
        version, plan = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptData(f"a stream's plan cannot be read: {error}") from error
    if version != FORMAT:
        raise UnsupportedVersion(f"a stream's plan has format {version}, not {FORMAT}")
    return plan


def flaw_in_plan(plan: StreamPlan, ensemble: Ensemble, leader: NodeId) -> str | None:
    """Return what is wrong with a plan beside this ensemble and leader, if anything is."""
    change = plan.change
    is_led = plan.status in (Status.STEADY, Status.RECONFIGURATION)
    if is_led and leader not in ensemble:
        return "the leader is not of the ensemble"
    if not is_led and leader != NO_NODE:
        return "a leader without a term of its own"
    if plan.is_first and plan.status is not Status.ELECTION:
        return "only an election can be the first"
    if change is None:
        return "no change" if plan.status is Status.RECONFIGURATION else None
    may_change = plan.status is Status.RECONFIGURATION or (
        plan.status is Status.ELECTION and change.phase is Phase.COMMIT
    )
    if not may_change:
        return "a change that is over"
    return flaw_in_change(change, ensemble, leader)


def flaw_in_change(change: Change, ensemble: Ensemble, leader: NodeId) -> str | None:
    """Return why this change cannot be made to this ensemble, if so."""
    if (change.old != NO_NODE) != (change.kind is not ChangeKind.EXPAND):
        return "an old node is named exactly if one leaves"
    if (change.new != NO_NODE) != (change.kind is not ChangeKind.CONTRACT):
        return "a new node is named exactly if one joins"
    if change.old != NO_NODE and (change.old not in ensemble or change.old == leader):
        return "the old node is a member, and not the leader"
    if change.new in ensemble:
        return "the new node is a member already"
    return None


# -- ensembles -----------------------------------------------------------------------------------


def is_majority(present: Container[NodeId], ensemble: Ensemble) -> bool:
    """Whether more than half of an ensemble are among these nodes."""
    return 2 * len([node for node in ensemble if node in present]) > len(ensemble)


def changed_ensemble(ensemble: Ensemble, change: Change) -> Ensemble:
    """Return the ensemble that a completed reconfiguration leaves behind."""
    members = [node for node in ensemble if node != change.old]
    if change.new != NO_NODE:
        members.append(change.new)
    return tuple(sorted(members))


def counted_ensembles(ensemble: Ensemble, change: Change | None) -> tuple[Ensemble, ...]:
    """Return the ensembles one of which the leader counts on.

    In *commit* it may have been told of the change already, or may not yet.
    """
    if change is None or change.phase is not Phase.COMMIT:
        return (ensemble,)
    return (ensemble, changed_ensemble(ensemble, change))


def fencing_ensemble(ensemble: Ensemble, change: Change | None) -> Ensemble:
    """Return all nodes that may hold acknowledged entries: an election counts among these.

    In *commit* the leader may count on the new node already, or may not yet.
    """
    if change is None or change.phase is not Phase.COMMIT or change.new == NO_NODE:
        return ensemble
    return tuple(sorted((*ensemble, change.new)))


def can_elect(present: Container[NodeId], ensemble: Ensemble, change: Change | None) -> bool:
    """Whether these nodes are enough for an election: they meet all that may be acknowledged.

    Or the old node of a swap and the new one, if both are lost, would stop those who stay.
    """
    return is_majority(present, fencing_ensemble(ensemble, change)) or all(
        is_majority(present, counted) for counted in counted_ensembles(ensemble, change)
    )


def final_ensemble(ensemble: Ensemble, change: Change | None) -> Ensemble:
    """Return the ensemble that an election ends with: the leader is one of it.

    A contraction is rolled back, never completed: what was committed with the old node may be
    on too few of the others.
    """
    if change is None or change.phase is not Phase.COMMIT or change.kind is ChangeKind.CONTRACT:
        return ensemble
    return changed_ensemble(ensemble, change)
