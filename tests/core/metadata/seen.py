"""Changes that name what a metadata node has."""

from __future__ import annotations

from tidelog.core.metadata.commands import NameMember, RegisterNode, SetPaused, UnregisterNode
from tidelog.core.metadata.machine import MetadataMachine
from tidelog.types import NodeId, Revision


def node_revision(machine: MetadataMachine, node: NodeId) -> Revision:
    known = machine.nodes.get(node)
    return machine.absent_revision if known is None else known.revision


def registering(machine: MetadataMachine, node: int, address: str = "") -> RegisterNode:
    return RegisterNode(NodeId(node), address, node_revision(machine, NodeId(node)))


def unregistering(machine: MetadataMachine, node: int) -> UnregisterNode:
    return UnregisterNode(NodeId(node), node_revision(machine, NodeId(node)))


def pausing(machine: MetadataMachine, *, is_paused: bool = True) -> SetPaused:
    return SetPaused(is_paused, machine.paused_revision)


def naming(machine: MetadataMachine, node: int, address: str) -> NameMember:
    return NameMember(NodeId(node), address, machine.member_revision(NodeId(node)))
