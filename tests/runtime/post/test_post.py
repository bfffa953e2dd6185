"""Messages between processes: order, loss, reconnecting, peers that are not listened to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from math import inf

import pytest

from tests.net.pairs import Recorder, run, until
from tests.runtime.metadata_node.group import CLUSTER, listening, new_post
from tests.security.material import TLS, client, server
from tidelog.core.metadata.messages import Collect
from tidelog.core.raft.entries import RaftTerm
from tidelog.core.raft.messages import TimeoutNow
from tidelog.errors import BadFrame, Unauthorized, Unreachable, WrongCluster, WrongState
from tidelog.formats.cluster_messages import (
    ClusterMessage,
    PeerHello,
    Ping,
    Pong,
    Purpose,
    encode_cluster_message,
    encode_greeting,
)
from tidelog.formats.wire import encode_frame
from tidelog.net.connection import FrameConnection, FrameHandler
from tidelog.net.endpoint import TcpEndpoint
from tidelog.net.security import ClientSecurity
from tidelog.runtime.post import Post
from tidelog.types import NO_VERSION, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
TOKEN, OTHER_TOKEN = "t" * 20, "o" * 20


class Party:
    """A post and what it was told."""

    def __init__(self, post: Post) -> None:
        self.post = post
        self.port = 0
        self.told: list[tuple[NodeId, ClusterMessage]] = []
        post.on((Ping, Pong, TimeoutNow), self._receive)

    def _receive(self, node: NodeId, message: ClusterMessage) -> None:
        self.told.append((node, message))

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    @property
    def numbers(self) -> list[int]:
        return [message.number for _, message in self.told if isinstance(message, Ping)]


@asynccontextmanager
async def parties(*posts: Post) -> AsyncIterator[list[Party]]:
    """Posts that listen; none knows of another."""
    made = [Party(post) for post in posts]
    try:
        for party in made:
            await listen(party)
        yield made
    finally:
        for party in made:
            await party.post.stop()


async def listen(party: Party) -> None:
    (bound,) = await party.post.start()
    assert isinstance(bound, TcpEndpoint)
    party.port = bound.port


def test_messages_arrive_in_order_and_the_other_way_without_being_told_where() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            one.post.learn(TWO, two.address)
            assert two.post.silent_seconds(ONE) == inf
            for number in range(1000):
                one.post.send(TWO, Ping(number))
            await until(lambda: len(two.told) == 1000, "all arrived")
            assert two.numbers == list(range(1000))
            assert two.post.silent_seconds(ONE) < 1
            two.post.send(ONE, Pong(5))
            await until(lambda: one.told == [(TWO, Pong(5))], "the answer")

    run(main())


def test_a_large_backlog_is_sent_to_a_peer_that_reads_slowly_and_loses_nothing() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            one.post.learn(TWO, two.address)
            count = 12_000
            for number in range(count):
                one.post.send(TWO, Ping(number))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await until(lambda: len(two.told) == count, "all arrived")
            assert two.numbers == list(range(count))
            assert one.post.counters.dropped == 0

    run(main())


def test_a_message_to_itself_comes_in_the_next_turn_of_the_loop() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            one.post.send(ONE, Ping(1))
            assert not one.told, "not before the caller is done"
            await asyncio.sleep(0)
            assert one.told == [(ONE, Ping(1))]
            assert one.post.silent_seconds(ONE) == 0

    run(main())


def test_a_message_to_itself_that_is_only_taken_note_of_comes_at_once() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            told: list[ClusterMessage] = []
            one.post.on((Collect,), lambda _, message: told.append(message), at_once=True)
            asked = Collect(ONE, ONE, 1, 1, NO_VERSION)
            one.post.send(ONE, asked)
            assert told == [asked]

    run(main())


def test_a_peer_that_was_started_again_is_found() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            one.post.learn(TWO, two.address)
            one.post.send(TWO, Ping(0))
            await until(lambda: bool(two.told), "the first message")
            await two.post.stop()
            await until(lambda: one.post.counters.outgoing == 0, "the end was noticed")

            def is_dropped() -> bool:
                one.post.send(TWO, Ping(1))
                return one.post.counters.dropped > 0

            await until(is_dropped, "what nobody is there for is not kept")
            again = Party(new_post(2, port=two.port))

            def is_told() -> bool:
                one.post.send(TWO, Ping(100))
                return bool(again.told)

            async with listening(again.post):
                await until(is_told, "found again")
                assert again.told[0][0] == ONE

    run(main())


def test_a_peer_that_says_hello_is_answered_without_waiting_for_a_pause() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            one.post.learn(TWO, "tcp://127.0.0.1:1")

            def has_failed() -> bool:
                one.post.send(TWO, Ping(0))
                return one.post.counters.failed_connects > 2

            await until(has_failed, "a pause is under way")
            two.post.learn(ONE, one.address)
            two.post.send(ONE, Ping(1))
            await until(lambda: bool(one.told), "the hello")
            one.post.send(TWO, Pong(1))
            await until(lambda: (ONE, Pong(1)) in two.told, "at the new address")

    run(main())


def test_an_old_address_that_is_told_again_does_not_replace_what_the_node_said_itself() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            old = "tcp://127.0.0.1:1"
            one.post.learn(TWO, old)
            two.post.learn(ONE, one.address)
            two.post.send(ONE, Ping(0))
            await until(lambda: bool(one.told), "the hello")
            one.post.learn(TWO, old)
            assert one.post.address_of(TWO) == two.address
            one.post.send(TWO, Ping(1))
            await until(lambda: two.numbers == [1], "found")
            one.post.learn(TWO, "tcp://127.0.0.1:2")
            one.post.send(TWO, Ping(2))
            await until(lambda: two.numbers == [1, 2], "a connection that works is kept")

    run(main())


def test_nobody_is_sought_while_nothing_is_to_be_sent() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            one.post.learn(TWO, "tcp://127.0.0.1:1")
            one.post.send(TWO, Ping(0))
            await until(lambda: one.post.counters.dropped == 1, "nobody is there")
            tried = one.post.counters.failed_connects
            await asyncio.sleep(0.3)
            assert one.post.counters.failed_connects == tried
            one.post.send(THREE, Ping(0))
            assert one.post.counters.dropped == 2, "nobody knows where that is"

    run(main())


async def refused_by(stranger: Post, party: Party, target: NodeId) -> str:
    """What a process has against another one, by its own count."""
    async with listening(stranger):
        stranger.learn(target, party.address)
        stranger.send(target, Ping(1))
        await until(lambda: party.post.counters.turned_away.total() > 0, "turned away")
        await until(lambda: stranger.counters.dropped > 0, "dropped")
    assert not party.told
    return next(iter(party.post.counters.turned_away))


def test_a_process_of_another_cluster_is_turned_away() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            stranger = new_post(2, cluster=b"another cluster!")
            assert await refused_by(stranger, one, ONE) == "WrongCluster"

    run(main())


@pytest.mark.parametrize("token", ["", OTHER_TOKEN])
def test_a_process_without_the_token_is_turned_away(token: str) -> None:
    async def main() -> None:
        async with parties(new_post(1, token=TOKEN)) as (one,):
            assert await refused_by(new_post(2, token=token), one, ONE) == "Unauthorized"

    run(main())


def test_a_process_with_the_token_is_let_in() -> None:
    async def main() -> None:
        async with parties(new_post(1, token=TOKEN), new_post(2, token=TOKEN)) as (one, two):
            two.post.learn(ONE, one.address)
            two.post.send(ONE, Ping(1))
            await until(lambda: one.told == [(TWO, Ping(1))], "let in")

    run(main())


def tls_post(node: int, security: ClientSecurity) -> Post:
    return Post(
        cluster_id=CLUSTER,
        node=NodeId(node),
        endpoints=[TLS],
        advertise="",
        server_security=server(client_ca="ca"),
        client_security=security,
    )


def test_processes_talk_over_tls_if_both_show_good_certificates() -> None:
    async def main() -> None:
        one, two = tls_post(1, client("client")), tls_post(2, client("client"))
        bare, wary = tls_post(3, client()), tls_post(4, client("client", ca="other_ca"))
        told: list[NodeId] = []
        one.on((Ping,), lambda node, _: told.append(node))
        async with listening(one) as address, listening(two), listening(bare), listening(wary):
            for post in (bare, wary, two):
                post.learn(ONE, address)
                post.send(ONE, Ping(1))
            await until(lambda: told == [TWO], "the good one is heard")
            await until(lambda: bare.counters.dropped == 1, "no certificate")
            await until(lambda: wary.counters.dropped == 1, "not the server that it trusts")
            await until(lambda: one.counters.turned_away["Unauthorized"] >= 2, "both are counted")
            assert told == [TWO]

    run(main())


def test_a_message_for_a_node_that_is_no_longer_at_an_address_is_not_delivered() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            assert await refused_by(new_post(2), one, THREE) == "WrongCluster"

    run(main())


def test_two_processes_with_the_same_number_do_not_talk() -> None:
    async def main() -> None:
        # No process calls its own number: a hello by hand.
        async with parties(new_post(1)) as (one,), raw(one) as (reader, writer):
            writer.write(frame(encode_greeting(hello(1, 1))))
            counted = one.post.counters.turned_away
            await until(lambda: counted["WrongCluster"] == 1, "turned away")
            assert await reader.read(1 << 16)

    run(main())


@asynccontextmanager
async def raw(party: Party) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a process that says whatever a test wants."""
    reader, writer = await asyncio.open_connection("127.0.0.1", party.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def hello(node: int, target: int, purpose: Purpose = Purpose.POST) -> PeerHello:
    return PeerHello(CLUSTER, node, target, "tcp://127.0.0.1:1", purpose)


def frame(message: bytes) -> bytes:
    return encode_frame(message, request=0)


BAD = {
    "garbage at once": b"GET / HTTP/1.1\r\n\r\n" * 8,
    "garbage after hello": frame(encode_greeting(hello(3, 1))) + b"\xff" * 64,
    "a message before hello": frame(encode_cluster_message(Ping(1))),
    "no message": frame(encode_greeting(hello(3, 1))) + frame(b"\x93\xcc\xc8\x01\x02"),
    "hello twice": 2 * frame(encode_greeting(hello(3, 1))),
    "in another's name": frame(encode_greeting(hello(3, 1)))
    + frame(encode_cluster_message(TimeoutNow(TWO, ONE, RaftTerm(1)))),
    "a frame that is too large": frame(encode_greeting(hello(3, 1)))
    + encode_frame(b"", request=0, attachment_bytes=1 << 20),
}


@pytest.mark.parametrize("sent", BAD.values(), ids=BAD.keys())
def test_whatever_a_peer_sends_it_ends_only_its_own_connection(sent: bytes) -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            two.post.learn(ONE, one.address)
            two.post.send(ONE, Ping(0))
            await until(lambda: len(one.told) == 1, "a good peer")
            async with raw(one) as (reader, writer):
                writer.write(sent)
                with suppress(ConnectionError):
                    while await reader.read(1 << 16):
                        pass
            two.post.send(ONE, Ping(1))
            await until(lambda: one.numbers == [0, 1], "the good peer goes on")
            assert two.post.counters.connects == 1
            assert one.told == [(TWO, Ping(0)), (TWO, Ping(1))]

    run(main())


def test_an_error_of_a_receiver_ends_the_connection_that_the_message_came_on() -> None:
    async def main() -> None:
        async with parties(new_post(1)) as (one,):
            two = new_post(2)

            def refuse(node: NodeId, message: ClusterMessage) -> None:
                raise BadFrame("cannot be read")

            two.on((Ping,), refuse)
            async with listening(two) as address:
                one.post.learn(TWO, address)
                one.post.send(TWO, Ping(1))
                await until(lambda: one.post.counters.connects == 1, "connected")
                await until(lambda: one.post.counters.outgoing == 0, "hung up")

    run(main())


def test_what_is_not_for_a_role_of_this_process_is_left_and_counted() -> None:
    async def main() -> None:
        async with parties(new_post(2)) as (two,):
            one = new_post(1)
            async with listening(one) as address:
                two.post.learn(ONE, address)
                two.post.send(ONE, Ping(1))
                await until(lambda: one.counters.unheeded == 1, "left")

    run(main())


# -- sessions ------------------------------------------------------------------------------------


def test_a_session_connection_is_handed_over_greeted() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2)) as (one, two):
            accepted, opened = Recorder(), Recorder()

            def accept(node: NodeId, connection: FrameConnection) -> FrameHandler:
                assert node == ONE
                accepted.connection = connection
                return accepted

            two.post.on_session(accept)
            one.post.learn(TWO, two.address)
            opened.connection = await one.post.open_session(TWO, opened)
            opened.connection.send(b"to", request=7, attachments=[b"x" * 100_000])
            await until(lambda: accepted.frames == [(7, b"to", b"x" * 100_000)], "over")
            accepted.connection.send(b"back", request=7)
            await until(lambda: opened.frames == [(7, b"back", b"")], "back")
            accepted.connection.close()
            await until(lambda: accepted.lost == opened.lost == 1, "both are told of the end")

    run(main())


def test_why_a_session_cannot_be_opened_is_told() -> None:
    async def main() -> None:
        async with parties(new_post(1), new_post(2, token=TOKEN)) as (one, two):
            recorder = Recorder()
            with pytest.raises(Unreachable, match="nobody knows where node 2 is"):
                await one.post.open_session(TWO, recorder)
            one.post.learn(TWO, two.address)
            with pytest.raises(Unauthorized):
                await one.post.open_session(TWO, recorder)
            one.post.learn(THREE, "tcp://127.0.0.1:1")
            with pytest.raises(Unreachable):
                await one.post.open_session(THREE, recorder)
            two.post.learn(ONE, one.address)
            with pytest.raises(WrongState, match="keeps no sessions"):
                await two.post.open_session(ONE, recorder)
            other = new_post(5, cluster=b"another cluster!")
            async with listening(other) as address:
                one.post.learn(NodeId(5), address)
                with pytest.raises(WrongCluster):
                    await one.post.open_session(NodeId(5), recorder)
            assert recorder.lost == 0, "who was never welcome is not told of an end"

    run(main())
