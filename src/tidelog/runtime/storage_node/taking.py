"""Takes appends to streams that are led here, or refuses them with nothing done.

Invariants:
  T1  what was taken before a stream was sealed is no new append when its producer repeats it
  T2  a leader takes appends only once it knows a row of its own reign: if the stream was sealed
      before, the row says so, and later that takes this leader's own word (S1 of sealing)
"""

from __future__ import annotations

from tidelog.core.replica.messages import Role
from tidelog.core.replica.options import Appended
from tidelog.core.replica.replica import Replica
from tidelog.errors import Busy, DiskFull, LogError, NotLeader, OutOfOrder, Sealed
from tidelog.formats.batch import HEADER_BYTES, BatchBody, seal_batch
from tidelog.runtime.storage_node.appends import Appends
from tidelog.runtime.storage_node.counters import Counters
from tidelog.runtime.storage_node.ports import Disk
from tidelog.runtime.storage_node.replicas import Replicas
from tidelog.runtime.storage_node.syncs import Syncs
from tidelog.types import ProducerId, StreamId


class Taking:
    """Belongs to one event loop."""

    def __init__(
        self,
        disk: Disk,
        replicas: Replicas,
        appends: Appends,
        syncs: Syncs,
        counters: Counters,
    ) -> None:
        self._disk = disk
        self._replicas = replicas
        self._appends = appends
        self._syncs = syncs
        self._counters = counters
        self.is_open = False
        """Whether the node runs."""

    def take(
        self, stream: StreamId, body: BatchBody, producer: ProducerId, sequence: int, after: int
    ) -> Appended:
        """Hand an append to the replica that leads; see ``StorageNode.append`` for the errors."""
        try:
            appended = self._take(stream, body, producer, sequence, after)
        except LogError as error:
            self._counters.refused[type(error).__name__] += 1
            raise
        if appended.is_repeated:
            self._counters.duplicates += 1
        else:
            self._counters.appends += 1
            self._counters.append_entries += body.count
            self._counters.append_bytes += HEADER_BYTES + len(body.data)
        return appended

    def find_leader(self, stream: StreamId) -> Replica | None:
        """The replica of a stream if it leads here, and the node runs."""
        replica = self._replicas.get(stream)
        leads = replica is not None and replica.role is Role.LEADER and self.is_open
        return replica if leads else None

    def _take(
        self, stream: StreamId, body: BatchBody, producer: ProducerId, sequence: int, after: int
    ) -> Appended:
        replica = self.find_leader(stream)
        if replica is None:
            raise _not_leader(stream)
        self._refuse_crowd()
        self._refuse_sealed(replica, stream, producer, sequence)
        self._refuse_gap(replica, producer, after)
        # With the place that it gets now, so whoever stores it need not copy it.
        header = seal_batch(
            body,
            stream=stream,
            term=replica.term,
            first_llsn=replica.head.llsn + 1,
            producer=producer,
            sequence=sequence,
        )
        data = header + body.data
        appended = replica.append(data, body.count, producer=producer, sequence=sequence)
        if not isinstance(appended, Appended):
            raise _not_leader(stream)
        return appended

    def _refuse_crowd(self) -> None:
        if self._syncs.is_full:
            raise DiskFull("the disk of the stream's leader has no room")
        if self._disk.is_backlogged:
            raise Busy("segments are written more slowly than appends come: try again later")
        self._appends.refuse_crowd()

    def _refuse_sealed(
        self, replica: Replica, stream: StreamId, producer: ProducerId, sequence: int
    ) -> None:
        """T1, T2."""
        if 0 < sequence <= replica.last_sequence(producer):
            return
        if not self._replicas.knows_of_reign(stream, replica.reign):
            # The term is written before anybody is asked to lead in it: the view is on its way.
            raise Busy(f"who leads stream {stream} has not seen its own election yet: try again")
        if self._replicas.is_sealed(stream):
            raise Sealed(f"stream {stream} is sealed: append to another one")

    def _refuse_gap(self, replica: Replica, producer: ProducerId, after: int) -> None:
        """Raise OutOfOrder if what the producer sent right before has not arrived."""
        if after and replica.last_sequence(producer) < after:
            raise OutOfOrder(
                f"append {after} of producer {producer}, which comes before, has not arrived"
            )


def _not_leader(stream: StreamId) -> NotLeader:
    return NotLeader(f"this node does not lead stream {stream}")
