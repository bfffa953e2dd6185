"""Who a node is lies in its directory, is made once, and is believed only if it is sound."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import flip
from tidelog.errors import BadOption, CorruptData, NotALog, WrongCluster
from tidelog.runtime.identity import (
    DRAWN_NODE_BEGIN,
    IDENTITY_NAME,
    Identity,
    check_cluster,
    create_identity,
    founder,
    joiner,
    new_cluster_id,
    parse_cluster_id,
    read_identity,
)
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.os_vfs import OsVfs

CLUSTER = bytes(range(16))


def disk() -> FailStopVfs:
    return FailStopVfs(OsVfs())


def test_what_was_made_is_read(tmp_path: Path) -> None:
    directory = str(tmp_path / "deep" / "down")
    made = founder(CLUSTER, 2, (3, 1, 2))
    create_identity(disk(), directory, made)

    assert read_identity(disk(), directory) == Identity(CLUSTER, made.node, made.members)
    assert made.members == (1, 2, 3)


def test_nodes_that_join_have_numbers_that_nobody_else_has() -> None:
    nodes = {joiner(CLUSTER).node for _ in range(100)}

    assert len(nodes) == 100
    assert min(nodes) >= DRAWN_NODE_BEGIN
    assert joiner(CLUSTER).members == ()


@pytest.mark.parametrize(
    ("number", "members"),
    [(0, (1,)), (DRAWN_NODE_BEGIN, (1,)), (1, ()), (1, (1, 1)), (1, (0,)), (1, range(1, 34))],
)
def test_first_nodes_have_small_numbers_of_their_own(number: int, members: range) -> None:
    with pytest.raises(BadOption):
        founder(CLUSTER, number, tuple(members))


def test_a_directory_is_never_given_another_identity(tmp_path: Path) -> None:
    create_identity(disk(), str(tmp_path), joiner(CLUSTER))
    before = (tmp_path / IDENTITY_NAME).read_bytes()

    with pytest.raises(WrongCluster, match=CLUSTER.hex()):
        create_identity(disk(), str(tmp_path), joiner(new_cluster_id()))
    assert (tmp_path / IDENTITY_NAME).read_bytes() == before


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(NotALog, match="photos"):
        create_identity(disk(), str(tmp_path), joiner(CLUSTER))
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_a_directory_without_a_node_says_what_to_do(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotALog, match="tidelog node init"):
            read_identity(disk(), str(directory))


def test_every_flipped_bit_of_an_identity_is_noticed(tmp_path: Path) -> None:
    create_identity(disk(), str(tmp_path), founder(CLUSTER, 1, (1,)))
    path = tmp_path / IDENTITY_NAME
    for offset in range(len(path.read_bytes())):
        flip(path, offset)
        with pytest.raises(CorruptData):
            read_identity(disk(), str(tmp_path))
        flip(path, offset)
    assert read_identity(disk(), str(tmp_path)).node == 1


def test_a_directory_of_another_cluster_is_refused() -> None:
    identity = joiner(CLUSTER)
    check_cluster(identity, CLUSTER, "d")
    with pytest.raises(WrongCluster, match="belongs to cluster"):
        check_cluster(identity, new_cluster_id(), "d")


def test_a_cluster_id_is_written_in_digits() -> None:
    assert parse_cluster_id(f" {CLUSTER.hex()}\n") == CLUSTER
    for text in ("", "12", "xy" * 16, CLUSTER.hex() + "00"):
        with pytest.raises(BadOption, match="no cluster id"):
            parse_cluster_id(text)
