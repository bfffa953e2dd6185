"""The replicas of a stream never contradict one another about what is committed.

White box: every replica is looked at after every step.  One leader per term, one entry per id,
nothing that was committed is missing at a later leader, commit indexes never go back, and a
producer's append is committed once.  What a cut orders is committed from that moment on, whoever
knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from tidelog.core.order.commands import Quorum, StreamCommit
from tidelog.core.replica.entries import NO_PRODUCER, Batch
from tidelog.core.replica.messages import Role
from tidelog.core.replica.output import Write
from tidelog.testing.stream_image import StreamImage
from tidelog.testing.violation import Violation
from tidelog.types import Llsn, NodeId, StreamId, Term

NAME: Final = "stream_safety"
DURABLE: Final = "acked_durable"
ONCE: Final = "exactly_once"

Replicated: TypeAlias = tuple[NodeId, StreamId]
Ensemble: TypeAlias = tuple[NodeId, ...]


class Watched(Protocol):
    """What is looked at of a replica that runs."""

    @property
    def role(self) -> Role: ...
    @property
    def term(self) -> Term: ...
    @property
    def reign(self) -> Term: ...
    @property
    def commit_index(self) -> Llsn: ...
    @property
    def ensemble(self) -> Ensemble: ...


class Holder(msgspec.Struct, frozen=True):
    """One replica of a stream: what runs, what readers see, and what a crash would leave.

    ``is_forgiven``: its disk was destroyed.
    """

    node: NodeId
    replica: Watched | None
    seen: StreamImage
    durable: StreamImage
    is_forgiven: bool


class StreamSafety:
    """What all replicas of all streams have said and done so far."""

    __slots__ = (
        "_committed",
        "_counted",
        "_entries",
        "_indexes",
        "_leaders",
        "_quorum",
        "_sequences",
        "_terms",
    )

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._leaders: dict[tuple[StreamId, Term], NodeId] = {}
        self._entries: dict[tuple[StreamId, Term, int], Batch] = {}
        self._committed: dict[StreamId, list[Batch]] = {}
        """The batch of every entry that is committed, by its LLSN."""
        self._terms: dict[StreamId, list[Term]] = {}
        """The term in which a leader, or a cut, committed each of them."""
        self._counted: dict[StreamId, list[Ensemble]] = {}
        """The ensemble that the leader counted on; none for what a cut committed before it."""
        self._indexes: dict[Replicated, tuple[int, Llsn]] = {}
        self._sequences: dict[tuple[StreamId, int, int], Batch] = {}

    def committed(self, stream: StreamId) -> int:
        """Return the highest LLSN that any leader took for committed, or any cut ordered."""
        return len(self._committed.get(stream, ()))

    def committed_batch(self, stream: StreamId, llsn: int) -> Batch:
        """Return the batch that is committed at a place."""
        return self._committed[stream][llsn - 1]

    def counted(self, stream: StreamId, llsn: int) -> tuple[Ensemble, ...]:
        """Return the ensemble on which a leader counted when it committed a place.

        It may be neither that of today nor one of a change that goes on: that of a contraction
        that was rolled back.  What it committed stays committed.
        """
        known = self._counted.get(stream, [])
        return (known[llsn - 1],) if llsn <= len(known) and known[llsn - 1] else ()

    def on_restart(self, node: NodeId) -> None:
        """Begin a new life of a node: commit indexes are not durable."""
        for replicated in [one for one in self._indexes if one[0] == node]:
            del self._indexes[replicated]

    def on_write(self, node: NodeId, stream: StreamId, write: Write) -> None:
        """Check that the entries that a replica writes are the only ones of their ids."""
        for batch in write.batches:
            for llsn in range(batch.llsn_begin, batch.llsn_end):
                known = self._entries.setdefault((stream, batch.term, llsn), batch)
                if known != batch:
                    raise Violation(
                        NAME,
                        f"node {node} writes {batch} to stream {stream}, entry {llsn} of this term"
                        f" is in {known}",
                    )

    def on_cut(
        self, commit: StreamCommit, members: Sequence[Holder], others: Iterable[Holder]
    ) -> None:
        """Note what a cut orders: what most of the ensemble has.  ``others`` are all there are."""
        last = commit.llsn_end - 1
        terms = Counter(term for one in members if (term := one.durable.term_at(last)) is not None)
        if not terms:
            return  # The disks of all who had it were destroyed since.
        term = terms.most_common(1)[0][0]
        one = next(one for one in members if one.durable.term_at(last) == term)
        known = self.committed(commit.stream)
        for batch in one.durable.batches_between(commit.llsn_begin, min(last, known) + 1):
            self._compare(commit.stream, one, batch, min(last, known))
        if last > known:
            self._extend(commit.stream, one.node, one.durable, commit.term, last, ())
            for other in others:
                self._check_later_leader(commit.stream, commit.term, other)

    def look(self, stream: StreamId, one: Holder, others: Iterable[Holder]) -> bool:
        """Check a replica that something was done with; ``others`` are all of its stream.

        Return whether it leads a term that nobody was seen to lead.
        """
        replica = one.replica
        if replica is None:
            return False
        is_new = replica.role is Role.LEADER and self._check_leader(stream, one, replica)
        self._check_index(stream, one, replica, others)
        return is_new

    def _check_leader(self, stream: StreamId, one: Holder, replica: Watched) -> bool:
        leader = self._leaders.get((stream, replica.term))
        if leader == one.node:
            return False
        if leader is not None:
            raise Violation(
                NAME, f"nodes {leader} and {one.node} lead term {replica.term} of stream {stream}"
            )
        self._leaders[stream, replica.term] = one.node
        last = self._committed_before(stream, replica.term)
        if last and not one.seen.holds(last, self._committed[stream][last - 1].term):
            raise Violation(
                NAME,
                f"node {one.node} leads term {replica.term} of stream {stream} up to"
                f" {one.seen.head}, without the committed {self._committed[stream][last - 1]}",
            )
        return True

    def _committed_before(self, stream: StreamId, term: Term) -> int:
        """Return the last entry that was committed in an older term than this one.

        Who learns late that it leads an old term knows nothing of what later ones have done.
        """
        terms = self._terms.get(stream, [])
        return next((llsn for llsn in range(len(terms), 0, -1) if terms[llsn - 1] < term), 0)

    def _check_index(
        self, stream: StreamId, one: Holder, replica: Watched, others: Iterable[Holder]
    ) -> None:
        life, before = self._indexes.get((one.node, stream), (one.seen.wipes, Llsn(0)))
        index = replica.commit_index
        if index == before and life == one.seen.wipes:
            return
        if life != one.seen.wipes:
            before = Llsn(0)  # It began anew.
        if index < before:
            raise Violation(NAME, f"node {one.node}: commit index {index} after {before}")
        self._indexes[one.node, stream] = (one.seen.wipes, index)
        known = self.committed(stream)
        for batch in one.seen.batches_between(before + 1, min(index, known) + 1):
            self._compare(stream, one, batch, min(index, known))
        if index > known:
            self._commit(stream, one, replica, index, others)

    def _compare(self, stream: StreamId, one: Holder, batch: Batch, end: int) -> None:
        for llsn in range(batch.llsn_begin, min(batch.llsn_end, end + 1)):
            if self._committed[stream][llsn - 1] != batch:
                raise Violation(
                    NAME,
                    f"node {one.node} commits {batch} in stream {stream}, elsewhere"
                    f" {self._committed[stream][llsn - 1]} is committed at {llsn}",
                )

    def _commit(
        self,
        stream: StreamId,
        one: Holder,
        replica: Watched,
        index: Llsn,
        others: Iterable[Holder],
    ) -> None:
        if replica.role is not Role.LEADER:
            raise Violation(
                NAME,
                f"node {one.node} commits {index} in stream {stream}, no leader got beyond"
                f" {self.committed(stream)}, and no cut",
            )
        self._extend(stream, one.node, one.seen, replica.term, index, replica.ensemble)
        holders = {other.node: other for other in others}
        self._check_durable(stream, replica, holders)
        for other in holders.values():
            self._check_later_leader(stream, replica.term, other)

    def _extend(
        self,
        stream: StreamId,
        node: NodeId,
        image: StreamImage,
        term: Term,
        index: int,
        ensemble: Ensemble,
    ) -> None:
        committed = self._committed.setdefault(stream, [])
        for batch in image.batches_between(len(committed) + 1, index + 1):
            self._check_once(stream, batch)
            committed += [batch] * (min(batch.llsn_end, index + 1) - len(committed) - 1)
        terms = self._terms.setdefault(stream, [])
        terms += [term] * (len(committed) - len(terms))
        counted = self._counted.setdefault(stream, [])
        counted += [ensemble] * (len(committed) - len(counted))
        if len(committed) != index:
            raise Violation(NAME, f"node {node} commits {index}, which it does not have")

    def _check_durable(
        self, stream: StreamId, replica: Watched, holders: dict[NodeId, Holder]
    ) -> None:
        last = self._committed[stream][-1]
        index = self.committed(stream)
        ensemble = replica.ensemble
        having = [
            node
            for node in ensemble
            if node in holders
            and (holders[node].is_forgiven or holders[node].durable.holds(index, last.term))
        ]
        needed = len(ensemble) if self._quorum is Quorum.ALL else len(ensemble) // 2 + 1
        if len(having) < needed:
            raise Violation(
                DURABLE,
                f"entry {index} of stream {stream} is committed in term {replica.term}; of"
                f" {ensemble} only {having} have it on their disks",
            )

    def _check_later_leader(self, stream: StreamId, term: Term, other: Holder) -> None:
        """Who leads a later term already must have what is found out to be committed in this."""
        index, last = self.committed(stream), self._committed[stream][-1]
        leader = other.replica
        if leader is None or leader.role is not Role.LEADER or leader.reign <= term:
            return
        if not other.seen.holds(index, last.term):
            raise Violation(
                NAME,
                f"node {other.node} leads term {leader.term} of stream {stream} without {last}"
                f" that is committed in term {term}",
            )

    def _check_once(self, stream: StreamId, batch: Batch) -> None:
        if batch.producer == NO_PRODUCER:
            return
        known = self._sequences.setdefault((stream, batch.producer, batch.sequence), batch)
        if known != batch:
            raise Violation(ONCE, f"one append is committed twice: {known} and {batch}")
