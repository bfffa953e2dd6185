"""What the shell of an operator owes its core: time, life signs, the metadata, true outcomes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.runtime.operator.shells import FAST, NODES, OPERATOR, STREAM, Bench, play, view
from tidelog.core.metadata.commands import Change
from tidelog.core.operator.output import Refused, Result
from tidelog.core.operator.plan import STEADY, Status, decode_plan
from tidelog.core.order.commands import UpdateStream
from tidelog.core.replica.entries import NO_ENTRY
from tidelog.core.replica.messages import (
    BecomeLeaderRequest,
    BecomeLeaderResponse,
    ChangeKind,
    FenceRequest,
    FenceResponse,
    StatusRequest,
)
from tidelog.errors import DeadlineExceeded, RevisionConflict
from tidelog.formats.cluster_messages import (
    NodeToOperator,
    OperatorOutcome,
    OperatorRequest,
    Ping,
    for_operator,
)
from tidelog.types import NO_VERSION, NodeId, Term


def fenced(node: NodeId, term: int) -> FenceResponse:
    return FenceResponse(
        node, OPERATOR, STREAM, Term(term), head=NO_ENTRY, version=NO_VERSION, is_complete=True
    )


def written(change: Change) -> tuple[Status, int]:
    assert isinstance(change, UpdateStream)
    return decode_plan(change.plan).status, change.leader


async def settle(bench: Bench) -> None:
    """A stream that node 1 leads."""
    bench.repository.show(view(1, plan=STEADY, leader=NODES[0], revision=5))
    await bench.until(lambda: bench.wire.to_nodes(StatusRequest))


def pings_to(bench: Bench, node: NodeId) -> int:
    return sum(target == node and isinstance(one, Ping) for target, one in bench.wire.sent)


def test_storage_nodes_that_say_nothing_are_pinged_again_and_again() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(1, streams=False))
        await bench.ticks(20)
        for node in NODES:
            assert pings_to(bench, node) >= 3
        assert not any(bench.shell.operator.is_suspected(node) for node in NODES)

    play(scenario)


def test_a_node_that_speaks_needs_no_ping_to_count_as_alive() -> None:
    async def scenario(bench: Bench) -> None:
        speaker, silent = NODES[0], NODES[1]
        bench.wire.answering.clear()
        bench.repository.show(view(1, streams=False))
        while not bench.shell.operator.is_suspected(silent):
            bench.wire.receive(speaker, Ping(1))
            await bench.ticks(1)
        assert not bench.shell.operator.is_suspected(speaker)
        assert pings_to(bench, speaker) <= 1
        assert pings_to(bench, silent) >= 3

    play(scenario)


def test_a_node_that_speaks_and_hears_nobody_is_suspected() -> None:
    """Its followers' answers do not reach it either, so it must not go on to lead."""

    async def scenario(bench: Bench) -> None:
        deaf, well = NODES[0], NODES[1]
        del bench.wire.answering[deaf]
        bench.repository.show(view(1, streams=False))
        while not bench.shell.operator.is_suspected(deaf):
            for node in (deaf, well):
                bench.wire.receive(node, Ping(1))
            await bench.ticks(1)
        assert not bench.shell.operator.is_suspected(well)

    play(scenario, replace(FAST, answer=0.1))


def test_a_node_that_stops_answering_is_suspected_and_found_again() -> None:
    async def scenario(bench: Bench) -> None:
        operator = bench.shell.operator
        bench.repository.show(view(1, streams=False))
        await bench.ticks(4)
        del bench.wire.answering[NODES[1]]
        await bench.until(lambda: operator.is_suspected(NODES[1]))
        assert not operator.is_suspected(NODES[0])
        bench.wire.answering[NODES[1]] = None
        await bench.until(lambda: not operator.is_suspected(NODES[1]))

    play(scenario)


def test_a_new_stream_gets_a_leader_step_by_step() -> None:
    async def scenario(bench: Bench) -> None:
        wire, repository = bench.wire, bench.repository
        repository.show(view(1))
        await bench.until(lambda: repository.asked)
        assert written(repository.asked[0][0]) == (Status.ELECTION, 0)
        assert not wire.to_nodes(FenceRequest), "E1: nobody is fenced before the term is written"

        repository.answer()
        await bench.until(lambda: len(wire.to_nodes(FenceRequest)) == len(NODES))
        term = wire.to_nodes(FenceRequest)[0].term
        for node in NODES:
            wire.receive(node, for_operator(fenced(node, term)))
        await bench.until(lambda: len(repository.asked) == 2)
        repository.answer()
        await bench.until(lambda: wire.to_nodes(BecomeLeaderRequest))

        chosen = wire.to_nodes(BecomeLeaderRequest)[0].target
        wire.receive(
            chosen, for_operator(BecomeLeaderResponse(chosen, OPERATOR, STREAM, Term(term)))
        )
        await bench.until(lambda: len(repository.asked) == 3)
        assert written(repository.asked[2][0]) == (Status.STEADY, chosen)
        repository.answer()
        await bench.until(lambda: not bench.shell.operator.is_at_work(STREAM))
        steps = bench.shell.counters.steps
        assert steps == {"election begun": 1, "stream settled": 1}

    play(scenario)


