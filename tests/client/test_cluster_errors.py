"""What a client of a cluster makes of each thing that can go wrong while it appends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import tidelog
from tests.client.fake_nodes import (
    TOPIC,
    FakeCluster,
    HangUp,
    Hold,
    MoveLeader,
    Refuse,
    Silence,
    fake_cluster,
)
from tidelog import AsyncRemoteLog
from tidelog.client import run as client_run
from tidelog.client import session
from tidelog.client.retries import Reconnect
from tidelog.errors import (
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LeaderLost,
    LogClosed,
    LogError,
    NotLeader,
    OutOfOrder,
    PartlyAppended,
    ProducerConflict,
    Sealed,
    StaleWrite,
    StorageFailed,
    Unauthorized,
    UnknownTopic,
    Unreachable,
    ValueTooLarge,
    WrongLog,
)
from tidelog.formats.messages import Describe, NamedPosition, SetPosition
from tidelog.interface.records import Ack
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.net.loops import run
from tidelog.net.security import ClientSecurity

WAIT_SECONDS = 30.0
HASTY = Reconnect(pause_first=0.001, pause_max=0.01, retry_max=0.005, chance=lambda: 0.0)
"""Short pauses, and the first address first."""
PASSING: list[LogError] = [
    NotLeader("not here"),
    OutOfOrder("too early"),
    LeaderLost("deposed"),
    Busy("too much"),
    Unreachable("the leader cannot be reached"),
    ConnectionLost("passed on, and lost"),
    StorageFailed("the disk is gone"),
]

Work = Callable[[FakeCluster, AsyncRemoteLog], Awaitable[None]]


def with_cluster(
    work: Work,
    *,
    nodes: int = 2,
    streams: int = 1,
    reconnect: Reconnect = HASTY,
    prepare: Callable[[FakeCluster], None] = lambda _: None,
    one_address: bool = False,
) -> None:
    """Do some work with a cluster and a client of it."""

    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_SECONDS),
            fake_cluster(nodes, streams, prepare=prepare) as cluster,
            await tidelog.connect_async(
                f"tidelog://{cluster.nodes[0].address}/" if one_address else cluster.url,
                reconnect=reconnect,
            ) as log,
        ):
            await work(cluster, log)

    run(main())


async def until(condition: Callable[[], bool]) -> None:
    """Look again and again; the test's own time is the limit."""
    while not condition():
        await asyncio.sleep(0.001)


async def append_all(log: AsyncRemoteLog, count: int) -> list[int]:
    """Append numbers without waiting for each; returns their GLSNs."""
    # Batches, so that many are under way: loose entries would wait for company.
    tasks = [asyncio.create_task(log.append_batch([b"%d" % number])) for number in range(count)]
    return [(await task).glsn for task in tasks]


# -- what passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_a_refusal_that_passes_is_not_told_and_changes_no_order(error: LogError) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for node in cluster.nodes:
            node.script.extend([Refuse(error)] * 3)
        assert await append_all(log, 20) == list(range(1, 21))
        assert cluster.values(1) == [b"%d" % number for number in range(20)]

    with_cluster(work)


@pytest.mark.parametrize("took", [False, True])
def test_a_connection_that_breaks_loses_and_doubles_nothing(took: bool) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.extend([HangUp(took), Hold(), HangUp(took)])
        assert await append_all(log, 20) == list(range(1, 21))
        assert cluster.values(1) == [b"%d" % number for number in range(20)]

    with_cluster(work)


def test_answers_that_overtake_one_another_belong_to_their_appends() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.extend([Hold()] * 5)
        assert await append_all(log, 10) == list(range(1, 11))

    with_cluster(work)


def test_a_leader_that_moved_is_followed_at_once() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        for node in cluster.nodes:
            node.passes_on = False
        cluster.lead(1)
        await log.append(b"b")
        asked = len(cluster.nodes[0].appends)
        await log.append(b"c")
        assert len(cluster.nodes[0].appends) == asked
        assert cluster.values(1) == [b"a", b"b", b"c"]

    with_cluster(work)


