"""Nodes on this machine: who holds the metadata, which ports, what a second run finds."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from contextlib import closing
from pathlib import Path

import pytest

from tidelog.errors import BadAddress, BadOption, CorruptData, DiskFull
from tidelog.runtime.config import Role, members_of
from tidelog.runtime.config_sources import load_config
from tidelog.runtime.identity import DRAWN_NODE_BEGIN
from tidelog.runtime.local_layout import (
    HOST,
    LAYOUT_NAME,
    Layout,
    check_ports,
    load_layout,
    new_layout,
    nodes_of,
    plan_of,
    row_of_ports,
    save_layout,
)
from tidelog.runtime.local_nodes import Ports, free_ports

CLUSTER = bytes(16)


def ports(count: int) -> list[Ports]:
    return [Ports(3 * n + 1, 3 * n + 2, 3 * n + 3) for n in range(count)]


@pytest.mark.parametrize(("nodes", "members"), [(1, 1), (2, 1), (3, 3), (4, 3), (5, 5), (9, 5)])
def test_an_odd_number_of_nodes_holds_the_metadata(nodes: int, members: int) -> None:
    layout = new_layout(CLUSTER, [HOST] * nodes, ports(nodes))
    assert layout.members == tuple(range(1, members + 1))


def test_roles_can_be_given() -> None:
    layout = new_layout(CLUSTER, [HOST] * 2, ports(2), ["storage", "metadata,operator"])
    assert layout.members == (2,)
    with pytest.raises(BadOption, match="metadata"):
        new_layout(CLUSTER, [HOST], ports(1), ["storage"])


def test_what_was_written_down_is_found_again(tmp_path: Path) -> None:
    layout = new_layout(CLUSTER, [HOST] * 3, ports(3))
    assert load_layout(tmp_path) is None
    save_layout(layout, tmp_path)
    assert load_layout(tmp_path) == layout
    (tmp_path / LAYOUT_NAME).write_text("{")
    with pytest.raises(CorruptData):
        load_layout(tmp_path)


@pytest.mark.parametrize(
    "layout",
    [
        Layout("zz", new_layout(CLUSTER, [HOST], ports(1)).places),
        Layout(CLUSTER.hex(), ()),
        new_layout(CLUSTER, [HOST], [Ports(1, 2, 70_000)]),
        new_layout(CLUSTER, [HOST] * 10, ports(10)),
    ],
)
def test_what_cannot_be_a_cluster_is_not_believed(tmp_path: Path, layout: Layout) -> None:
    save_layout(layout, tmp_path)
    with pytest.raises(CorruptData, match=LAYOUT_NAME):
        load_layout(tmp_path)


def test_a_full_disk_leaves_what_was_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    layout = new_layout(CLUSTER, [HOST], ports(1))
    save_layout(layout, tmp_path)
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(DiskFull):
        save_layout(new_layout(CLUSTER, [HOST] * 2, ports(2)), tmp_path)
    assert load_layout(tmp_path) == layout


def test_nodes_that_are_made_together_get_ports_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody listens yet, so none of them looks taken."""
    one = free_ports(HOST)
    drawn = iter([one.clients, one.http, one.peers])
    choice = secrets.choice
    monkeypatch.setattr(secrets, "choice", lambda ports: next(drawn, None) or choice(ports))
    other = free_ports(HOST, [one])
    ports = [found for each in (one, other) for found in (each.clients, each.http, each.peers)]
    assert len(set(ports)) == 6


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    found = free_ports(HOST)
    layout = new_layout(CLUSTER, [HOST], [found])
    nodes = nodes_of(layout, plan_of(layout, tmp_path))
    check_ports(nodes)
    with (
        closing(socket.create_server((HOST, found.peers))),
        pytest.raises(BadAddress, match=f"port {found.peers} .* --port"),
    ):
        check_ports(nodes)


def test_ports_are_easy_to_remember_and_exist() -> None:
    assert row_of_ports(7447, 2) == [Ports(7447, 7448, 7449), Ports(7457, 7458, 7459)]
    with pytest.raises(BadOption, match="choose a lower one"):
        row_of_ports(65_530, 1)


def test_the_configuration_of_a_node_can_be_read_and_names_all_members(tmp_path: Path) -> None:
    layout = new_layout(CLUSTER, [HOST] * 3, ports(3))
    settings = {"timing.ping": "0.2", "log.format": "json", "node.roles": "storage,metadata"}
    nodes = nodes_of(layout, plan_of(layout, tmp_path, settings))
    for node in nodes:
        node.prepare()

    config = load_config(nodes[1].config, {}).config
    assert config.timing.ping == 0.2
    assert config.node.roles == (Role.STORAGE, Role.METADATA)
    assert [member.node for member in members_of(config)] == [1, 2, 3]
    assert [node.id for node in nodes] == [1, 2, 3]
    assert {node.identity.members for node in nodes} == {(1, 2, 3)}


def test_a_wiped_node_comes_back_as_another_one(tmp_path: Path) -> None:
    layout = new_layout(CLUSTER, [HOST], ports(1))
    (node,) = nodes_of(layout, plan_of(layout, tmp_path))
    node.prepare()
    node.prepare()
    assert node.id == 1
    node.wipe()
    node.prepare()
    assert node.id >= DRAWN_NODE_BEGIN
    assert node.identity.members == ()


def test_data_that_is_mounted_before_the_first_start_is_used(tmp_path: Path) -> None:
    layout = new_layout(CLUSTER, [HOST], ports(1))
    (node,) = nodes_of(layout, plan_of(layout, tmp_path))
    node.directory.mkdir()
    (node.directory / "lost+found").mkdir()
    node.prepare()
    assert node.id == 1
