"""The faulty disks by themselves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.disks import (
    can_mount,
    compile_shim,
    failing_syncs,
    fill_up,
    flip_bits,
    small_disk,
)

SYNCS = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for sync in (os.fsync, os.fdatasync):
    try:
        sync(descriptor)
    except OSError as error:
        print(error.errno)
    else:
        print(0)
"""


def test_syncs_fail_once_the_trigger_is_there_and_not_before(tmp_path: Path) -> None:
    trigger = tmp_path / "now"
    environment = os.environ | failing_syncs(compile_shim(tmp_path), trigger)
    command = [sys.executable, "-c", SYNCS, str(tmp_path / "file")]

    def codes() -> list[int]:
        done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
        return [int(line) for line in done.stdout.split()]

    assert codes() == [0, 0]
    trigger.touch()
    assert codes() == [errno.EIO, errno.EIO]


@pytest.mark.skipif(not can_mount(), reason="needs root and mount")
def test_a_small_disk_is_full_until_the_ballast_goes(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1):
        ballast = fill_up(tmp_path / "disk")
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "disk" / "more").write_bytes(bytes(64 * 1024))
        ballast.unlink()
        (tmp_path / "disk" / "more").write_bytes(bytes(64 * 1024))


def test_flipped_bits_change_what_files_hold_and_not_what_is_reserved(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one", "two", "empty")]
    for file in files[:2]:
        file.write_bytes(b"x" * 100 + bytes(1000))
    files[2].write_bytes(bytes(1000))
    assert len(flip_bits(files, 3, seed=1)) == 3
    for file in files[:2]:
        content = file.read_bytes()
        assert content[:100] != b"x" * 100
        assert content[100:] == bytes(1000)
    assert files[2].read_bytes() == bytes(1000)