def test_nobody_leads_for_a_while() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(-1)
        appended = asyncio.create_task(append_all(log, 10))
        await until(lambda: sum(len(node.appends) for node in cluster.nodes) >= 50)
        assert not appended.done()
        # One goes first: the others would only be refused with it.
        tries = [request for node in cluster.nodes for request in node.appends[-10:]]
        assert {request.sequence for request in tries} == {1}
        cluster.lead(1)
        assert await appended == list(range(1, 11))
        assert cluster.values(1) == [b"%d" % number for number in range(10)]

    with_cluster(work)


def test_a_leader_that_dies_is_left_for_whoever_is_there() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        await cluster.nodes[0].stop()
        cluster.lead(1)
        assert (await log.append(b"b")).glsn == 2

    with_cluster(work)


def test_a_node_that_restarts_is_found_again() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        for node in cluster.nodes:
            await node.stop()
        appended = asyncio.create_task(log.append(b"b"))
        await until(lambda: log.session.channel.link is None)
        await cluster.nodes[1].start()
        cluster.lead(1)
        assert (await appended).glsn == 2

    with_cluster(work)


def test_a_node_that_is_stopping_is_left_without_a_word() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(Refuse(LogClosed("stopping")))
        assert (await log.append(b"a")).glsn == 1
        assert cluster.nodes[1].connections > 0

    with_cluster(work)


