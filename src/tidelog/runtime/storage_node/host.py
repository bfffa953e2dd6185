"""What a storage node does in a turn: replicas are handed what came, and what they want is done.

Invariants (docs/node-sessions.md, "What the host owes"):
  H1  a replica's writes are begun in its order, and durable ones are told to it before anybody else
      hears of them: the follower side of sessions last
  H2  a refusal goes to whom it answers: an operator and a replica may be on the same node
  H3  what cannot be sent now is dropped: whoever sent it repeats it
  H4  nothing unsound of a peer reaches a replica, and so the disk
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.core.metadata.messages import Collect, CommitResult
from tidelog.core.replica.hosting import Hosting
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    BetweenReplicas,
    FromOperator,
    Refusal,
    Role,
    SyncEntriesRequest,
    ToOperator,
)
from tidelog.core.replica.output import Output, Write
from tidelog.core.replica.replica import Replica
from tidelog.core.session.node_output import Deliver, Heard
from tidelog.errors import BadFrame, BatchTooLarge, CorruptData
from tidelog.formats.cluster_messages import for_operator
from tidelog.formats.replica_messages import (
    awaits_disk,
    decode_carried,
    encode_replica_message,
    is_for_leader,
)
from tidelog.runtime.events import tell
from tidelog.runtime.storage_node.appends import Appends
from tidelog.runtime.storage_node.counters import Counters
from tidelog.runtime.storage_node.ports import Disk, Mail
from tidelog.runtime.storage_node.replicas import Replicas
from tidelog.runtime.storage_node.sessions_in import FollowerSessions
from tidelog.runtime.storage_node.sessions_out import LeaderSessions
from tidelog.storage.replica_batches import flaw_in_data
from tidelog.types import Llsn, NodeId, StreamId

_logger: Final = logging.getLogger(__name__)


class BegunWrite(NamedTuple):
    """A write that is not durable yet: its number on the disk, and what its replica calls it."""

    number: int
    stream: StreamId
    sequence: int
    is_trim: bool
    is_order: bool


class Host:
    """The replicas of one node and whom they speak to.  Belongs to one event loop."""

    def __init__(
        self,
        node: NodeId,
        *,
        disk: Disk,
        mail: Mail,
        replicas: Replicas,
        appends: Appends,
        leading: LeaderSessions,
        following: FollowerSessions,
        counters: Counters,
    ) -> None:
        self._node = node
        self._disk = disk
        self._mail = mail
        self._replicas = replicas
        self._appends = appends
        self._leading = leading
        self._following = following
        self._counters = counters
        self.hosting = Hosting(node, replicas.get)
        self._begun: deque[BegunWrite] = deque()
        self._given_up: dict[StreamId, int] = {}
        """Streams whose replicas begin anew, and the writes that say so."""
        self._damaged: dict[StreamId, str] = {}
        """What people were told last."""
        self._last_number = 0
        self._durable = 0
        self._durable_told = 0
        self._terms: dict[StreamId, int] = {}
        self._roles: dict[StreamId, Role] = {}
        self.began_anew: Callable[[StreamId], None] = _tell_nobody
        """Told when the log of a replica was deleted, or filled up."""
        self.has_news = False
        """Whether more may be readable than before, or would be if it were durable."""
        self.is_awaited = False
        """Whether somebody waits for an answer until all that was begun is durable."""
        self.has_reported = False
        """Whether a report went out that leaves something to order."""

    @property
    def begun(self) -> int:
        """How many writes are not durable yet."""
        return len(self._begun)

    # --- what comes ---

    def from_operator(self, message: FromOperator) -> None:
        """Hand an operator's message to its replica (H2)."""
        replica = self._replicas.wanted(message.stream)
        if replica is None:
            self._drop("of an unknown stream")
            return
        self._settle(message.stream, replica)
        replica.step(message)
        self._settle(message.stream, replica, asker=message.source)

    def collect(self, message: Collect) -> None:
        """A metadata node wants a report."""
        self.hosting.collect(message)
        for stream in self.hosting.placed:
            self._touch(stream)

    def commits(self, result: CommitResult) -> bool:
        """Take cuts; say whether they were news."""
        before = self.hosting.version
        self.hosting.commits(result)
        for one in result.commits:
            self._touch(one.commit.stream)
        for behind in result.behind:
            self._touch(behind.stream)
        return before < result.version == self.hosting.version

    def durable(self, number: int) -> list[StreamId]:
        """All writes up to this one are durable (H1); return the streams that were trimmed."""
        self._durable = number
        written: dict[StreamId, int] = {}
        trimmed: dict[StreamId, None] = {}
        count = 0
        while self._begun and self._begun[0].number <= number:
            write = self._begun.popleft()
            count += 1
            written[write.stream] = write.sequence
            if write.is_trim:
                trimmed[write.stream] = None
            self.has_news |= write.is_order
        self._counters.group_writes.observe(count)
        for stream, sequence in written.items():
            replica = self._replicas.get(stream)
            if replica is not None:
                replica.written(sequence)
                self._appends.stored(stream, replica.durable_context.llsn_end)
                self._touch(stream)
        self._reopen()
        return list(trimmed)

    def give_up(self, stream: StreamId, why: str) -> None:
        """Files of a stream are damaged: have its replica begin anew, if others have its entries.

        A leader goes on: it may be the only one that has them all.
        """
        replica = self._replicas.get(stream)
        if replica is None or not replica.is_complete:
            return
        if self._damaged.get(stream) != why:
            self._damaged[stream] = why
            tell(_logger, "damaged", logging.WARNING, stream=stream, why=why)
        if not may_give_up(replica):
            return
        tell(_logger, "gives itself up", logging.WARNING, stream=stream)
        self._replicas.close(stream)
        self._last_number = self._given_up[stream] = self._disk.give_up(stream)
        self._roles.pop(stream, None)
        self.hosting.touched(stream)
        self.began_anew(stream)

    def _reopen(self) -> None:
        """Make replicas anew whose old ones are gone from the disk."""
        for stream, number in list(self._given_up.items()):
            if number <= self._durable:
                del self._given_up[stream]
                self._replicas.reopen(stream)
                self._touch(stream)

    def tick(self) -> None:
        """Let one unit of time pass."""
        for stream, replica in self._replicas:
            replica.tick()
            if replica.has_output:
                self._touch(stream)
        self._leading.tick()
        self.hosting.tick()

    def _touch(self, stream: StreamId) -> None:
        self._replicas.touch(stream)

    def _drop(self, reason: str) -> None:
        self._counters.dropped[reason] += 1

    # --- a turn ---

    def settle(self) -> None:
        """Hand out what sessions brought, and carry out what replicas want."""
        deliveries = self._following.take()
        delivered = [one for one in deliveries if self._deliver(one)]
        for heard in self._leading.heard():
            self._hear(heard)
        while touched := self._replicas.take_touched():
            for stream in touched:
                replica = self._replicas.get(stream)
                if replica is not None:
                    self._settle(stream, replica)
        follower = self._following.follower
        for one in delivered:
            follower.delivered(one.source, one.ticket, self._last_number)
        if self._durable > self._durable_told:
            self._durable_told = self._durable
            follower.durable(self._durable)
        while self.hosting.has_output:
            for report in self.hosting.take():
                self._mail.send(report.target, report)
                self.has_reported |= any(one.length for one in report.reports)

    def send(self) -> None:
        """End the turn: close the epochs, and send all that sessions have to say."""
        for heard in self._leading.end_turn():
            self._hear(heard)
        self._following.take()

    def _deliver(self, one: Deliver) -> bool:
        message = self._decode(one.message, one.attachment, one.source, one.channel)
        if message is None:
            self._following.follower.undeliverable(one.source, one.ticket)
            return False
        self._step(message)
        return True

    def _hear(self, heard: Heard) -> None:
        message = self._decode(heard.message, b"", heard.source, heard.channel)
        if message is None:
            self._leading.undeliverable(heard.source)
        else:
            self._step(message)

    def _decode(
        self, data: bytes, attachment: bytes | memoryview, source: NodeId, channel: int
    ) -> BetweenReplicas | None:
        try:
            message = decode_carried(
                data, attachment, source=source, target=self._node, stream=StreamId(channel)
            )
            check_batches(message)
        except (BadFrame, CorruptData) as error:
            _logger.warning("node %s: %s", source, error)
            return None
        return message

    def _step(self, message: BetweenReplicas) -> None:
        replica = self._replicas.wanted(message.stream)
        if replica is None:
            self._drop("of an unknown stream")
            return
        replica.step(message)
        self._touch(message.stream)

    # --- what a replica wants ---

    def _settle(self, stream: StreamId, replica: Replica, asker: NodeId | None = None) -> None:
        """Carry out all that a replica wants; its refusals go to ``asker``, if that is told."""
        while replica.has_output:
            self._carry_out(stream, replica, replica.take(), asker)
        self.is_awaited |= replica.is_awaited
        self.hosting.touched(stream)
        self._note_role(stream, replica)

    def _carry_out(
        self, stream: StreamId, replica: Replica, output: Output, asker: NodeId | None
    ) -> None:
        if output.write is not None:
            self._begin(stream, replica, output.write)
        if output.ordered is not None:
            self.has_news = True
        self._appends.progress(stream, output)
        for message in output.messages:
            if isinstance(message, Refusal):
                self._refuse(message, to_operator=message.target == asker)
            elif isinstance(message, ToOperator):
                self._mail.send(message.target, for_operator(message))
            elif isinstance(message, BetweenReplicas):
                self._carry(message)

    def _begin(self, stream: StreamId, replica: Replica, write: Write) -> None:
        topic = self._replicas.topic_of(stream)
        self._last_number = self._disk.begin(stream, topic, write)
        is_trim, is_order = write.trim_to is not None, write.context is not None
        self._begun.append(BegunWrite(self._last_number, stream, write.sequence, is_trim, is_order))
        if write.runs and replica.role is Role.LEADER:
            self._appends.note_runs(stream, write.runs)
        if write.wipe or write.drop or write.filled is not None:
            self.began_anew(stream)
        if write.filled is not None:
            # It came as its leader had it, maybe without its producers.
            replica.joined(Llsn(write.filled.end - 1))
            self._counters.filled += 1
            tell(_logger, "filled up", stream=stream, end=write.filled.end)

    def _refuse(self, refusal: Refusal, *, to_operator: bool) -> None:
        """H2."""
        if to_operator:
            self._mail.send(refusal.target, for_operator(refusal))
        else:
            self._carry(refusal)

    def _carry(self, message: BetweenReplicas) -> None:
        """Send a message to the replica of another node (H3)."""
        try:
            payload = encode_replica_message(message)
        except BatchTooLarge as error:
            _logger.error("stream %s: %s", message.stream, error)
            self._drop("too large for a message")
            return
        target, stream = message.target, message.stream
        if is_for_leader(message) and self._following.follower.say(target, stream, payload.message):
            return
        if not self._leading.carry(target, stream, payload, in_epoch=awaits_disk(message)):
            self._drop("no session or no room")

    # --- what people are told ---

    def _note_role(self, stream: StreamId, replica: Replica) -> None:
        term, role = replica.term, replica.role
        if term != self._terms.get(stream, 0):
            self._terms[stream] = term
            self._counters.terms += 1
        before = self._roles.get(stream, Role.NOT_MEMBER)
        if role is not before:
            self._roles[stream] = role
            self._counters.led += role is Role.LEADER
            self._counters.deposed += before is Role.LEADER
            if role is Role.NOT_MEMBER:
                self._leading.dispose(stream)
            tell(_logger, role.value, stream=stream, term=term, head=replica.head.llsn)


def may_give_up(replica: Replica) -> bool:
    """Whether another replica leads, which has all that was ever ordered."""
    return replica.role is Role.FOLLOWER


def check_batches(message: BetweenReplicas) -> None:
    """Raise CorruptData if a message brings a batch that no disk could store (H4)."""
    if not isinstance(message, AddEntriesRequest | SyncEntriesRequest):
        return
    for batch in message.batches:
        flaw = flaw_in_data(batch)
        if flaw is not None:
            raise CorruptData(f"stream {message.stream}, LLSN {batch.llsn_begin}: {flaw}")


def _tell_nobody(_: StreamId) -> None:
    """Nobody wants to know."""
