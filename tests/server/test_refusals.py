"""What a node refuses, by which name, and that the connection goes on."""

from __future__ import annotations

import pytest

from tests.server.raw import (
    TOPIC,
    RawClient,
    batch_of,
    run,
    sealed,
    serving,
)
from tidelog.formats.batch import BatchBody, encode_entries, encode_puts, encode_values, seal_batch
from tidelog.formats.checksum import crc32c
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import (
    AddStreams,
    AppendBatches,
    CreateTopic,
    Describe,
    Done,
    FindEnd,
    Get,
    Publish,
    ReadPage,
    Receipts,
    Request,
    SetGcBoundary,
    StageBatches,
    Trim,
)
from tidelog.interface.routing import stream_of_key
from tidelog.limits import VALUE_BYTES_MAX


def puts(*pairs: tuple[bytes, bytes]) -> bytes:
    keys, values = zip(*pairs, strict=True)
    return sealed(encode_puts(keys, values, timestamp_us=1))


async def records(client: RawClient, begin: int = 1) -> list[bytes]:
    _, found = await client.page(ReadPage(TOPIC, begin))
    return [record.value for record in found]


def control() -> bytes:
    return sealed(encode_entries([Entry(Kind.CONTROL)]))


def versioned() -> bytes:
    return sealed(encode_entries([Entry(Kind.PUT, b"v", b"k", write_version=5)]))


APPEND = AppendBatches(TOPIC, (1,))
REFUSED: list[tuple[str, Request, bytes]] = [
    ("UnknownTopic", AppendBatches("none", (1,)), batch_of(b"a")),
    ("UnknownTopic", ReadPage("none", 1), b""),
    ("UnknownTopic", Describe("~stage"), b""),
    ("UnknownTopic", Trim("~publish", 1), b""),
    ("UnknownStream", AppendBatches(TOPIC, (9,)), batch_of(b"a")),
    ("UnknownStream", ReadPage(TOPIC, 1, streams=(9,)), b""),
    ("BadOption", AppendBatches(TOPIC, (1, 1)), batch_of(b"a") * 2),
    ("BadOption", AppendBatches(TOPIC, ()), b""),
    ("BadOption", AppendBatches(TOPIC, (1,), producer=1), batch_of(b"a")),
    ("BadOption", AppendBatches(TOPIC, (1,), sequence=1), batch_of(b"a")),
    ("BadOption", AppendBatches(TOPIC, (1,), 1, 2, (1, 1)), batch_of(b"a")),
    ("BadFrame", APPEND, b""),
    ("BadFrame", APPEND, batch_of(b"a") + b"more"),
    ("BadFrame", APPEND, batch_of(b"a")[:-1]),
    ("BadFrame", AppendBatches(TOPIC, (1, 2)), batch_of(b"a")),
    ("BadEntry", APPEND, control()),
    ("BadEntry", APPEND, versioned()),
    ("BadEntry", Get(TOPIC, b"", 0), b""),
    ("OutOfRange", ReadPage(TOPIC, 0), b""),
    ("OutOfRange", ReadPage(TOPIC, 5), b""),
    ("OutOfRange", FindEnd(TOPIC, 5), b""),
    ("OutOfRange", Trim(TOPIC, 5), b""),
    ("TopicExists", CreateTopic(TOPIC, 1, "log"), b""),
    ("BadOption", CreateTopic("~mine", 1, "log"), b""),
    ("BadOption", CreateTopic("t", 0, "log"), b""),
    ("BadOption", CreateTopic("t", 1, "other"), b""),
    ("BadOption", AddStreams(TOPIC, 0), b""),
    ("BadOption", SetGcBoundary(TOPIC, bytes(16)), b""),
    ("BadOption", Publish(TOPIC, "", 0, ()), b""),
    ("StageExpired", Publish(TOPIC, "w", 0, (77,)), b""),
]


@pytest.mark.parametrize(("error", "message", "attachment"), REFUSED)
def test_what_cannot_be_done_is_refused_by_name(
    error: str, message: Request, attachment: bytes
) -> None:
    async def main() -> None:
        async with serving(streams=2) as served, served.client() as client:
            refused = await client.refusal(message, attachment)
            assert refused.error == error
            assert refused.message
            # The connection goes on, and nothing was appended.
            assert await records(client) == []
            assert served.node.parts.counters.refused[error] == 1

    run(main())


def test_copies_and_batches_with_gaps_are_refused() -> None:
    entries = [Entry(Kind.PUT, b"v", b"k"), Entry(Kind.PUT, b"w", b"l")]

    async def main() -> None:
        async with serving() as served, served.client() as client:
            for body in (
                encode_entries(entries, rewritten=True),
                encode_entries(entries, llsns=[1, 5]),
            ):
                data = seal_batch(body, stream=1, term=1, first_llsn=1) + body.data
                assert (await client.refusal(APPEND, data)).error == "BadEntry"

    run(main())


def test_a_key_in_the_wrong_stream_is_refused() -> None:
    async def main() -> None:
        async with serving(streams=2) as served, served.client() as client:
            right = stream_of_key(served.engine.find_topic(TOPIC), b"k")
            wrong = 3 - right
            data = puts((b"k", b"v"))
            assert (await client.refusal(AppendBatches(TOPIC, (wrong,)), data)).error == "BadEntry"
            assert isinstance(await client.ask(AppendBatches(TOPIC, (right,)), data), Receipts)

    run(main())


def test_explicit_versions_are_needed_where_they_count() -> None:
    async def main() -> None:
        async with serving(versions="explicit") as served, served.client() as client:
            assert (await client.refusal(APPEND, puts((b"k", b"v")))).error == "BadEntry"
            assert isinstance(await client.ask(APPEND, versioned()), Receipts)
            assert isinstance(await client.ask(APPEND, batch_of(b"no key")), Receipts)
            high = Entry(Kind.PUT, b"v", b"k", write_version=(1 << 70) + 3)
            assert isinstance(await client.ask(APPEND, sealed(encode_entries([high]))), Receipts)
            boundary = (5).to_bytes(16)
            assert isinstance(await client.ask(SetGcBoundary(TOPIC, boundary)), Done)
            assert (await client.refusal(APPEND, versioned())).error == "StaleWrite"

    run(main())


def test_a_value_that_is_too_large_is_refused() -> None:
    """A client of ours would not send it."""
    size = VALUE_BYTES_MAX + 8
    data = (0).to_bytes(4, "little") + size.to_bytes(4, "little") + bytes(size)
    flags = encode_values([b"v"], timestamp_us=1).flags
    body = BatchBody(data, 1, flags, int(Kind.APPEND), 0, 1, crc32c(data))

    async def main() -> None:
        async with serving() as served, served.client() as client:
            refused = await client.refusal(APPEND, sealed(body))
            assert refused.error == "BadFrame"
            assert "larger than" in refused.message
            assert await records(client) == []

    run(main())


def test_too_much_cannot_be_staged_at_once() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            data = batch_of(bytes(VALUE_BYTES_MAX), b"more")
            refused = await client.refusal(StageBatches(TOPIC, (1,)), data)
            assert refused.error == "BatchTooLarge"
            assert "in parts" in refused.message

    run(main())
