"""BLOBs travel in parts: whole under their name when they are durable, or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from tests.client.proxy import wait_until
from tests.replica_service.local_replica import LocalReplica
from tests.replica_service.raw_master import RawMaster
from tests.replica_service.replica_process import ReplicaProcess
from tidelog.core.session.messages import Ack, BlobWrite
from tidelog.formats.blob import TRAILER_BYTES
from tidelog.limits import KIB, MIB

PART = 64 * KIB


def file_of(replica: ReplicaProcess, blob: int) -> Path:
    return replica.path / "blobs" / f"{blob & 0xFF:02x}" / f"{blob:016x}.blob"


def content_of(replica: ReplicaProcess, blob: int) -> bytes:
    """The bytes of a BLOB, without what stands behind them in its file."""
    return file_of(replica, blob).read_bytes()[:-TRAILER_BYTES]


def files(path: Path) -> list[str]:
    """All files below the directory of BLOBs."""
    return sorted(file.name for file in path.glob("blobs/*/*"))


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 10 * PART + 1234])
def test_a_blob_of_any_size_arrives_whole(
    replica: ReplicaProcess, master: RawMaster, size: int
) -> None:
    data = Random(size).randbytes(size)
    blob = 1000 + size
    master.blob(0, blob, data, part=PART)
    assert content_of(replica, blob) == data
    epoch = replica.epoch + 1
    assert isinstance(master.write(0, epoch, b"refers", blobs=(blob,)), Ack)
    assert isinstance(master.commit(epoch), Ack)


def test_a_blob_has_no_name_before_its_last_byte(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    lane = master.lane()
    lane.ack(BlobWrite(3, 0, 3), b"ab")
    assert not file_of(replica, 3).exists()
    lane.ack(BlobWrite(3, 2, 3), b"c")
    assert content_of(replica, 3) == b"abc"


def test_blobs_on_two_channels_do_not_mix(replica: ReplicaProcess, master: RawMaster) -> None:
    master.lane(0).ack(BlobWrite(4, 0, 2), b"a")
    master.lane(1).ack(BlobWrite(5, 0, 2), b"x")
    master.lane(0).ack(BlobWrite(4, 1, 2), b"b")
    master.lane(1).ack(BlobWrite(5, 1, 2), b"y")
    assert content_of(replica, 4) == b"ab"
    assert content_of(replica, 5) == b"xy"


def test_a_blob_whose_master_dies_leaves_nothing(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    before = files(replica.path)
    master.lane().ack(BlobWrite(6, 0, 10), b"half")
    assert len(files(replica.path)) == len(before) + 1
    master.close()
    wait_until(lambda: files(replica.path) == before, "its parts are gone")


def test_a_blob_that_another_one_follows_leaves_nothing(
    replica: ReplicaProcess, master: RawMaster
) -> None:
    before = files(replica.path)
    master.lane().ack(BlobWrite(7, 0, 10), b"half")
    master.lane().ack(BlobWrite(8, 0, 5), b"whole")
    assert files(replica.path) == sorted([*before, f"{8:016x}.blob"])


def test_parts_of_a_replica_that_was_killed_are_gone_after_its_start(tmp_path: Path) -> None:
    with ReplicaProcess(tmp_path / "data") as replica, RawMaster(replica) as master:
        master.blob(0, 1, b"whole")
        master.lane().ack(BlobWrite(2, 0, 10), b"half")
        replica.kill()
    assert len(files(tmp_path / "data")) == 2
    with LocalReplica.at(tmp_path / "data"):
        assert files(tmp_path / "data") == [f"{1:016x}.blob"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_blob_of_more_than_a_gibibyte_needs_little_memory(tmp_path: Path) -> None:
    size = (1 << 30) + 1
    expected = sha256()
    with ReplicaProcess(tmp_path / "data") as replica, RawMaster(replica) as master:
        before = replica.peak_bytes
        lane = master.lane()
        for offset, part in large_parts(size):
            expected.update(part)
            lane.ack(BlobWrite(9, offset, size), part)
        assert replica.peak_bytes - before < 32 * MIB
        found = sha256()
        with file_of(replica, 9).open("rb") as file:
            for offset in range(0, size, MIB):
                found.update(file.read(min(MIB, size - offset)))
        assert found.digest() == expected.digest()


def large_parts(size: int) -> Iterator[tuple[int, bytes]]:
    data = Random(1).randbytes(MIB)
    for number, offset in enumerate(range(0, size, MIB)):
        part = number.to_bytes(8) + data[8:]
        yield offset, part[: size - offset]
