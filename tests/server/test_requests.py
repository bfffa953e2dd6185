"""Every request of the protocol over real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from tests.server.raw import (
    LOCAL,
    TOPIC,
    RawClient,
    batch_of,
    page_records,
    run,
    sealed,
    serving,
    socket_path,
)
from tidelog.formats.batch import encode_puts, encode_values
from tidelog.formats.message_fields import WireReceipt
from tidelog.formats.messages import (
    AddStreams,
    AppendBatches,
    Compact,
    CreateTopic,
    Describe,
    Discard,
    Done,
    Explain,
    Figures,
    FindEnd,
    FindTime,
    Get,
    Lines,
    ListTopics,
    LogFigures,
    Number,
    Page,
    Ping,
    Position,
    Publish,
    Published,
    ReadPage,
    Receipts,
    Rewrite,
    SetGcBoundary,
    StageBatches,
    Staged,
    TakeSnapshot,
    TopicDescription,
    TopicFigures,
    TopicNames,
    Trim,
)
from tidelog.interface.figures import CompactionResult, LogStats, TopicStats
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.net.endpoint import Endpoint, TcpEndpoint


def puts(*pairs: tuple[bytes, bytes]) -> bytes:
    keys, values = zip(*pairs, strict=True)
    return sealed(encode_puts(keys, values, timestamp_us=1))


async def records(client: RawClient, begin: int = 1) -> list[bytes]:
    _, found = await client.page(ReadPage(TOPIC, begin))
    return [record.value for record in found]


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["ipv4", "ipv6", "unix"])
def test_a_node_listens_at_all_kinds_of_addresses(kind: str, tmp_path: Path) -> None:
    endpoints: dict[str, Endpoint] = {
        "ipv4": LOCAL,
        "ipv6": TcpEndpoint("::1", 0),
        "unix": socket_path(tmp_path),
    }

    if kind == "ipv6" and not has_ipv6():
        pytest.skip("this machine has no IPv6")

    async def main() -> None:
        async with serving(endpoints=[endpoints[kind]]) as served, served.client() as client:
            assert isinstance(await client.ask(Ping()), Done)

    run(main())
    assert not list(tmp_path.iterdir())


def test_a_node_listens_at_several_addresses_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            serving(endpoints=[LOCAL, socket_path(tmp_path)]) as served,
            served.client(0) as one,
            served.client(1) as other,
        ):
            await one.append(b"a")
            assert await records(other) == [b"a"]

    run(main())


def test_appends_are_answered_with_their_places() -> None:
    async def main() -> None:
        async with serving(streams=2) as served, served.client() as client:
            assert (await client.append(b"a", b"b")).receipts == (WireReceipt(1, 1, 1, 2, False),)
            both = batch_of(b"c") + batch_of(b"d", b"e")
            answer = await client.ask(AppendBatches(TOPIC, (2, 1)), both)
            assert isinstance(answer, Receipts)
            assert {one.stream: one.count for one in answer.receipts} == {2: 1, 1: 2}
            assert sorted(await records(client)) == [b"a", b"b", b"c", b"d", b"e"]

    run(main())


def test_a_repeated_append_of_a_producer_is_answered_with_its_first_place() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            message = AppendBatches(TOPIC, (1,), producer=7, sequence=3)
            first = await client.ask(message, batch_of(b"a"))
            async with served.client() as other:
                again = await other.ask(message, batch_of(b"a"))
            assert isinstance(first, Receipts)
            assert isinstance(again, Receipts)
            assert again.receipts == (WireReceipt(1, 1, 1, 1, True),)
            assert await records(client) == [b"a"]

    run(main())


def test_appends_of_a_connection_keep_their_order_whatever_their_size() -> None:
    """Very large ones, and large ones with keys, are checked in threads; nothing overtakes them."""

    async def main() -> None:
        async with serving() as served, served.client() as client:
            numbers = []
            for number in range(60):
                size = {0: 1_200_000, 1: 100_000, 3: 300_000}.get(number % 7, 10)
                value = b"%d " % number + bytes(size)
                batch = puts((b"k%d" % number, value)) if number % 7 == 1 else batch_of(value)
                numbers.append(client.send(AppendBatches(TOPIC, (1,)), batch))
            for number in numbers:
                assert isinstance((await client.answer(number))[0], Receipts)
            found: list[bytes] = []
            begin = 1
            while begin <= 60:
                page, part = await client.page(ReadPage(TOPIC, begin))
                found += [record.value for record in part]
                begin = page.glsn_end
            assert [int(value.split()[0]) for value in found] == list(range(60))

    run(main())


def test_a_read_waits_at_the_end_of_the_log() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            waiting = client.send(ReadPage(TOPIC, 1, wait_ms=20_000))
            position = client.send(FindEnd(TOPIC, 1, wait_ms=20_000))
            await client.append(b"a")
            answer, attachment = await client.answer(waiting)
            assert isinstance(answer, Page)
            assert [record.value for record in page_records(answer, attachment)] == [b"a"]
            assert (await client.answer(position))[0] == Position(2, 1, 1)
            empty, _ = await client.page(ReadPage(TOPIC, 2, wait_ms=10))
            assert (empty.pieces, empty.glsn_begin, empty.glsn_end) == ((), 2, 2)
            ahead, _ = await client.page(ReadPage(TOPIC, 9, wait_ms=10))
            assert (ahead.glsn_end, ahead.high_watermark) == (9, 1)

    run(main())


def test_pages_are_bounded_and_together_hold_everything() -> None:
    async def main() -> None:
        async with serving(streams=3) as served, served.client() as client:
            for number in range(50):
                await client.append(b"%d" % number + bytes(500), stream=1 + number % 3)
            begin, seen = 1, []
            while begin <= 50:
                page, found = await client.page(ReadPage(TOPIC, begin, bytes_max=3000))
                assert sum(piece.length for piece in page.pieces) <= 3000
                assert [record.glsn for record in found] == list(range(begin, page.glsn_end))
                seen += [int(record.value.rstrip(b"\0")) for record in found]
                begin = page.glsn_end
            assert seen == list(range(50))
            _, second = await client.page(ReadPage(TOPIC, 1, streams=(2,)))
            assert {record.stream for record in second} == {2}
            _, some = await client.page(ReadPage(TOPIC, 10, 12))
            assert [record.glsn for record in some] == [10, 11]

    run(main())


def test_keys_are_found_and_deleted() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            await client.ask(AppendBatches(TOPIC, (1,)), puts((b"k", b"1"), (b"l", b"2")))
            answer, attachment = await client.answer(client.send(Get(TOPIC, b"l", 0)))
            assert isinstance(answer, Page)
            (record,) = page_records(answer, attachment)
            assert (record.key, record.value, record.glsn) == (b"l", b"2", 2)
            assert await client.ask(Get(TOPIC, b"m", 0)) == Page((), 0, 0, 0, 0)
            lines = await client.ask(Explain(TOPIC, b"k", 0))
            assert isinstance(lines, Lines)
            assert lines.lines

    run(main())


def test_topics_are_made_and_described() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            made = await client.ask(CreateTopic("other", 2, "explicit"))
            assert made == TopicDescription(2, "other", (2, 3), 2, "explicit", 1, 0)
            assert await client.ask(Describe("other")) == made
            more = await client.ask(AddStreams("other", 1))
            assert isinstance(more, TopicDescription)
            assert (more.streams, more.key_streams) == ((2, 3, 4), 2)
            assert await client.ask(ListTopics()) == TopicNames((TOPIC, "other"))
            assert isinstance(await client.ask(SetGcBoundary("other", bytes(16))), Done)

    run(main())


def test_a_log_is_kept_small_and_tells_its_figures() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for number in range(20):
                await client.ask(AppendBatches(TOPIC, (1,)), puts((b"k", b"%d" % number)))
            assert await client.ask(Trim(TOPIC, 3)) == Number(3)
            assert isinstance(await client.ask(TakeSnapshot(TOPIC)), Done)
            result = await client.ask(Compact(TOPIC, True))
            assert isinstance(result, Figures)
            assert not msgspec.json.decode(result.json, type=CompactionResult).failures
            assert isinstance(await client.ask(Rewrite(TOPIC, 10)), Number)
            topic = await client.ask(TopicFigures(TOPIC))
            assert isinstance(topic, Figures)
            assert msgspec.json.decode(topic.json, type=TopicStats).first_available == 3
            log = await client.ask(LogFigures())
            assert isinstance(log, Figures)
            assert msgspec.json.decode(log.json, type=LogStats).wal_frames > 20
            assert (await client.refusal(ReadPage(TOPIC, 1))).first_available == 3

    run(main())


def test_a_run_tells_what_waits_for_readers() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            engine = served.engine
            pins = engine.node.streams[1].pins
            for batch in (batch_of(b"a"), puts((b"k", b"old")), batch_of(b"b")):
                await client.ask(AppendBatches(TOPIC, (1,)), batch)
                await asyncio.to_thread(engine.roll)
                await asyncio.to_thread(engine.maintenance.flush_rolled)
            with pins.pinned():
                await client.ask(AppendBatches(TOPIC, (1,)), puts((b"k", b"new")))
                held = await compacted(client)
            assert (held.rewritten, held.waiting) == (0, 2)
            done = await compacted(client)
            assert (done.rewritten, done.waiting) == (2, 0)

    async def compacted(client: RawClient) -> CompactionResult:
        answer = await client.ask(Compact(TOPIC, True))
        assert isinstance(answer, Figures)
        return msgspec.json.decode(answer.json, type=CompactionResult)

    run(main())


def test_places_are_found() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for number in range(1, 11):
                body = encode_values([b"v"], timestamp_us=100 * number)
                await client.ask(AppendBatches(TOPIC, (1,)), sealed(body))
            assert await client.ask(FindTime(TOPIC, 450)) == Position(5, 1, 10)
            assert await client.ask(FindEnd(TOPIC, 3, records_max=4)) == Position(7, 1, 10)
            assert await client.ask(FindEnd(TOPIC, 3)) == Position(11, 1, 10)

    run(main())


def test_the_figures_show_who_reads_and_how_far_behind() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for _ in range(10):
                await client.append(b"v")
            await client.ask(FindEnd(TOPIC, 3, reader="report"))
            await client.refusal(FindEnd(TOPIC, 30, reader="lost"))
            refused = await client.refusal(FindEnd(TOPIC, 3, reader="\x1b[2J"))
            assert refused.error == "BadOption"
            await client.ask(FindEnd(TOPIC, 5))
            figures = await client.ask(LogFigures())
            assert isinstance(figures, Figures)
            found = msgspec.json.decode(figures.json, type=LogStats).readers
            assert [(one.name, one.glsn, one.lag) for one in found] == [("report", 3, 8)]

    run(main())


def test_batches_are_staged_published_once_and_discarded() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            stages = []
            for value in (b"a", b"b", b"unwanted"):
                staged = await client.ask(StageBatches(TOPIC, (1,)), batch_of(value))
                assert isinstance(staged, Staged)
                stages.append(staged.stage)
            assert await records(client) == []
            assert isinstance(await client.ask(Discard(TOPIC, (stages[2],))), Done)
            publish = Publish(TOPIC, "query", 0, tuple(stages[:2]))
            assert await client.ask(publish) == Published(2, False)
            assert await client.ask(publish) == Published(2, True)
            assert await records(client) == [b"a", b"b"]
            refused = await client.refusal(Publish(TOPIC, "query", 1, (stages[2],)))
            assert refused.error == "StageExpired"
            assert await client.ask(ListTopics()) == TopicNames((TOPIC,))

    run(main())


def test_the_largest_value_is_taken_and_given_back() -> None:
    value = bytes(VALUE_BYTES_MAX)

    async def main() -> None:
        async with serving() as served, served.client() as client:
            await client.append(value)
            _, found = await client.page(ReadPage(TOPIC, 1))
            assert [record.value for record in found] == [value]

    run(main())


def test_many_clients_at_once_get_what_is_theirs() -> None:
    async def main() -> None:
        async with serving(streams=2) as served:

            async def work(number: int) -> list[int]:
                async with served.client() as client:
                    glsns = []
                    for turn in range(20):
                        value = b"%d %d" % (number, turn)
                        receipts = await client.append(value, stream=1 + number % 2)
                        glsns.append(receipts.receipts[0].glsn)
                    return glsns

            glsns = await asyncio.gather(*[work(number) for number in range(20)])
            assert sorted(glsn for some in glsns for glsn in some) == list(range(1, 401))
            assert all(some == sorted(some) for some in glsns)

    run(main())