def test_a_write_whose_outcome_is_unknown_is_not_taken_for_done() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(1))
        await bench.until(lambda: bench.repository.asked)
        bench.repository.answer(DeadlineExceeded("nobody knows"))
        await bench.ticks(4)
        assert not bench.wire.to_nodes(FenceRequest)
        assert bench.shell.counters.writes == {"DeadlineExceeded": 1}

    play(scenario)


def test_a_write_that_somebody_was_faster_with_ends_the_election() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(1))
        await bench.until(lambda: bench.repository.asked)
        bench.repository.answer(RevisionConflict("revision 2"))
        await bench.until(lambda: not bench.shell.operator.is_at_work(STREAM))
        assert not bench.wire.to_nodes(FenceRequest)

    play(scenario)


def test_an_answer_counts_only_from_the_node_that_it_names() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(1))
        await bench.until(lambda: bench.repository.asked)
        bench.repository.answer()
        await bench.until(lambda: bench.wire.to_nodes(FenceRequest))
        term = bench.wire.to_nodes(FenceRequest)[0].term
        for node in NODES:
            bench.wire.receive(NODES[2], for_operator(fenced(node, term)))
        bench.wire.receive(NODES[2], NodeToOperator(b"\xc1"))
        await bench.ticks(4)
        assert bench.shell.counters.refused_messages == 3
        assert len(bench.repository.asked) == 1, "one of three is no majority"

    play(scenario)


def test_an_older_view_is_not_taken() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(2, plan=STEADY, leader=NODES[0], revision=5))
        bench.repository.show(view(1, streams=False))
        row = bench.shell.operator.row(STREAM)
        assert row is not None
        assert row.revision == 5
        bench.repository.show(view(3, streams=False))
        assert bench.shell.operator.row(STREAM) is None

    play(scenario)


def test_a_dead_leader_is_replaced_but_not_in_a_pause() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        bench.repository.show(view(2, plan=STEADY, leader=NODES[0], revision=5, is_paused=True))
        del bench.wire.answering[NODES[0]]
        await bench.until(lambda: bench.shell.operator.is_suspected(NODES[0]))
        await bench.ticks(10)
        assert not bench.repository.asked

        bench.repository.show(view(3, plan=STEADY, leader=NODES[0], revision=5))
        await bench.until(lambda: bench.repository.asked)
        assert written(bench.repository.asked[0][0]) == (Status.ELECTION, 0)

    play(scenario)


def test_what_a_person_asks_for_is_done_in_a_pause() -> None:
    async def scenario(bench: Bench) -> None:
        bench.repository.show(view(1, plan=STEADY, leader=NODES[0], revision=5, is_paused=True))
        bench.wire.receive(NODES[1], OperatorRequest(1, "elect", STREAM))
        await bench.until(lambda: bench.repository.asked)
        assert written(bench.repository.asked[0][0]) == (Status.ELECTION, 0)

    play(scenario)


def test_a_request_that_comes_twice_is_done_once_and_answered_twice() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        request = OperatorRequest(7, "change", STREAM, ChangeKind.SWAP, NODES[0], NodeId(4))
        bench.wire.receive(NODES[1], request)
        bench.wire.receive(NODES[1], request)
        answers = [each for each in bench.wire.sent if isinstance(each[1], OperatorOutcome)]
        assert answers == 2 * [(NODES[1], OperatorOutcome(7, Result.REFUSED, Refused.LEADER))]
        assert bench.shell.counters.requests == {"refused": 1}

    play(scenario)


def test_requests_that_make_no_sense_are_refused() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        bench.wire.receive(NODES[1], OperatorRequest(1, "change", STREAM))
        bench.wire.receive(NODES[1], OperatorRequest(2, "abort", STREAM))
        answers = [one for _, one in bench.wire.sent if isinstance(one, OperatorOutcome)]
        assert answers == [
            OperatorOutcome(1, Result.REFUSED, Refused.MALFORMED),
            OperatorOutcome(2, Result.REFUSED, Refused.NOTHING_TO_ABORT),
        ]

    play(scenario)


def test_a_program_error_in_a_write_ends_the_process() -> None:
    async def run() -> None:
        bench = Bench()
        await bench.shell.start()
        bench.repository.show(view(1))
        await bench.until(lambda: bench.repository.asked)
        bench.repository.asked[0][1].set_exception(ZeroDivisionError())
        deadline = asyncio.get_running_loop().time() + 5
        while not bench.failures and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.002)
        await bench.shell.stop()
        assert [type(error) for error in bench.failures] == [ZeroDivisionError]

    asyncio.run(run())


def test_metrics_tell_what_the_operator_sees() -> None:
    async def scenario(bench: Bench) -> None:
        await settle(bench)
        found = {metric.name: metric for metric in bench.shell.metrics()}
        (streams,) = found["tidelog_operator_streams"].samples
        assert streams.value == 1

    play(scenario)
