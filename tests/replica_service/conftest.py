"""One replica for all tests of a module; each test is a master of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.replica_service.raw_master import RawMaster
from tests.replica_service.replica_process import ReplicaProcess


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaProcess]:
    with ReplicaProcess(tmp_path_factory.mktemp("replica") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def recorded() -> dict[int, int]:
    """Where the channels of the module's replica ended at its last group commit."""
    return {}


@pytest.fixture
def master(replica: ReplicaProcess, recorded: dict[int, int]) -> Iterator[RawMaster]:
    """A session that has begun, with two log channels."""
    with RawMaster(replica, recorded) as begun:
        yield begun