def test_a_silent_node_is_left_if_another_one_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut off from the others, and does not know that it was deposed."""
    monkeypatch.setattr(client_run, "STALL_SECONDS", 0.02)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        cluster.nodes[0].script.extend([Silence(took=False)] * 100)
        appended = asyncio.create_task(append_all(log, 5))
        await until(lambda: len(cluster.nodes[0].appends) >= 4)
        cluster.lead(1)
        assert await appended == [2, 3, 4, 5, 6]
        assert cluster.values(1)[1:] == [b"%d" % number for number in range(5)]

    with_cluster(work)


def test_a_silent_node_is_waited_for_if_the_others_say_that_it_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_run, "STALL_SECONDS", 0.02)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(Hold())
        held = asyncio.create_task(log.append(b"a"))
        asked = cluster.nodes[1].asked
        await until(lambda: sum(isinstance(request, Describe) for request in asked) >= 3)
        assert not held.done()
        await log.append(b"b")
        assert (await held).glsn == 1
        assert [request.sequence for request in cluster.nodes[0].appends] == [1, 2]

    with_cluster(work)


# -- what does not pass ---------------------------------------------------------------------------


def test_an_append_that_nobody_took_in_time_certainly_had_no_effect() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.lead(-1)
        with pytest.raises(NotLeader, match="not accepted in time") as caught:
            await log.append(b"a", timeout=0.3)
        assert caught.value.definite
        cluster.lead(0)
        await log.append(b"b")
        assert cluster.values(1) == [b"b"]

    # So slow that no try is without its answer when the time is over.
    slow = Reconnect(pause_first=1.5, pause_max=1.5, retry_max=1.5, chance=lambda: 0.0)
    with_cluster(work, reconnect=slow)


@pytest.mark.parametrize("took", [False, True])
def test_what_follows_an_append_that_was_given_up_is_not_out_of_order(took: bool) -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(Silence(took))
        lost = asyncio.create_task(log.append(b"lost", timeout=0.05))
        await until(lambda: len(cluster.nodes[0].appends) == 1)
        following = asyncio.create_task(log.append(b"following"))
        with pytest.raises(DeadlineExceeded) as caught:
            await lost
        assert not caught.value.definite
        cluster.nodes[0].hang_up()
        await following
        await log.append(b"last")
        taken = [b"lost"] if took else []
        assert cluster.values(1) == [*taken, b"following", b"last"]

    with_cluster(work)


def test_what_waits_for_company_goes_when_what_was_under_way_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_run, "STALL_SECONDS", 600)  # Nothing else is to send it.

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(Silence(took=False))
        lost = asyncio.create_task(log.append(b"lost", timeout=0.05))
        await until(lambda: len(cluster.nodes[0].appends) == 1)
        following = asyncio.create_task(log.append(b"following", timeout=5))
        with pytest.raises(DeadlineExceeded):
            await lost
        assert (await following).glsn == 1
        assert cluster.values(1) == [b"following"]

    with_cluster(work)


def test_an_append_refused_for_good_does_not_hold_back_what_follows() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.extend([Hold(), Refuse(StaleWrite("too old"))])
        batches = (log.append_batch([b"%d" % number]) for number in range(5))
        outcomes = await asyncio.gather(*batches, return_exceptions=True)
        assert [type(outcome).__name__ for outcome in outcomes].count("StaleWrite") == 1
        assert cluster.values(1) == [
            b"%d" % number
            for number, outcome in enumerate(outcomes)
            if not isinstance(outcome, StaleWrite)
        ]

    with_cluster(work)


def test_a_record_that_is_too_large_is_told_before_it_is_sent() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        with pytest.raises(ValueTooLarge):
            await log.append(bytes(VALUE_BYTES_MAX + 1))
        assert cluster.nodes[0].appends == cluster.nodes[1].appends == []

    with_cluster(work)


def test_an_append_to_several_streams_is_one_for_each_and_tells_of_half_a_success() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        items = [(b"key-%d" % number, b"%d" % number) for number in range(20)]
        receipts = await log.put_batch(items)
        assert sorted(receipt.stream for receipt in receipts) == [1, 2, 3]
        assert sum(receipt.count for receipt in receipts) == 20
        assert all(len(request.streams) == 1 for request in cluster.nodes[0].appends)
        cluster.nodes[0].script.append(Refuse(StaleWrite("too old")))
        with pytest.raises(PartlyAppended, match="too old") as caught:
            await log.put_batch(items)
        assert not caught.value.definite
        cluster.nodes[0].script.extend([Refuse(StaleWrite("too old"))] * 3)
        with pytest.raises(StaleWrite):
            await log.put_batch(items)

    with_cluster(work, streams=3)


def test_numbers_of_the_caller_are_sent_as_they_are_and_tried_again() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        script = cluster.nodes[0].script
        script.extend([Refuse(error) for error in (NotLeader(""), LeaderLost(""), Busy(""))])
        script.append(HangUp(took=True))
        receipt = await log.append(b"a", producer="p", sequence=7)
        assert (receipt.glsn, receipt.duplicate) == (1, True)
        script.append(Refuse(ProducerConflict("used before")))
        for node in cluster.nodes:
            node.script.append(Refuse(ProducerConflict("used before")))
        with pytest.raises(ProducerConflict):
            await log.append(b"b", producer="p", sequence=7)

    with_cluster(work)


def test_a_refusal_is_no_proof_if_an_earlier_try_had_no_answer() -> None:
    """Numbered by the caller, it is tried again; what the last try was told is not the truth."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.nodes[0].script.append(HangUp(took=True))
        for node in cluster.nodes:
            node.script.extend([Refuse(NotLeader("nobody leads"))] * 1000)
        with pytest.raises((ConnectionLost, DeadlineExceeded), match="take") as caught:
            await log.append(b"a", producer="p", sequence=1, timeout=0.1)
        assert not caught.value.definite

    with_cluster(work)


def test_less_than_ordered_has_no_glsn_and_says_so() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for ack in Ack:
            await log.append(b"a", ack=ack)
            await log.append_batch([b"b"], ack=ack)
        acks = [request.ack for request in cluster.nodes[0].appends]
        assert acks == [ack.value for ack in Ack for _ in range(2)]

    with_cluster(work)


