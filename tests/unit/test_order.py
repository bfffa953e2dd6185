"""The order layer: reports in, cuts out (invariants O1 to O4, D1 to D4, S1 to S4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tidelog import limits
from tidelog.core.order import machine as machine_module
from tidelog.core.order.commands import (
    AddStreams,
    ChangeTerm,
    Command,
    CreateTopic,
    Cut,
    CutDecided,
    Report,
    StreamCommit,
)
from tidelog.core.order.decide import decide
from tidelog.core.order.machine import Ignored, OrderMachine
from tidelog.core.order.state import OrderState, StreamOrder, TopicOrder, flaw_in_state
from tidelog.errors import BadOption, CorruptData, TopicExists, UnknownStream, UnknownTopic
from tidelog.invariants import InvariantViolation
from tidelog.types import FIRST_TERM, Glsn, Llsn, StreamId, Term, TopicId, Version

T1, T2 = TopicId(1), TopicId(2)


def streams(*numbers: int) -> tuple[StreamId, ...]:
    return tuple(StreamId(number) for number in numbers)


def report(stream: int, begin: int, length: int, *, version: int = 0, term: int = 1) -> Report:
    return Report(StreamId(stream), Term(term), Version(version), Llsn(begin), length)


def commit(
    stream: int, high: int, glsn: int, llsn: int, length: int, *, topic: int = 1
) -> StreamCommit:
    return StreamCommit(
        TopicId(topic), StreamId(stream), Glsn(high), Glsn(glsn), Llsn(llsn), length
    )


def machine_of(*numbers: int, topic: TopicId = T1) -> OrderMachine:
    machine = OrderMachine()
    machine.step(CreateTopic(topic, streams(*numbers), "events"))
    return machine


def cut(machine: OrderMachine, *reports: Report) -> CutDecided | None:
    for each in reports:
        assert machine.step(each) == []
    effects = machine.step(Cut())
    assert len(effects) <= 1
    return effects[0] if effects else None


def now(machine: OrderMachine, stream: int, length: int) -> Report:
    """What an up-to-date replica of the stream reports."""
    order = machine.stream(StreamId(stream))
    return Report(order.stream, order.term, machine.version, order.llsn_end, length)


def test_streams_get_their_glsns_in_the_order_of_their_numbers() -> None:
    """The example of the order-layer document: high watermark 10, then 3 and 2 entries."""
    machine = machine_of(1, 2)
    cut(machine, report(1, 1, 6), report(2, 1, 4))
    assert machine.topic(T1).high_watermark == 10
    decided = cut(machine, now(machine, 2, 2), now(machine, 1, 3))
    assert decided == CutDecided(Version(2), (commit(1, 15, 11, 7, 3), commit(2, 15, 14, 5, 2)))


def test_three_cuts_over_three_streams_leave_no_gap() -> None:
    """The table of the document, repaired: the second cut gives 5, 6 to 7 and 8 to 10."""
    machine = machine_of(1, 2, 3)
    glsns = []
    for lengths in ((2, 1, 1), (1, 2, 3), (2, 1, 3)):
        decided = cut(machine, *(now(machine, i + 1, n) for i, n in enumerate(lengths)))
        assert decided is not None
        glsns.append([(c.glsn_begin, c.glsn_end - 1) for c in decided.commits])
    assert glsns == [
        [(1, 2), (3, 3), (4, 4)],
        [(5, 5), (6, 7), (8, 10)],
        [(11, 12), (13, 13), (14, 16)],
    ]
    assert machine.version == 3


def test_an_idle_cut_decides_nothing() -> None:
    machine = machine_of(1, 2)
    assert machine.step(Cut()) == []
    assert cut(machine, report(1, 1, 0), report(2, 1, 0)) is None
    assert cut(machine, report(1, 1, 2)) is not None
    before = machine.state
    assert machine.step(Cut()) == []
    assert machine.state == before


def test_a_stream_without_entries_learns_the_cut_from_an_empty_commit() -> None:
    machine = machine_of(1, 2)
    assert machine.empty_commit(StreamId(1)) == (0, commit(1, 0, 1, 1, 0))
    cut(machine, report(1, 1, 1), report(2, 1, 1))
    decided = cut(machine, now(machine, 1, 0), now(machine, 2, 1))
    assert decided == CutDecided(Version(2), (commit(2, 3, 3, 2, 1),))
    assert machine.empty_commit(StreamId(1)) == (2, commit(1, 3, 2, 2, 0))


def test_a_repeated_report_is_ordered_once() -> None:
    machine = machine_of(1)
    decided = cut(machine, report(1, 1, 2), report(1, 1, 2))
    assert decided == CutDecided(Version(1), (commit(1, 2, 1, 1, 2),))
    assert cut(machine, report(1, 1, 2)) is None
    assert machine.ignored == {Ignored.REPEATED: 1, Ignored.ALREADY_ORDERED: 1}


def test_an_old_report_with_more_entries_orders_only_the_excess() -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 2))
    cut(machine, report(1, 3, 3, version=1))
    decided = cut(machine, report(1, 1, 9, version=0))
    assert decided == CutDecided(Version(3), (commit(1, 9, 6, 6, 4),))


def test_a_report_that_shrinks_takes_nothing_back() -> None:
    machine = machine_of(1)
    decided = cut(machine, report(1, 1, 5), report(1, 1, 3))
    assert decided == CutDecided(Version(1), (commit(1, 5, 1, 1, 5),))


@pytest.mark.parametrize(
    ("ignored", "reason"),
    [
        (report(9, 1, 1), Ignored.UNKNOWN_STREAM),
        (report(1, 4, 1, version=1, term=1), Ignored.OLD_TERM),
        (report(1, 4, 1, version=1, term=3), Ignored.UNKNOWN_TERM),
        (report(1, 0, 5, version=1, term=2), Ignored.INVALID),
        (report(1, 4, -1, version=1, term=2), Ignored.INVALID),
        (report(1, 4, 1, version=-1, term=2), Ignored.INVALID),
        (report(1, 4, 1, version=2, term=2), Ignored.UNKNOWN_VERSION),
        (report(1, 5, 1, version=1, term=2), Ignored.GAP),
        (report(1, 3, 9, version=1, term=2), Ignored.CONTRADICTION),
        (report(1, 4, 9, version=0, term=2), Ignored.CONTRADICTION),
        (report(1, 1, 3, version=0, term=2), Ignored.ALREADY_ORDERED),
        (report(1, 4, 0, version=1, term=2), Ignored.ALREADY_ORDERED),
        (report(1, 4, 1, version=1, term=2), Ignored.REPEATED),
    ],
)
def test_a_report_that_does_not_count_is_ignored_for_a_named_reason(
    ignored: Report, reason: Ignored
) -> None:
    machine = machine_of(1)
    cut(machine, report(1, 1, 3))
    machine.step(ChangeTerm(StreamId(1), Term(2)))
    machine.step(report(1, 4, 2, version=1, term=2))
    before = machine.state
    assert machine.step(ignored) == []
    assert machine.state == before
    assert machine.ignored == {reason: 1}


def test_a_new_term_voids_what_was_reported_in_the_old_one() -> None:
    machine = machine_of(1)
    machine.step(report(1, 1, 5))
    machine.step(ChangeTerm(StreamId(1), Term(2)))
    assert cut(machine) is None
    decided = cut(machine, report(1, 1, 2, term=2))
    assert decided == CutDecided(Version(1), (commit(1, 2, 1, 1, 2),))


def test_a_term_never_goes_back() -> None:
    machine = machine_of(1)
    machine.step(ChangeTerm(StreamId(1), Term(3)))
    for term in (3, 2):
        machine.step(ChangeTerm(StreamId(1), Term(term)))
    assert machine.stream(StreamId(1)).term == 3
    assert machine.ignored == {Ignored.OLD_TERM: 2}
    with pytest.raises(UnknownStream):
        machine.step(ChangeTerm(StreamId(9), Term(2)))


def test_topics_count_their_glsns_apart_but_share_one_version() -> None:
    machine = machine_of(3, topic=T2)
    machine.step(CreateTopic(T1, streams(5)))
    decided = cut(machine, report(3, 1, 2), report(5, 1, 4))
    assert decided == CutDecided(
        Version(1), (commit(5, 4, 1, 1, 4), commit(3, 2, 1, 1, 2, topic=2))
    )


def test_added_streams_continue_the_glsns_of_their_topic() -> None:
    machine = machine_of(2)
    cut(machine, report(2, 1, 7))
    machine.step(AddStreams(T1, streams(1)))
    decided = cut(machine, report(1, 1, 1), now(machine, 2, 1))
    assert decided == CutDecided(Version(2), (commit(1, 9, 8, 1, 1), commit(2, 9, 9, 8, 1)))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (CreateTopic(T1, streams(7)), TopicExists),
        (CreateTopic(T2, streams(7), "events"), TopicExists),
        (CreateTopic(T2, streams(7), "x" * (limits.TOPIC_NAME_CHARS_MAX + 1)), BadOption),
        (CreateTopic(T2, ()), BadOption),
        (CreateTopic(T2, streams(7, 7)), BadOption),
        (CreateTopic(T2, streams(7, 1)), BadOption),
        (AddStreams(T2, streams(7)), UnknownTopic),
        (AddStreams(T1, streams(1)), BadOption),
        (AddStreams(T1, streams(*range(2, limits.STREAMS_PER_TOPIC_MAX + 2))), BadOption),
    ],
)
def test_a_refused_command_changes_nothing(command: Command, error: type[Exception]) -> None:
    machine = machine_of(1)
    before = machine.state
    with pytest.raises(error):
        machine.step(command)
    assert machine.state == before


def test_the_number_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TOPICS_MAX", 1)
    with pytest.raises(BadOption):
        machine_of(1).step(CreateTopic(T2, streams(2)))


def test_a_restored_topic_goes_on_where_it_stopped() -> None:
    machine = machine_of(1, 2)
    cut(machine, report(1, 1, 3), report(2, 1, 1))
    machine.step(now(machine, 2, 2))
    restored = OrderMachine.restore(machine.state)
    assert restored.state == machine.state
    assert cut(restored) == cut(machine) == CutDecided(Version(2), (commit(2, 6, 5, 2, 2),))


def test_a_state_from_a_manifest_has_nothing_waiting() -> None:
    stream = StreamOrder.settled(
        T1, StreamId(1), term=FIRST_TERM, version=Version(4), glsn_end=Glsn(9), llsn_end=Llsn(9)
    )
    state = OrderState(Version(6), (TopicOrder(T1, streams(1), "events", Glsn(8)),), (stream,))
    machine = OrderMachine.restore(state)
    assert cut(machine) is None
    assert cut(machine, now(machine, 1, 1)) == CutDecided(Version(7), (commit(1, 9, 9, 9, 1),))


def sound_state() -> OrderState:
    machine = machine_of(1, 2)
    cut(machine, report(1, 1, 3), report(2, 1, 1))
    return machine.state


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        ({"topic": T2}, "S1"),
        ({"stream": StreamId(2)}, "S1"),
        ({"llsn_end": Llsn(3)}, "S2"),
        ({"version": Version(2)}, "S3"),
        ({"version": Version(0)}, "S3"),
        ({"term": Term(0)}, "S3"),
        ({"glsn_end": Glsn(6)}, "S4"),
        ({"glsn_end": Glsn(3)}, "S4"),
        ({"reported_end": Llsn(3)}, "S4"),
        ({"llsn_end": Llsn(1)}, "S4"),
    ],
)
def test_a_stream_that_contradicts_the_state_is_corruption(
    change: dict[str, int], invariant: str
) -> None:
    state = sound_state()
    first = replace(state.streams[0], **change)
    with pytest.raises(CorruptData, match=invariant):
        OrderMachine.restore(replace(state, streams=(first, state.streams[1])))


def test_topics_that_contradict_their_streams_are_corruption() -> None:
    state = sound_state()
    (topic,) = state.topics
    assert flaw_in_state(state) is None
    for topics, invariant in (
        ((topic, topic), "S1"),
        ((replace(topic, streams=streams(1)),), "S1"),
        ((replace(topic, streams=streams(1, 3)),), "S1"),
        ((replace(topic, streams=streams(1, 1)),), "S1"),
        ((replace(topic, high_watermark=Glsn(5)),), "S2"),
    ):
        with pytest.raises(CorruptData, match=invariant):
            OrderMachine.restore(replace(state, topics=topics))


def test_replayed_cuts_give_the_state_that_deciding_them_gave() -> None:
    machine, recovered = machine_of(1, 2, 3), machine_of(1, 2, 3)
    for lengths in ((2, 0, 1), (0, 4, 0), (1, 1, 1)):
        decided = cut(machine, *(now(machine, i + 1, n) for i, n in enumerate(lengths)))
        assert decided is not None
        recovered.replay(decided)
    assert recovered.state == machine.state


@pytest.mark.parametrize(
    ("decided", "invariant"),
    [
        (CutDecided(Version(1), (commit(1, 5, 5, 4, 1),)), "D1"),  # the last one again
        (CutDecided(Version(3), (commit(1, 5, 5, 4, 1),)), "D1"),  # one is left out
        (CutDecided(Version(2), ()), "D1"),
        (CutDecided(Version(2), (commit(2, 6, 5, 2, 1), commit(1, 6, 6, 4, 1))), "D2"),
        (CutDecided(Version(2), (commit(1, 6, 5, 4, 1), commit(1, 6, 6, 5, 1))), "D2"),
        (CutDecided(Version(2), (commit(1, 5, 5, 4, 1, topic=2),)), "D2"),
        (CutDecided(Version(2), (commit(3, 5, 5, 1, 1),)), "D2"),
        (CutDecided(Version(2), (commit(1, 4, 5, 4, 0),)), "D2"),
        (CutDecided(Version(2), (commit(1, 5, 5, 3, 1),)), "D3"),
        (CutDecided(Version(2), (commit(1, 5, 5, 5, 1),)), "D3"),
        (CutDecided(Version(2), (commit(1, 4, 4, 4, 1),)), "D4"),
        (CutDecided(Version(2), (commit(1, 6, 6, 4, 1),)), "D4"),
        (CutDecided(Version(2), (commit(1, 6, 5, 4, 1),)), "D4"),
        (CutDecided(Version(2), (commit(1, 7, 5, 4, 1), commit(2, 7, 7, 2, 1))), "D4"),
    ],
)
def test_a_cut_that_does_not_come_next_is_corruption(decided: CutDecided, invariant: str) -> None:
    machine = OrderMachine.restore(sound_state())
    with pytest.raises(CorruptData, match=invariant):
        machine.replay(decided)
    assert machine.state == sound_state()


def test_a_cut_visits_only_the_streams_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[int] = []

    def counting_decide(
        version: Version, pending: list[StreamOrder], topics: dict[TopicId, TopicOrder]
    ) -> CutDecided | None:
        visited.append(len(pending))
        return decide(version, pending, topics)

    monkeypatch.setattr(machine_module, "decide", counting_decide)
    machine = machine_of(*range(1, 2001))
    cut(machine, report(1500, 1, 1), report(7, 1, 1), report(8, 1, 0))
    cut(machine)
    assert visited == [2, 0]


def commands() -> st.SearchStrategy[Command]:
    any_report = st.builds(
        report,
        st.integers(1, 5),
        st.integers(0, 8),
        st.integers(-1, 6),
        version=st.integers(0, 5),
        term=st.integers(1, 2),
    )
    change_term = st.builds(ChangeTerm, st.integers(1, 4).map(StreamId), st.just(Term(2)))
    return st.one_of(any_report, any_report, any_report, st.just(Cut()), change_term)


def new_machine() -> OrderMachine:
    machine = machine_of(1, 3)
    machine.step(CreateTopic(T2, streams(2, 4)))
    return machine


@settings(max_examples=300, deadline=None)
@given(st.lists(commands() | st.integers(1, 4), max_size=50))
def test_glsns_are_dense_and_unique_whatever_is_reported(history: list[Command | int]) -> None:
    """Random reports, mixed with up-to-date ones (an int names the stream) to make progress."""
    machine, recovered = new_machine(), new_machine()
    issued: dict[int, list[int]] = {1: [], 2: []}
    ordered: dict[int, list[int]] = {1: [], 2: [], 3: [], 4: []}
    for item in [*history, Cut()]:
        command = now(machine, item, item) if isinstance(item, int) else item
        for decided in machine.step(command):
            assert decided.version == recovered.version + 1
            recovered.replay(decided)
            for each in decided.commits:
                issued[each.topic].extend(range(each.glsn_begin, each.glsn_end))
                ordered[each.stream].extend(range(each.llsn_begin, each.llsn_end))
        assert flaw_in_state(machine.state) is None
        assert OrderMachine.restore(machine.state).state == machine.state
    for sequence in (*issued.values(), *ordered.values()):
        assert sequence == list(range(1, len(sequence) + 1))
    assert machine.topic(T1).high_watermark == len(issued[1])


@given(st.lists(commands(), max_size=40), st.integers(0, 40))
def test_the_same_commands_give_the_same_cuts_from_any_restored_state(
    history: list[Command], restart_at: int
) -> None:
    steady, restarted = new_machine(), new_machine()
    for position, command in enumerate(history):
        if position == restart_at:
            restarted = OrderMachine.restore(restarted.state)
        assert steady.step(command) == restarted.step(command)
    assert steady.state == restarted.state


@given(
    st.lists(
        st.dictionaries(st.integers(1, 4), st.integers(1, 50), min_size=1, max_size=4), max_size=8
    )
)
def test_ordering_at_once_is_the_same_as_reporting_and_cutting(
    rounds: list[dict[int, int]],
) -> None:
    reporting, at_once = OrderMachine(), OrderMachine()
    for machine in (reporting, at_once):
        machine.step(CreateTopic(T1, streams(1, 2)))
        machine.step(CreateTopic(T2, streams(3, 4)))
    for added in rounds:
        ends: dict[StreamId, Llsn] = {}
        for number, length in added.items():
            stream = StreamId(number)
            order = reporting.stream(stream)
            ends[stream] = Llsn(order.llsn_end + length)
            reporting.step(Report(stream, order.term, reporting.version, order.llsn_end, length))
        assert [at_once.order(ends)] == reporting.step(Cut())
        assert at_once.state == reporting.state
    assert at_once.order({}) is None


def test_ordering_at_once_refuses_to_go_back() -> None:
    machine = OrderMachine()
    machine.step(CreateTopic(T1, streams(1)))
    machine.order({StreamId(1): Llsn(5)})
    with pytest.raises(InvariantViolation, match="O4"):
        machine.order({StreamId(1): Llsn(4)})
