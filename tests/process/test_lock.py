"""Two real processes and one log: only one of them has it, whoever gets killed."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.process.children import Child
from tidelog.errors import LogLocked

USER = "tests.process.lock_user"


def acknowledged(child: Child, name: str, enough: int) -> list[bytes]:
    """At least ``enough`` values that the log of this process has acknowledged."""
    values: list[bytes] = []
    while len(values) < enough:
        values += [line for line in child.wait_for_lines() if line.startswith(name.encode())]
    return values


def test_a_waiting_process_gets_the_log_of_a_killed_one_with_all_it_acknowledged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    with Child(USER, str(path), "first") as first:
        told = acknowledged(first, "first", 20)
        with Child(USER, str(path), "second") as second:
            second.wait_for(b"locked")
            told += acknowledged(first, "first", 20)
            told += first.kill()
            told += acknowledged(second, "second", 20)
            told += second.kill()
    with tidelog.open(path) as log:
        found = [record.value for record in log.read()]
    told = [line for line in told if line.startswith((b"first-", b"second-"))]
    assert len(found) == len(set(found))
    assert set(told) <= set(found)
    # Each process had one append under way when it was killed.
    assert len(found) - len(told) <= 2
    owners = [value.split(b"-")[0] for value in found]
    assert owners == sorted(owners), "the second process wrote while the first had the log"


def test_killing_a_waiting_process_does_not_take_the_log_from_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Child(USER, str(path), "owner") as owner:
        acknowledged(owner, "owner", 1)
        with Child(USER, str(path), "waiter") as waiter:
            waiter.wait_for(b"locked")
            assert not [line for line in waiter.kill() if line != b"locked"]
        acknowledged(owner, "owner", 1)
        with pytest.raises(LogLocked):
            tidelog.open(path)
        acknowledged(owner, "owner", 1)
