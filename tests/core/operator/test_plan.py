"""What is written about a stream can be read by whoever comes next, and by nobody wrongly."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.order.orders import nodes
from tidelog import limits
from tidelog.core.operator.plan import (
    NEW,
    STEADY,
    Change,
    Phase,
    Status,
    StreamPlan,
    changed_ensemble,
    decode_plan,
    encode_plan,
    fencing_ensemble,
    final_ensemble,
    flaw_in_plan,
)
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import ChangeKind
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.types import NO_NODE, Llsn, NodeId, Term

THREE = nodes((1, 2, 3))
NUMBERS = st.integers(0, limits.ORDER_NUMBER_END - 1)
CHANGES = st.builds(
    Change,
    kind=st.sampled_from(ChangeKind),
    phase=st.sampled_from(Phase),
    old=NUMBERS.map(NodeId),
    new=NUMBERS.map(NodeId),
    head=st.builds(EntryId, NUMBERS.map(Term), NUMBERS.map(Llsn)),
)
PLANS = st.builds(
    StreamPlan,
    status=st.sampled_from(Status),
    change=st.none() | CHANGES,
    is_first=st.booleans(),
)


@given(PLANS)
def test_what_is_written_is_read_again(plan: StreamPlan) -> None:
    data = encode_plan(plan)
    assert decode_plan(data) == plan
    assert len(data) <= limits.STREAM_PLAN_BYTES_MAX


@given(st.binary(min_size=1, max_size=40))
def test_bytes_of_any_kind_are_a_plan_or_corrupt(data: bytes) -> None:
    try:
        plan = decode_plan(data)
    except CorruptData:
        return
    assert isinstance(plan, StreamPlan)


def test_no_bytes_are_the_plan_of_a_new_stream() -> None:
    assert decode_plan(b"") == NEW
    assert encode_plan(NEW) == b""


def test_a_plan_of_another_format_is_not_guessed_at() -> None:
    with pytest.raises(UnsupportedVersion):
        decode_plan(msgspec.msgpack.encode((2, STEADY)))


SWAP = Change(ChangeKind.SWAP, Phase.COMMIT, NodeId(3), NodeId(4))
EXPAND = Change(ChangeKind.EXPAND, Phase.COMMIT, new=NodeId(4))
CONTRACT = Change(ChangeKind.CONTRACT, Phase.COMMIT, old=NodeId(3))


def prepared(change: Change) -> Change:
    return msgspec.structs.replace(change, phase=Phase.PREPARE)


@pytest.mark.parametrize(
    ("change", "fencing", "final"),
    [
        (None, (1, 2, 3), (1, 2, 3)),
        (SWAP, (1, 2, 3, 4), (1, 2, 4)),
        (EXPAND, (1, 2, 3, 4), (1, 2, 3, 4)),
        (CONTRACT, (1, 2, 3), (1, 2, 3)),
        (prepared(SWAP), (1, 2, 3), (1, 2, 3)),
        (prepared(EXPAND), (1, 2, 3), (1, 2, 3)),
        (prepared(CONTRACT), (1, 2, 3), (1, 2, 3)),
    ],
)
def test_whom_an_election_fences_and_whom_it_leaves(
    change: Change | None, fencing: tuple[int, ...], final: tuple[int, ...]
) -> None:
    assert fencing_ensemble(THREE, change) == fencing
    assert final_ensemble(THREE, change) == final


@pytest.mark.parametrize(
    ("change", "after"), [(SWAP, (1, 2, 4)), (EXPAND, (1, 2, 3, 4)), (CONTRACT, (1, 2))]
)
def test_what_a_completed_change_leaves(change: Change, after: tuple[int, ...]) -> None:
    assert changed_ensemble(THREE, change) == after


def test_ensembles_are_sorted() -> None:
    change = Change(ChangeKind.SWAP, Phase.COMMIT, NodeId(5), NodeId(1))
    assert changed_ensemble(nodes((3, 5)), change) == (1, 3)
    assert fencing_ensemble(nodes((3, 5)), change) == (1, 3, 5)


RECONFIGURATION = Status.RECONFIGURATION


@pytest.mark.parametrize(
    ("plan", "leader"),
    [
        (NEW, NO_NODE),
        (STEADY, 1),
        (StreamPlan(Status.ELECTION), NO_NODE),
        (StreamPlan(Status.ELECTION, SWAP), NO_NODE),
        (StreamPlan(Status.ELECTION, is_first=True), NO_NODE),
        (StreamPlan(RECONFIGURATION, prepared(EXPAND)), 1),
        (StreamPlan(RECONFIGURATION, CONTRACT), 1),
    ],
)
def test_plans_that_operators_write_have_no_flaw(plan: StreamPlan, leader: int) -> None:
    assert flaw_in_plan(plan, THREE, NodeId(leader)) is None


@pytest.mark.parametrize(
    ("plan", "leader"),
    [
        (NEW, 1),
        (STEADY, NO_NODE),
        (STEADY, 4),
        (StreamPlan(Status.ELECTION), 1),
        (StreamPlan(Status.STEADY, is_first=True), 1),
        (StreamPlan(Status.STEADY, SWAP), 1),
        (StreamPlan(Status.ELECTION, prepared(SWAP)), NO_NODE),
        (StreamPlan(RECONFIGURATION), 1),
        (StreamPlan(RECONFIGURATION, SWAP), 3),
        (StreamPlan(RECONFIGURATION, SWAP), 4),
        (StreamPlan(RECONFIGURATION, Change(ChangeKind.SWAP, Phase.COMMIT, NodeId(3))), 1),
        (StreamPlan(RECONFIGURATION, Change(ChangeKind.EXPAND, Phase.COMMIT)), 1),
        (
            StreamPlan(
                RECONFIGURATION, Change(ChangeKind.EXPAND, Phase.COMMIT, NodeId(3), NodeId(4))
            ),
            1,
        ),
        (
            StreamPlan(
                RECONFIGURATION, Change(ChangeKind.SWAP, Phase.COMMIT, NodeId(3), NodeId(2))
            ),
            1,
        ),
        (
            StreamPlan(
                RECONFIGURATION, Change(ChangeKind.SWAP, Phase.COMMIT, NodeId(5), NodeId(4))
            ),
            1,
        ),
    ],
)
def test_plans_that_contradict_their_row_are_found(plan: StreamPlan, leader: int) -> None:
    assert flaw_in_plan(plan, THREE, NodeId(leader)) is not None
