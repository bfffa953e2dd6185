"""Holds what the machines of a simulated pair do against all checkers, and counts what is rare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.core.session.messages import (
    Answer,
    Error,
    ErrorCode,
    GroupCommit,
    LogChannelCreate,
    LogEntryWrite,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.options import FlushAt
from tidelog.core.session.output import Durability, MasterOutput, Notice, Send
from tidelog.testing.checkers.blobs import check_blobs
from tidelog.testing.checkers.epoch_durable import check_durable
from tidelog.testing.checkers.equal_sides import check_equal
from tidelog.testing.checkers.group_commit import check_order, check_present
from tidelog.testing.checkers.notices import Notices
from tidelog.testing.checkers.refusals import check_refusal
from tidelog.testing.checkers.replica_promises import check_acknowledged
from tidelog.testing.checkers.serial_steps import check_steps
from tidelog.testing.checkers.session_answers import check_hung_up
from tidelog.testing.checkers.session_entries import check_recorded
from tidelog.testing.checkers.session_secrets import Secrets
from tidelog.testing.session_wires import CLIENT, Asked, Wire
from tidelog.testing.sometimes import Rare
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.session_cluster import SessionCluster
    from tidelog.testing.session_machine import SessionMachine
    from tidelog.testing.session_master import MasterShell

REFUSED = {
    ErrorCode.SESSION_OPEN: Rare.SESSION_REFUSED_WHILE_OPEN,
    ErrorCode.WRONG_SECRET: Rare.OLD_SECRET_REFUSED,
    ErrorCode.WRONG_CONFIGURATION: Rare.WRONG_CONFIGURATION_REFUSED,
    ErrorCode.SESSION_BROKEN: Rare.BROKEN_SESSION_REFUSED,
}


class SessionChecks:
    """The checkers of one simulation."""

    __slots__ = ("_channels", "_cluster", "_dead", "_notices", "secrets")

    def __init__(self, cluster: SessionCluster) -> None:
        self._cluster = cluster
        self._notices: dict[int, Notices] = {}
        self._channels: dict[int, tuple[int, str]] = {}
        """By connection: the log channel that it is, and the secret that was shown."""
        self._dead: set[NodeId] = set()
        """Replicas whose last session did not end in order."""
        self.secrets = Secrets()

    # The master.

    def on_master_output(self, shell: MasterShell, output: MasterOutput) -> None:
        """Check what a master is about to do."""
        cluster, disk = self._cluster, shell.machine.disk
        check_steps(cluster.options, output, disk.seen, disk.durable)
        if isinstance(output, Send) and isinstance(output.message, GroupCommit):
            self._check_group_commit(shell, output.message.epoch)

    def _check_group_commit(self, shell: MasterShell, epoch: int) -> None:
        cluster = self._cluster
        check_order(epoch, shell.ledger, shell.unanswered())
        replicas = [cluster.machines[node] for node in shell.replicas]
        for machine in (shell.machine, *replicas):
            if machine.ledger is shell.ledger and machine.is_in_session:
                disk = machine.disk
                is_flushed = cluster.options.flush_at is FlushAt.SESSION_END
                durable = disk.durable if is_flushed else None
                check_present(epoch, shell.ledger, machine.node, disk.seen, durable)
        if epoch > shell.machine.disk.durable.epoch + 1:
            cluster.sometimes.count(Rare.EPOCH_NUMBERS_SKIPPED)

    def on_answer(self, shell: MasterShell, send: Send, answer: Answer) -> None:
        """Count who was first."""
        cluster = self._cluster
        durable = shell.machine.disk.durable
        match send.message:
            case GroupCommit(epoch):
                is_first = durable.epoch < epoch
                cluster.sometimes.count(
                    Rare.REMOTE_COMMIT_FIRST if is_first else Rare.LOCAL_COMMIT_FIRST
                )
                if is_first:
                    cluster.on_remote_commit_first(shell)
            case LogEntryWrite(flush=True) if send.batches:
                is_first = durable.end(send.lane) < send.batches[-1].llsn_end
                cluster.sometimes.count(
                    Rare.REMOTE_FLUSH_FIRST if is_first else Rare.LOCAL_FLUSH_FIRST
                )
            case SessionBegin(epoch=epoch) if isinstance(answer, Error):
                if answer.code == ErrorCode.WRONG_POSITION:
                    other = cluster.machines[shell.replicas[send.replica]].disk.durable.epoch
                    cluster.sometimes.count(_mismatch(epoch, other))
            case SessionEnd() if not isinstance(answer, Error):
                cluster.sometimes.count(Rare.SESSION_ENDED)
            case _:
                pass

    def on_notice(self, shell: MasterShell, notice: Notice) -> None:
        """Check what the application is told."""
        cluster, machine = self._cluster, shell.machine
        told = self._notices.setdefault(shell.ledger.number, Notices())
        told.on_notice(notice, has_failed=shell.core.failure is not None)
        check_durable(notice, shell.ledger, machine.node, machine.disk.durable)
        cut = machine.disk.durable.cut_at(notice.epoch)
        if notice.durability is Durability.STORED:
            machine.promised = cut
            return
        cluster.sometimes.count(Rare.EPOCH_PROPAGATED)
        cluster.operators.on_propagated(cut)
        for node in shell.replicas:
            # Who lost its disk after its answer has nothing to show.
            if cluster.machines[node].ledger is shell.ledger:
                check_durable(notice, shell.ledger, node, cluster.machines[node].disk.durable)

    # Replicas.

    def on_reply(self, machine: SessionMachine, wire: Wire, asked: Asked, answer: Answer) -> None:
        """Check what a replica is about to say."""
        request = asked.message
        if isinstance(answer, Error):
            rare = REFUSED.get(ErrorCode(answer.code))
            if rare is not None:
                self._cluster.sometimes.count(rare)
            if wire.ends[CLIENT].node in self._cluster.machines:
                check_refusal(machine.node, request, answer)
            return
        channel, _ = self._channels.get(wire.number, (-1, ""))
        match request:
            case LogChannelCreate(secret, number):
                self.secrets.on_channel(machine.node, secret)
                self._channels[wire.number] = number, secret
            case SessionEnd():
                self.secrets.on_ended(machine.node, wire.number)
                self._dead.discard(machine.node)
            case SessionBegin() if isinstance(answer, SessionBegun):
                self._on_begun(machine, wire, answer.secret)
            case _:
                pass
        disk = machine.disk
        check_acknowledged(machine.node, channel, request, asked.batches, disk.seen, disk.durable)
        if isinstance(request, GroupCommit):
            machine.promised = disk.durable.cuts[-1]

    def _on_begun(self, machine: SessionMachine, wire: Wire, secret: str) -> None:
        self.secrets.on_begun(machine.node, wire.number, secret)
        cluster, client = self._cluster, wire.ends[CLIENT]
        if machine.node in self._dead:
            cluster.sometimes.count(Rare.SESSION_AFTER_DEAD_ONE)
        self._dead.add(machine.node)
        cluster.stranger.on_session_begun(machine)
        master = cluster.machines.get(client.node)
        if master is not None and master.incarnation == wire.lives[CLIENT]:
            machine.ledger = master.ledger
            machine.is_in_session = True
            check_equal(machine.node, machine.disk.durable, master.node, master.disk.durable)

    def on_replica_lost(self, machine: SessionMachine, wire: Wire) -> None:
        """A connection of a replica is gone."""
        self.secrets.on_ended(machine.node, wire.number)
        self._channels.pop(wire.number, None)

    def on_settled(self, machine: SessionMachine, connections: Iterable[int]) -> None:
        """Check who is still connected to a replica."""
        for connection in connections:
            if connection in self._channels:
                _, secret = self._channels[connection]
                is_living = self.secrets.is_living_at(machine.node, secret)
                check_hung_up(machine.node, connection, is_living)

    def on_service_stopped(self, machine: SessionMachine) -> None:
        """A service is gone, with all its connections."""
        self.secrets.on_stopped(machine.node)
        self._dead.discard(machine.node)

    # Stores.

    def on_recorded(self, machine: SessionMachine) -> None:
        """Check an epoch that has become durable somewhere."""
        durable = machine.disk.durable
        if machine.ledger is not None:
            check_recorded(machine.node, durable, machine.ledger)
            check_blobs(machine.node, durable, machine.ledger.blobs)
        for node, other in self._cluster.machines.items():
            if other.ledger is machine.ledger:
                check_equal(machine.node, durable, node, other.disk.durable)


def _mismatch(master: int, replica: int) -> Rare:
    if master == replica:
        return Rare.HISTORIES_DIFFERED
    return Rare.REPLICA_AHEAD if replica > master else Rare.MASTER_AHEAD