def test_a_sealed_log_stream_is_passed_over_by_whoever_has_the_choice() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        cluster.streams[1].is_sealed = True
        for _ in range(4):
            assert (await log.append(b"a")).stream == 2
            assert (await log.append_batch([b"a"])).stream == 2
        assert sum(request.streams == (1,) for request in cluster.nodes[0].appends) == 1
        with pytest.raises(Sealed):
            await log.append(b"a", stream=1)
        cluster.streams[2].is_sealed = True
        with pytest.raises(Sealed):
            await log.append(b"a")
        cluster.streams[1].is_sealed = cluster.streams[2].is_sealed = False
        for stream in (1, 2):
            await log.append(b"a", stream=stream)
        assert {(await log.append(b"a")).stream for _ in range(4)} == {1, 2}

    with_cluster(work, streams=2)


def test_log_streams_that_are_added_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "DESCRIBE_SECONDS", 0.01)

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        cluster.add_stream()
        while (await log.append(b"a")).stream != 2:
            pass
        assert log.streams == (1, 2)

    with_cluster(work)


# -- connecting -----------------------------------------------------------------------------------


def refused_with(
    error: type[LogError],
    *,
    topic: str | None = None,
    log_id: bytes = b"",
    tokens: tuple[str, str] = ("", ""),
) -> None:
    """Connecting fails with this error; ``tokens`` are those of nodes and client."""

    async def main() -> None:
        async with asyncio.timeout(WAIT_SECONDS), fake_cluster() as cluster:
            for node in cluster.nodes:
                node.token = tokens[0]
            with pytest.raises(error):
                await tidelog.connect_async(
                    cluster.url,
                    topic=topic,
                    log_id=log_id,
                    reconnect=HASTY,
                    security=ClientSecurity(token=tokens[1]),
                )

    run(main())


def test_a_wrong_token_is_told_at_once() -> None:
    refused_with(Unauthorized, tokens=("a" * 20, "b" * 20))


def test_a_topic_that_is_missing_is_told_at_once() -> None:
    refused_with(UnknownTopic, topic="missing")


def test_a_wrong_cluster_is_told_at_once() -> None:
    refused_with(WrongLog, log_id=bytes(16))


def test_one_address_of_another_cluster_among_good_ones_does_no_harm() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        await log.append(b"a")
        cluster.nodes[1].log_id = bytes(16)
        cluster.lead(2)
        await cluster.nodes[0].stop()
        assert (await log.append(b"b")).glsn == 2
        assert (await log.position()).glsn == 3

    with_cluster(work, nodes=3)


def test_the_next_address_is_tried_without_a_pause() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for node in cluster.nodes[:2]:
            await node.stop()
        cluster.lead(2)
        async with asyncio.timeout(5.0):
            assert (await log.append(b"a")).glsn == 1

    slow = Reconnect(pause_first=20.0, pause_max=20.0, chance=lambda: 0.0)
    with_cluster(work, nodes=3, reconnect=slow)


def test_moved_leaders_are_followed_while_appends_are_under_way() -> None:
    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        for node in cluster.nodes:
            node.passes_on = False
        for _ in range(5):
            cluster.nodes[0].script.extend([MoveLeader(1)])
            cluster.nodes[1].script.extend([MoveLeader(0)])
        assert await append_all(log, 50) == list(range(1, 51))
        assert cluster.values(1) == [b"%d" % number for number in range(50)]

    with_cluster(work)


def test_a_node_that_reaches_nobody_is_left_behind_what_must_not_be_repeated() -> None:
    """Whoever waits for an answer that cannot be asked for again gets it first."""

    async def work(cluster: FakeCluster, log: AsyncRemoteLog) -> None:
        node = cluster.nodes[0]

        def refuse() -> None:
            raise Unreachable("not placed everywhere yet")

        await log.append(b"a")
        node.on_read = refuse
        node.script.append(Hold())
        request = SetPosition(TOPIC, "p", 1, 0)
        asked = log.session.ask(request, NamedPosition, seconds=WAIT_SECONDS, repeat=False)
        storing = asyncio.create_task(asked)
        while not cluster.positions:
            await asyncio.sleep(0.001)
        assert [record.value async for record in log.read()] == [b"a"]
        assert storing.done()
        assert await storing == NamedPosition(1, 1)

    with_cluster(work)
