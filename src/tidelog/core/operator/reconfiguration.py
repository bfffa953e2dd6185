"""One change of a stream's ensemble: swap, expand or contract; begun, or resumed.

Input: answers of the leader and of the new node, outcomes of writes, ticks.  Output: requests to
them, writes of the stream's row.

Invariants:
  G1  it begins in steady state, removes no leader, and is the only one of its stream
  G2  *commit* is written only when the new node has confirmed a snapshot up to the leader's head
      at *prepare*, and knows all cuts that were made before *prepare* was written: the old one may
      be the last to
  G3  the new ensemble is written only when the leader has applied it
  G4  while it waits, missing followers are attached: it may be them that the leader waits for
  G5  a contraction is committed only while the leader and its attached followers are a majority of
      the rest: else nobody could be elected among them
  G6  a contraction is committed only when the leader knows those cuts: what is known of the others
      may be from before their disks were damaged
  G7  the leader is asked to undo it only when nobody can write *commit* any more; it is over when
      the leader has answered
"""

from __future__ import annotations

from enum import Enum

from msgspec.structs import replace

from tidelog.core.operator.options import Ignored, OperatorOptions
from tidelog.core.operator.output import Outbox
from tidelog.core.operator.plan import Change, Ensemble, Phase, is_majority
from tidelog.core.operator.procedure import Ending, Procedure, Suspects
from tidelog.core.operator.requests import address, ask_status
from tidelog.core.operator.row import (
    Row,
    with_aborted,
    with_change_undone,
    with_changed_ensemble,
    with_committed,
    with_prepared,
)
from tidelog.core.operator.tending import fence_missing, tell_leader
from tidelog.core.replica.entries import NO_ENTRY, EntryId
from tidelog.core.replica.messages import (
    AbortRequest,
    AbortResponse,
    ChangeKind,
    CommitRequest,
    CommitResponse,
    FenceResponse,
    PrepareRequest,
    PrepareResponse,
    Reason,
    Refusal,
    Role,
    SnapshotRequest,
    SnapshotResponse,
    StatusResponse,
    ToOperator,
)
from tidelog.types import NO_NODE, NO_VERSION, NodeId, Revision, StreamId, Term, Version


class Stage(Enum):
    """What a reconfiguration waits for."""

    PLAN = "the write of *prepare*"
    PREPARE = "the leader, to prepare"
    SNAPSHOT = "the new node, to synchronise"
    RECORD = "the write of *commit*"
    COMMIT = "the leader, to commit"
    RESULT = "the write of the new ensemble"
    GIVE_UP = "the write of *abort*"
    ABORT = "the leader, to undo it"
    UNDO = "the write of the old ensemble"


