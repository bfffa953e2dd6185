"""Somebody who connects to replicas and says what is not to be said there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Answer,
    GroupCommit,
    LogChannelCreate,
    LogEntryWrite,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
)
from tidelog.testing.faults import Fault, FaultClass
from tidelog.testing.session_image import EpochImage
from tidelog.testing.session_wires import CLIENT, Asked, Endpoint, Wire
from tidelog.types import NodeId

if TYPE_CHECKING:
    from tidelog.testing.session_cluster import SessionCluster
    from tidelog.testing.session_machine import SessionMachine

NODE: Final = NodeId(100)
CURIOUS: Final = 0.3
FAR: Final = 1 << 40
"""An epoch that nobody reaches."""


class Stranger(Endpoint):
    """Knows the secrets of sessions that are over."""

    __slots__ = ("_cluster", "_draws", "_is_curious")

    def __init__(self, cluster: SessionCluster) -> None:
        super().__init__(cluster.world, NODE)
        self._cluster = cluster
        self._draws = cluster.chance.stream("stranger")
        self._is_curious = cluster.plan.has(FaultClass.STRANGER)

    def visit(self, fault: Fault) -> None:
        """Say something to a replica."""
        cluster = self._cluster
        nodes = [node for node in sorted(cluster.machines) if node != cluster.operators.master]
        machine = cluster.machines[nodes[fault.target % len(nodes)]]
        self._say(machine, self._request(fault.strength, machine.disk.durable))

    def on_service_started(self, machine: SessionMachine) -> None:
        """Be there before its master."""
        if self._is_curious and self._draws.random() < CURIOUS:
            self._say(machine, _other_master(machine.disk.durable))

    def on_session_begun(self, machine: SessionMachine) -> None:
        """Be there before the master has made its log channels."""
        if self._is_curious and self._draws.random() < CURIOUS:
            self._say(machine, self._old_secret())

    def _say(self, machine: SessionMachine, request: Request) -> None:
        wires = self._cluster.wires
        wires.ask(wires.connect(self, machine), Asked(request))

    def _request(self, draw: int, image: EpochImage) -> Request:
        match draw % 6:
            case 0:
                return SessionBegin(SESSION_PROTOCOL + 1, "", 0, 1)
            case 1:
                return _other_master(image)
            case 2:
                return GroupCommit(FAR)
            case 3:
                return LogEntryWrite(FAR, session_begin=True, session_end=True)
            case 4:
                return SafeSnapshotSwitch(bytes(16))
            case _:
                return self._old_secret()

    def _old_secret(self) -> Request:
        secrets = self._cluster.checks.secrets
        over = [secret for secret in secrets.issued if not secrets.is_living(secret)]
        channel = self._draws.randrange(self._cluster.channel_count)
        return LogChannelCreate(self._draws.choice(over) if over else "", channel)

    def on_answered(self, wire: Wire, answer: Answer) -> None:
        """Whatever the answer is, leave."""
        self._cluster.wires.hang(wire, CLIENT)


def _other_master(image: EpochImage) -> SessionBegin:
    """A master of other data, at the same epoch; but an empty replica would take on anybody."""
    return SessionBegin(SESSION_PROTOCOL, "another one", image.epoch or FAR, 1, image.stamp)
