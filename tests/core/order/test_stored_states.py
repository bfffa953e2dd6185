"""A machine goes on from a stored state exactly as if it had never stopped (S1 to S7, D1 to D4)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests.core.order.cut_flaws import flaw_in_cut
from tests.core.order.orders import (
    S1,
    S2,
    T1,
    T2,
    THREE,
    acknowledge,
    commit,
    cut,
    cut_all,
    decided,
    machine_of,
    missed,
    new,
    nodes,
    now,
    report,
    update,
)
from tidelog import limits
from tidelog.core.order.commands import (
    AddStreams,
    Command,
    CreateTopic,
    Cut,
    CutDecided,
    Quorum,
    RemoveStream,
    StreamStatus,
    UpdateStream,
    VersionedCommit,
)
from tidelog.core.order.flaws import flaw_in_state
from tidelog.core.order.machine import OrderMachine
from tidelog.core.order.state import (
    OrderState,
    ReplicaOrder,
    StreamHistory,
    StreamOrder,
    TopicOrder,
)
from tidelog.errors import CorruptData
from tidelog.invariants import InvariantViolation
from tidelog.types import (
    FIRST_TERM,
    Glsn,
    Llsn,
    NodeId,
    Revision,
    StreamId,
    Term,
    TopicId,
    Version,
)


def busy_machine() -> OrderMachine:
    """Streams 1 and 2 in topic 1, 3 in topic 2; cut 1 is kept for stream 2 alone, 3 to 4 whole."""
    machine = machine_of(1, 2, on=THREE)
    machine.step(CreateTopic(T2, new(3, on=THREE), "others", Quorum.ALL))
    both = [report(stream, 1, stream, node=node) for stream in (1, 2) for node in THREE]
    cut(machine, *both)
    acknowledge(machine, 1, *THREE)
    machine.step(update(machine, 2, term=2, leader=1, plan=b"elect"))
    for _ in range(3):
        cut_all(machine, 3, 1)
    cut_all(machine, 1, 1)
    return machine


def test_the_busy_machine_has_all_kinds_of_history() -> None:
    state = busy_machine().state
    assert flaw_in_state(state) is None
    assert [kept.version for kept in state.cuts] == [4, 5]
    assert [(kept.stream, kept.forgotten, len(kept.older)) for kept in state.histories] == [
        (1, 1, 0),
        (2, 0, 1),
        (3, 3, 0),
    ]


def test_a_restored_machine_goes_on_where_it_stopped() -> None:
    machine = busy_machine()
    restored = OrderMachine.restore(machine.state)
    assert restored.state == machine.state
    for stream in (1, 2, 3):
        for version in range(6):
            assert missed(restored, stream, version) == missed(machine, stream, version)
    for command in (now(machine, 3, 2, node=1), now(machine, 3, 2, node=2), Cut()):
        assert restored.step(command) == machine.step(command)
    assert restored.state == machine.state


def test_what_waits_for_a_cut_still_waits_after_a_restart() -> None:
    machine = machine_of(1, 2)
    cut(machine, report(1, 1, 3), report(2, 1, 1))
    machine.step(now(machine, 2, 2))
    restored = OrderMachine.restore(machine.state)
    assert restored.has_pending
    assert cut(restored) == cut(machine) == decided(2, commit(2, 6, 5, 2, 2))


def test_a_sealed_stream_is_still_sealed_after_a_restart() -> None:
    machine = machine_of(1)
    machine.step(report(1, 1, 3))
    machine.step(update(machine, 1, status=StreamStatus.SEALED))
    assert not OrderMachine.restore(machine.state).has_pending


def test_names_are_known_after_a_restart() -> None:
    restored = OrderMachine.restore(busy_machine().state)
    with pytest.raises(Exception, match="'others'"):
        restored.step(CreateTopic(TopicId(3), new(9), "others"))


def test_a_state_from_a_manifest_has_nothing_waiting() -> None:
    stream = StreamOrder.settled(
        T1,
        S1,
        NodeId(1),
        term=FIRST_TERM,
        version=Version(4),
        glsn_end=Glsn(9),
        llsn_end=Llsn(9),
    )
    topic = TopicOrder(T1, (S1,), "events", high_watermark=Glsn(8))
    machine = OrderMachine.restore(OrderState(Version(6), (topic,), (stream,)))
    assert cut(machine) is None
    assert cut(machine, now(machine, 1, 1)) == decided(7, commit(1, 9, 9, 9, 1))


@pytest.mark.parametrize(
    "command",
    [
        CreateTopic(T1, new(1, 2, on=THREE), "events", Quorum.ALL),
        AddStreams(T1, new(3)),
        RemoveStream(S1, Revision(4)),
        UpdateStream(S1, Revision(1), Term(2), nodes(THREE), NodeId(1), StreamStatus.SEALED, b"x"),
        report(1, 2, 3, node=4, version=5, term=6),
        Cut(),
    ],
)
def test_commands_survive_the_log(command: Command) -> None:
    data = msgspec.msgpack.encode(command)
    assert msgspec.msgpack.decode(data, type=Command) == command


def test_a_state_survives_a_snapshot() -> None:
    state = busy_machine().state
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=OrderState) == state


# -- flaws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        ({"topic": T2}, "S1"),
        ({"stream": S2}, "S1"),
        ({"stream": StreamId(9)}, "S1"),
        ({"llsn_end": Llsn(2)}, "S2"),
        ({"version": Version(9)}, "S3"),
        ({"version": Version(-1)}, "S3"),
        ({"version": Version(0)}, "S3"),
        ({"llsn_end": Llsn(1)}, "S3"),
        ({"term": Term(0)}, "S3"),
        ({"revision": Revision(0)}, "S3"),
        ({"replicas": (ReplicaOrder(NodeId(1), Version(6)),)}, "S3"),
        ({"replicas": (ReplicaOrder(NodeId(1), Version(-1)),)}, "S3"),
        ({"replicas": (ReplicaOrder(NodeId(1), end=Llsn(-1)),)}, "S3"),
        ({"glsn_end": Glsn(6)}, "S4"),
        ({"glsn_end": Glsn(2)}, "S4"),
        ({"llsn_end": Llsn(1), "version": Version(0)}, "S4"),
        ({"replicas": ()}, "S5"),
        ({"replicas": (ReplicaOrder(NodeId(0)),)}, "S5"),
        ({"replicas": (ReplicaOrder(NodeId(2)), ReplicaOrder(NodeId(1)))}, "S5"),
        ({"departed": nodes((5, 4))}, "S5"),
        ({"departed": nodes((0,))}, "S5"),
        ({"departed": nodes((1,))}, "S5"),
        ({"departed": nodes(range(10, 11 + limits.ENSEMBLE_DEPARTED_MAX))}, "S5"),
        ({"version": Version(4)}, "S7"),
        ({"glsn_end": Glsn(4)}, "S7"),
    ],
)
def test_a_stream_that_contradicts_the_state_is_corruption(
    change: dict[str, object], invariant: str
) -> None:
    state = busy_machine().state
    first = msgspec.convert({**msgspec.structs.asdict(state.streams[0]), **change}, dict)
    with pytest.raises(CorruptData, match=invariant):
        OrderMachine.restore(replace(state, streams=(StreamOrder(**first), *state.streams[1:])))


def test_topics_that_contradict_their_streams_are_corruption() -> None:
    state = busy_machine().state
    topic, other = state.topics
    for topics, invariant in (
        ((topic, other, topic), "S1"),
        ((topic, replace(other, name=topic.name)), "S1"),
        ((replace(topic, streams=(S1,)), other), "S1"),
        ((replace(topic, streams=(S1, StreamId(9))), other), "S1"),
        ((replace(topic, streams=(S1, S1)), other), "S1"),
        ((replace(topic, high_watermark=Glsn(5)), other), "S2"),
        ((replace(topic, removed_entries=1), other), "S2"),
    ):
        with pytest.raises(CorruptData, match=invariant):
            OrderMachine.restore(replace(state, topics=topics))


def test_removed_streams_cannot_make_two_entries_fit_one_glsn() -> None:
    streams = [
        StreamOrder(T1, stream, (ReplicaOrder(NodeId(1)),), Version(1), Glsn(2), Llsn(2))
        for stream in (S1, S2)
    ]
    topic = TopicOrder(T1, (S1, S2), high_watermark=Glsn(1), removed_entries=-1)
    with pytest.raises(CorruptData, match="S2"):
        OrderMachine.restore(OrderState(Version(1), (topic,), tuple(streams)))


def test_a_state_of_a_negative_version_is_corruption() -> None:
    with pytest.raises(CorruptData, match="S3"):
        OrderMachine.restore(OrderState(Version(-1)))


FOUR = decided(4, commit(3, 3, 3, 3, 1, topic=2))
FIVE = decided(5, commit(1, 4, 4, 2, 1))


@pytest.mark.parametrize(
    ("cuts", "invariant"),
    [
        ((FIVE, FOUR), "S6"),
        ((FOUR,), "S6"),
        ((FOUR, replace(FIVE, version=Version(6))), "S6"),
        ((FOUR, replace(FIVE, commits=())), "S6: D1"),
        ((FOUR, decided(5, commit(1, 4, 4, 2, 0))), "S6: D2"),
        ((FOUR, decided(5, commit(1, 5, 4, 2, 1))), "S6: D4"),
        ((FOUR, decided(5, commit(9, 4, 4, 2, 1))), "S6.*never existed"),
        ((FOUR, decided(5, commit(1, 4, 4, 2, 1, topic=2))), "S6.*not one of"),
        ((FOUR, decided(5, commit(1, 5, 5, 2, 1))), "S6: topic 1"),
        ((decided(4, commit(1, 3, 3, 1, 1)), decided(5, commit(1, 5, 5, 2, 1))), "S6.*gap"),
        ((FOUR, decided(5, commit(1, 4, 4, 3, 1))), "S7"),
        ((FIVE,), "S7: stream 3"),
        ((decided(4, commit(2, 3, 3, 3, 1)), FIVE), "S7: stream 2"),
    ],
)
def test_kept_cuts_that_contradict_the_state_are_corruption(
    cuts: tuple[CutDecided, ...], invariant: str
) -> None:
    state = busy_machine().state
    assert state.cuts == (FOUR, FIVE)
    with pytest.raises(CorruptData, match=invariant):
        OrderMachine.restore(replace(state, cuts=cuts))


def test_more_kept_cuts_than_versions_are_corruption() -> None:
    state = OrderState(Version(0), cuts=(decided(0, commit(1, 1, 1, 1, 1)),))
    with pytest.raises(CorruptData, match="S6"):
        OrderMachine.restore(state)


OLDER = VersionedCommit(Version(1), commit(2, 3, 2, 1, 2))


@pytest.mark.parametrize(
    "second",
    [
        StreamHistory(StreamId(9), Version(0), (OLDER,)),
        StreamHistory(S2, Version(0), ()),
        StreamHistory(S2, Version(1), (OLDER,)),
        StreamHistory(S2, Version(-1), (OLDER,)),
        StreamHistory(S2, Version(0), (replace(OLDER, version=Version(4)),)),
        StreamHistory(S2, Version(0), (replace(OLDER, version=Version(2)),)),
        StreamHistory(S2, Version(0), (OLDER, OLDER)),
        StreamHistory(S2, Version(0), (replace(OLDER, commit=commit(1, 3, 2, 1, 2)),)),
        StreamHistory(S2, Version(0), (replace(OLDER, commit=commit(2, 3, 2, 1, 2, term=9)),)),
        StreamHistory(
            S2,
            Version(0),
            (
                VersionedCommit(Version(1), commit(2, 2, 2, 1, 1)),
                VersionedCommit(Version(2), commit(2, 3, 3, 1, 1)),
            ),
        ),
    ],
)
def test_a_history_that_contradicts_its_stream_is_corruption(second: StreamHistory) -> None:
    state = busy_machine().state
    first, _, third = state.histories
    with pytest.raises(CorruptData, match="S7"):
        OrderMachine.restore(replace(state, histories=(first, second, third)))


@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 3)])
def test_kept_commits_whose_terms_fall_or_never_began_are_corruption(
    first: int, second: int
) -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 1))
    machine.step(update(machine, 1, term=2))
    cut(machine, report(1, 1, 2, term=2))
    cuts = (decided(1, commit(1, 1, 1, 1, 1, term=first)), decided(2, commit(1, 2, 2, 2, 1)))
    last = replace(cuts[1].commits[0], term=Term(second))
    state = replace(machine.state, cuts=(cuts[0], replace(cuts[1], commits=(last,))))
    with pytest.raises(CorruptData, match=r"S7.*term"):
        OrderMachine.restore(state)


def test_histories_that_are_missing_or_out_of_order_are_corruption() -> None:
    state = busy_machine().state
    first, second, third = state.histories
    for histories in ((), (second, third), (first, third, second), (first, second, second)):
        with pytest.raises(CorruptData, match="S7"):
            OrderMachine.restore(replace(state, histories=histories))


def test_a_miscounted_machine_does_not_validate() -> None:
    machine = machine_of(1)
    machine.step(report(1, 1, 1))
    machine._pending.clear()
    with pytest.raises(InvariantViolation, match="O2"):
        machine.validate()
    machine = busy_machine()
    machine._history._missed[0] += 1
    with pytest.raises(InvariantViolation, match="H4"):
        machine.validate()


# -- what continues an order ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "invariant"),
    [
        (decided(1, commit(1, 5, 5, 4, 1)), "D1"),  # the last one again
        (decided(3, commit(1, 5, 5, 4, 1)), "D1"),  # one is left out
        (decided(2), "D1"),
        (decided(2, commit(2, 6, 5, 2, 1), commit(1, 6, 6, 4, 1)), "D2"),
        (decided(2, commit(1, 6, 5, 4, 1), commit(1, 6, 6, 5, 1)), "D2"),
        (decided(2, commit(1, 5, 5, 4, 1, topic=2)), "D2"),
        (decided(2, commit(3, 5, 5, 1, 1)), "D2"),
        (decided(2, commit(1, 4, 5, 4, 0)), "D2"),
        (decided(2, commit(4, 5, 5, 1, 1)), "D2: stream 4 is sealed"),
        (decided(2, commit(1, 5, 5, 3, 1)), "D3"),
        (decided(2, commit(1, 5, 5, 5, 1)), "D3"),
        (decided(2, commit(1, 4, 4, 4, 1)), "D4"),
        (decided(2, commit(1, 6, 6, 4, 1)), "D4"),
        (decided(2, commit(1, 6, 5, 4, 1)), "D4"),
        (decided(2, commit(1, 7, 5, 4, 1), commit(2, 7, 7, 2, 1)), "D4"),
    ],
)
def test_a_cut_that_does_not_come_next_is_told_apart(found: CutDecided, invariant: str) -> None:
    machine = machine_of(1, 2, 4)
    cut(machine, report(1, 1, 3), report(2, 1, 1))
    machine.step(update(machine, 4, status=StreamStatus.SEALED))
    flaw = flaw_in_cut(found, machine.version, machine.streams, machine.topics)
    assert flaw is not None
    assert flaw.startswith(invariant)