class Reconfiguration(Procedure):
    """See the module's text; ``begin`` and ``resume`` make one."""

    __slots__ = (
        "_must_know",
        "_present",
        "_reign",
        "_since",
        "_suspects",
        "_wanted",
        "abort_request",
        "change",
        "is_automatic",
        "stage",
    )

    def __init__(
        self,
        row: Row,
        change: Change,
        options: OperatorOptions,
        outbox: Outbox,
        *,
        known: Term,
        suspects: Suspects,
        request: int | None = None,
    ) -> None:
        super().__init__(row, options, outbox, known, request)
        self.stage = Stage.PLAN
        self.change = change
        self.is_automatic = request is None
        self.abort_request: int | None = None
        """The number of a person's wish to undo it."""
        self._suspects = suspects
        self._reign = row.term
        self._present: tuple[NodeId, ...] = ()
        """The leader, and the followers that it counts on, by its last answer."""
        self._wanted = NO_ENTRY
        """The leader's head at *prepare*: the new node must have all up to it."""
        self._since = Revision(row.revision + 1)
        """From this revision on *prepare* is written: the old node makes no cut known any more."""
        self._must_know: Version | None = None
        """The last cut of the stream, by the first row that was read since then."""

    def begin(self) -> None:
        """Write the plan of a new change (G1)."""
        self._write(with_prepared(self.row, self.change, self.known), self._prepare)

    def resume(self) -> None:
        """Go on with the change that the row has; every request may be repeated."""
        self._has_written = True
        self._since = self.row.revision
        match self.change.phase:
            case Phase.PREPARE:
                self._enter(Stage.PREPARE)
            case Phase.COMMIT:
                self._enter(Stage.COMMIT)
            case Phase.ABORT:
                self._enter(Stage.ABORT)

    def abort(self, request: int | None = None) -> bool:
        """Begin to undo the change; False if it is too late, or not the time (G7)."""
        if self.is_writing or self.abort_request is not None:
            return False
        if self.stage in (Stage.PREPARE, Stage.SNAPSHOT):
            self.stage = Stage.GIVE_UP
            self._write(with_aborted(self.row), self._abort)
        elif self.stage is not Stage.ABORT:
            return False
        self.abort_request = request
        return True

    def note_cut(self, revision: Revision, version: Version) -> None:
        """The row was read, with the last cut of the stream (G2)."""
        if self._must_know is None and revision >= self._since:
            self._must_know = version

    @property
    def leaving(self) -> tuple[NodeId, ...]:
        """The old node of a change, the new one of a change that was undone."""
        if self.ending is Ending.DONE:
            nodes = [self.change.old]
        elif self.ending is Ending.ABORTED:
            nodes = [self.change.new]
        else:
            nodes = []
        return tuple(node for node in nodes if node != NO_NODE)

    # -- stages ---------------------------------------------------------------------------------

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._elapsed = 0
        self._send()

    def _prepare(self) -> None:
        self._enter(Stage.PREPARE)

    def _commit(self) -> None:
        self._enter(Stage.COMMIT)

    def _record(self, head: EntryId, version: Version) -> None:
        self.stage = Stage.RECORD
        following = with_committed(self.row, head, version)
        self.change = replace(self.change, phase=Phase.COMMIT, head=head, version=version)
        self._note_version(self.change.new, version)
        self._write(following, self._commit)

    def _complete(self) -> None:
        self.end(Ending.DONE)

    def _abort(self) -> None:
        self._enter(Stage.ABORT)

    def _undo(self) -> None:
        self.stage = Stage.UNDO
        self._write(with_change_undone(self.row), self._undone, is_last=True)

    def _undone(self) -> None:
        self.end(Ending.ABORTED)

    def _wait(self) -> None:
        if self._is_leader_lost:
            self.end(Ending.UNLED)
        elif self.stage is Stage.SNAPSHOT:
            is_late = self._elapsed >= self._options.snapshot_ticks
            if is_late or self._suspects(self.change.new):
                self.abort()
        elif self._is_impatient:
            # In commit there is no way back but an election, which also rolls a contraction back.
            self.end(Ending.UNLED if self.stage is Stage.COMMIT else Ending.STALLED)

    @property
    def _is_leader_lost(self) -> bool:
        return self._suspects(self.row.leader)

    # -- messages -------------------------------------------------------------------------------

    def _send(self) -> None:
        match self.stage:
            case Stage.PREPARE:
                self._ask(self._prepare_request())
            case Stage.SNAPSHOT:
                self._ask(self._snapshot_request())
                self._ask(ask_status(self._outbox.node, self.row, self.row.leader))
            case Stage.COMMIT:
                if self._may_commit:
                    self._ask(self._commit_request())
                self._ask(ask_status(self._outbox.node, self.row, self.row.leader))
            case Stage.RESULT:
                self._ask(ask_status(self._outbox.node, self.row, self.row.leader))
            case Stage.ABORT:
                self._ask(self._abort_request())
            case _:
                pass

    def _take(self, message: ToOperator) -> Ignored | None:
        if isinstance(message, StatusResponse | FenceResponse):
            return self._tend(message)
        asked = self.change.new if self.stage is Stage.SNAPSHOT else self.row.leader
        if message.source != asked:
            return Ignored.NOT_ASKED
        match message:
            case PrepareResponse() if self.stage is Stage.PREPARE:
                self._on_prepared(message)
            case SnapshotResponse() if self.stage is Stage.SNAPSHOT:
                return self._on_snapshot(message)
            case CommitResponse() if self.stage is Stage.COMMIT:
                self._on_committed(message)
            case AbortResponse() if self.stage is Stage.ABORT:
                self._undo()
            case Refusal():
                return self._on_refusal(message)
            case _:
                return Ignored.LATE
        return None

    def _tend(self, message: StatusResponse | FenceResponse) -> Ignored | None:
        """Attach followers once the leader is in this term: before, that would depose it (G4)."""
        if self.stage not in (Stage.SNAPSHOT, Stage.COMMIT, Stage.RESULT):
            return Ignored.LATE
        if isinstance(message, FenceResponse):
            return tell_leader(self.row, message, self._outbox)
        if message.source != self.row.leader:
            return Ignored.NOT_ASKED
        if message.role is not Role.LEADER or message.own_term != self.row.term:
            self.end(Ending.UNLED)
            return None
        could_commit = self._may_commit
        self._present = (*message.attached, self.row.leader)
        if self._may_commit and not could_commit and self.stage is Stage.COMMIT:
            self._ask(self._commit_request())
        missing = [node for node in self.row.lasting if node not in self._present]
        fence_missing(self.row, missing, self._suspects, self._outbox)
        return None

    @property
    def _may_commit(self) -> bool:
        """Whether the leader may be asked to commit (G5, G6)."""
        if self.change.kind is not ChangeKind.CONTRACT:
            return True
        known = self._versions.get(self.row.leader, NO_VERSION)
        return is_safe_to_contract(self.row.lasting, self._present) and knows(
            known, self._must_know
        )

    def _on_prepared(self, answer: PrepareResponse) -> None:
        self._reign, self._wanted = answer.reign, answer.head
        if self.change.new == NO_NODE:
            self._record(NO_ENTRY, NO_VERSION)
        else:
            self._enter(Stage.SNAPSHOT)

    def _on_snapshot(self, answer: SnapshotResponse) -> Ignored | None:
        if not reaches(answer.head, self._wanted) or not knows(answer.version, self._must_know):
            return Ignored.SHORT
        self._record(answer.head, answer.version)
        return None

    def _on_committed(self, answer: CommitResponse) -> None:
        if answer.is_done:
            self.stage = Stage.RESULT
            self._write(with_changed_ensemble(self.row), self._complete, is_last=True)

    def _on_refusal(self, refusal: Refusal) -> Ignored | None:
        has_passed = self._has_passed(refusal)
        if self.stage is Stage.SNAPSHOT:
            self.abort()
        elif self._is_others_doing(refusal) and not has_passed:
            # Another operator has written more than this one has read yet.
            self.end(Ending.STALLED)
        elif refusal.reason is Reason.COMMITTED and not has_passed:
            return Ignored.LATE  # A repeated request was overtaken by the commit.
        else:
            self.end(Ending.UNLED)
        return None

    def _is_others_doing(self, refusal: Refusal) -> bool:
        return self.stage is Stage.PREPARE and refusal.reason in (Reason.ABORTED, Reason.COMMITTED)

    def _prepare_request(self) -> PrepareRequest:
        change = self.change
        return PrepareRequest(*self._to_leader, kind=change.kind, old=change.old, new=change.new)

    def _snapshot_request(self) -> SnapshotRequest:
        return SnapshotRequest(
            *address(self._outbox.node, self.row, self.change.new),
            reign=self._reign,
            leader=self.row.leader,
            head=self._wanted,
            version=self._must_know or NO_VERSION,
        )

    def _commit_request(self) -> CommitRequest:
        change = self.change
        return CommitRequest(
            *self._to_leader, kind=change.kind, old=change.old, new=change.new, head=change.head
        )

    def _abort_request(self) -> AbortRequest:
        return AbortRequest(*self._to_leader)

    @property
    def _to_leader(self) -> tuple[NodeId, NodeId, StreamId, Term]:
        return address(self._outbox.node, self.row, self.row.leader)


def is_safe_to_contract(rest: Ensemble, present: tuple[NodeId, ...]) -> bool:
    """Whether those who stay could elect a leader among them (G5)."""
    return is_majority(present, rest)


def reaches(head: EntryId, wanted: EntryId) -> bool:
    """Whether a snapshot has all that it must have (G2)."""
    return head >= wanted


def knows(version: Version, wanted: Version | None) -> bool:
    """Whether a node has heard of the cuts that it must know, if it was read which these are."""
    return wanted is not None and version >= wanted
