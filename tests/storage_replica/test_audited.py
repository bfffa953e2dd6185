"""A replica that was filled up by its leader: what the leader left out is not missing."""

from __future__ import annotations

import pytest

from tests.storage_replica.fillings import fill
from tests.storage_replica.twin import Twin
from tidelog.storage.file_checks import check_segments
from tidelog.storage.replica_facts import audited_replicas
from tidelog.storage.replica_pages import read_replica


@pytest.fixture
def filled() -> Twin:
    """LLSNs 2, 4 and 5 were dead before the filling, and no snapshot was taken since."""
    twin = Twin()
    twin.become_member()
    fill(twin)
    twin.sync()
    return twin


def test_what_a_filling_left_out_is_not_missing(filled: Twin) -> None:
    page = read_replica(filled.store(), 1, 99)
    present = [llsn for piece in page.pieces for llsn in piece.llsns()]
    assert present == [1, 3, 6, 7, 8]
    assert page.settled_index == 5
    [facts] = audited_replicas(filled.disk.node)
    assert (facts.settled_index, facts.context_flaw) == (5, "")


def test_the_segments_of_a_filled_replica_are_sound(filled: Twin) -> None:
    filled.append("g", term=3)
    filled.order()
    filled.flush()
    checked = check_segments(filled.disk.node, filled.store(), 0)
    assert [one.problem for one in checked.files] == [""]
