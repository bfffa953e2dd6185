"""Images, replicas and contexts in as few words as the tests of the simulator need."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import Batch, GlsnRun
from tidelog.core.replica.messages import Role
from tidelog.core.replica.output import HardState, Write
from tidelog.testing.checkers.stream_safety import Holder
from tidelog.testing.stream_image import StreamImage
from tidelog.types import Llsn, NodeId, ProducerId, StreamId, Term, TopicId

A, B, C = NodeId(101), NodeId(102), NodeId(103)
ENSEMBLE = (A, B, C)
TOPIC, STREAM = TopicId(1), StreamId(1)


def batch(term: int, llsn: int, data: str = "", *, count: int = 1, producer: int = 0) -> Batch:
    content = data or f"{term}/{llsn}"
    return Batch(Term(term), Llsn(llsn), count, content.encode(), ProducerId(producer), producer)


def log(*terms: int) -> tuple[Batch, ...]:
    """Batches of one entry each, of these terms, from the first LLSN on."""
    return tuple(batch(term, llsn) for llsn, term in enumerate(terms, 1))


def write(*batches: Batch, term: int = 9, ordered: int = 0, sequence: int = 1) -> Write:
    """Batches that are written, and how many entries of the log are ordered then."""
    hard_state = HardState(Term(term), True)
    if not ordered:
        return Write(sequence, hard_state=hard_state, batches=batches)
    run = GlsnRun(Llsn(1), 1, ordered)
    context = CommitContext(1, ordered, 1, 1, ordered)
    return Write(sequence, hard_state=hard_state, batches=batches, runs=(run,), context=context)


def image(*terms: int, ordered: int = 0) -> StreamImage:
    """A log of entries of these terms."""
    new = StreamImage()
    new.apply(write(*log(*terms), ordered=ordered))
    return new


@dataclass
class Seen:
    """A replica, as far as checkers look at it."""

    role: Role
    term: Term
    commit_index: Llsn
    ensemble: tuple[NodeId, ...] = ()

    @property
    def reign(self) -> Term:
        return self.term


def leader(term: int, commit: int = 0, ensemble: tuple[NodeId, ...] = ENSEMBLE) -> Seen:
    return Seen(Role.LEADER, Term(term), Llsn(commit), ensemble)


def follower(term: int, commit: int = 0) -> Seen:
    return Seen(Role.FOLLOWER, Term(term), Llsn(commit))


def holder(
    node: NodeId, replica: Seen, *terms: int, durable: int | None = None, is_lost: bool = False
) -> Holder:
    """A replica with a log of these terms, of which the first entries are durable, or all."""
    synced = terms if durable is None else terms[:durable]
    return Holder(node, replica, image(*terms), image(*synced), is_lost)
