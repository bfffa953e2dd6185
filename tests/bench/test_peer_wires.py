"""What the lean clients of the benchmark send and understand."""

from __future__ import annotations

import asyncio
from struct import pack
from typing import cast

import pytest

from bench.peers.etcd import bytes_field, fields_of, int_field, numbered, transaction
from bench.peers.http2 import CallLink, frame_of
from bench.peers.kafka_wire import (
    WireError,
    check_produced,
    fetched,
    produce_request,
    record_batch,
    zigzag,
)
from bench.peers.lean import Frame
from bench.peers.nats import NatsLink
from bench.peers.rabbitmq_queues import QueueLink
from bench.peers.rabbitmq_streams import StreamLink
from bench.peers.rabbitmq_wire import amqp_frame, publish
from bench.peers.redis import RedisLink, command
from tidelog.formats.checksum import crc32c


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def set_write_buffer_limits(self, high: int) -> None:
        pass


def transport(wire: Wire) -> asyncio.Transport:
    return cast(asyncio.Transport, wire)


def in_every_split(data: bytes) -> list[tuple[bytes, bytes]]:
    return [(data[:at], data[at:]) for at in range(1, len(data))]


# -- Kafka -----------------------------------------------------------------------------------------


def fetch_answer(batches: bytes, error: int = 0) -> bytes:
    head = pack(">iii", 0, 0, 1) + pack(">h", 1) + b"t" + pack(">iih", 1, 0, error)
    return head + pack(">qqi", 0, 0, -1) + pack(">i", len(batches)) + batches


def test_numbers_of_kafka_are_zigzag() -> None:
    assert [zigzag(n) for n in (0, -1, 1, 63, -64, 64)] == [
        b"\0",
        b"\1",
        b"\2",
        b"\x7e",
        b"\x7f",
        b"\x80\x01",
    ]


def test_the_checksum_of_a_batch_covers_all_behind_it() -> None:
    batch = record_batch([b"a", b"bc"], 1)
    assert int.from_bytes(batch[17:21], "big") == crc32c(batch[21:])
    assert int.from_bytes(batch[8:12], "big") == len(batch) - 12


def test_records_of_whole_batches_are_counted_and_a_cut_off_one_is_left() -> None:
    first, second = record_batch([b"x"] * 3, 1), record_batch([b"y"] * 2, 1)
    second = (3).to_bytes(8, "big") + second[8:]
    assert fetched(fetch_answer(first + second), "t") == (5, 5)
    assert fetched(fetch_answer(first + second[:-1]), "t") == (3, 3)


def test_a_refusal_by_a_broker_is_an_error() -> None:
    with pytest.raises(WireError, match="error 6"):
        fetched(fetch_answer(b"", error=6), "t")
    answer = pack(">ii", 0, 1) + pack(">h", 1) + b"t" + pack(">iih", 1, 0, 19)
    with pytest.raises(WireError, match="error 19"):
        check_produced(answer, "t")


def test_a_request_says_how_long_it_is() -> None:
    request = produce_request("t", 0, [b"x"], 1)
    assert int.from_bytes(request[:4], "big") == len(request) - 4


# -- etcd ------------------------------------------------------------------------------------------


def test_fields_of_a_message_are_found_again() -> None:
    message = bytes_field(2, b"x" * 200) + int_field(3, 1_000) + bytes_field(2, b"")
    assert fields_of(message) == {2: [b"x" * 200, b""], 3: [1_000]}


def test_no_two_keys_of_two_transactions_are_the_same() -> None:
    request = transaction("t", [b"v", b"v"])
    keys = [
        fields_of(fields_of(operation)[2][0])[1][0]
        for number in (7, 8)
        for operation in fields_of(numbered(request, number))[2]
    ]
    assert keys == sorted(set(keys))
    assert len(keys) == 4


def test_a_call_sends_no_more_than_the_windows_allow() -> None:
    wire, link = Wire(), CallLink("/a/B", "host")
    link.connection_made(transport(wire))
    link.send(Frame(bytes(100_000)))
    assert 60_000 < len(wire.written) < 66_000
    link.data_received(frame_of(8, 0, 0, pack(">I", 100_000)))
    assert len(wire.written) < 66_000, "the window of the call is used up as well"
    link.data_received(frame_of(8, 0, 1, pack(">I", 100_000)))
    assert len(wire.written) > 100_000


def test_a_call_is_answered_by_a_message_and_trailers() -> None:
    link = CallLink("/a/B", "host")
    link.connection_made(transport(Wire()))
    link.send(Frame(b"x"))
    answer = frame_of(1, 4, 1, b"\x88") + frame_of(0, 0, 1, bytes(5)) + frame_of(1, 5, 1, b"")
    for first, second in in_every_split(answer):
        before = link.acknowledged
        link.data_received(first)
        link.data_received(second)
        assert link.acknowledged == before + 1
    assert link.failure is None


def test_trailers_alone_are_a_failure() -> None:
    link = CallLink("/a/B", "host")
    link.connection_made(transport(Wire()))
    link.send(Frame(b"x"))
    link.data_received(frame_of(1, 5, 1, b""))
    assert link.failure == "a call failed"


# -- the others ------------------------------------------------------------------------------------


def test_answers_of_nats_are_counted_however_they_are_cut() -> None:
    answer = b'MSG _INBOX 1 30\r\n{"stream":"t","seq":12}\r\n'
    for first, second in in_every_split(answer):
        link = NatsLink()
        link.connection_made(transport(Wire()))
        link.data_received(first)
        link.data_received(second)
        assert (link.acknowledged, link.failure) == (1, None)


def test_an_error_of_nats_is_a_failure() -> None:
    link = NatsLink()
    link.connection_made(transport(Wire()))
    link.data_received(b'MSG _INBOX 1 30\r\n{"error":{"code":503}}\r\n')
    assert link.failure is not None


def test_a_command_of_redis_is_an_array_of_words() -> None:
    assert command(b"WAIT", b"1") == b"*2\r\n$4\r\nWAIT\r\n$1\r\n1\r\n"


def test_only_the_answer_to_wait_counts_for_redis() -> None:
    answer = b"$15\r\n1731700000000-0\r\n:1\r\n"
    for first, second in in_every_split(answer):
        link = RedisLink()
        link.data_received(first)
        link.data_received(second)
        assert (link.acknowledged, link.failure) == (1, None)


def test_a_record_that_no_replica_has_is_a_failure() -> None:
    for first, second in in_every_split(b"$15\r\n1731700000000-0\r\n:0\r\n"):
        link = RedisLink()
        link.data_received(first)
        link.data_received(second)
        assert link.failure is not None


def test_a_frame_of_a_stream_says_how_long_it_is() -> None:
    frame = publish([b"abc", b""])
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_confirms_of_a_stream_are_counted_however_they_are_cut() -> None:
    confirm = pack(">HHBI", 3, 1, 1, 2) + pack(">QQ", 0, 1)
    frame = pack(">I", len(confirm)) + confirm
    for first, second in in_every_split(frame):
        link = StreamLink()
        link.data_received(first)
        link.data_received(second)
        assert link.acknowledged == 2


def test_a_confirm_of_a_queue_may_be_for_several_messages() -> None:
    link = QueueLink()
    for tag, is_multiple in ((1, 0), (4, 1), (5, 0)):
        link.data_received(amqp_frame(1, 1, pack(">HHQB", 60, 80, tag, is_multiple)))
    assert link.acknowledged == 5
