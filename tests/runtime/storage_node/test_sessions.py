"""Sessions over real sockets: strangers, liars, peers that break off."""

from __future__ import annotations

import pytest

from tests.runtime.storage_node.scripted import (
    CLUSTER,
    DIRECTOR,
    STREAM,
    Cluster,
    running,
    scene,
    sealed_batch,
)
from tidelog.core.replica.entries import NO_ENTRY, Batch
from tidelog.core.replica.messages import AddEntriesRequest
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_messages import (
    NODE_PROTOCOL,
    Carry,
    LaneOpen,
    NodeAnswer,
    NodeErrorCode,
    NodeRequest,
    NodeSessionBegin,
    NodeSessionBegun,
)
from tidelog.errors import LogError
from tidelog.formats.node_messages import decode_node_answer, encode_node_message
from tidelog.formats.replica_messages import encode_replica_message
from tidelog.formats.wire import FrameHeader
from tidelog.net.connection import FrameConnection
from tidelog.types import Llsn, NodeId, Term

DIRECTOR_LANES = 1


class Peer:
    """The raw end of one connection of a session."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.answers: list[NodeAnswer] = []
        self.is_lost = False
        self._asked = 0
        self._connection: FrameConnection | None = None

    async def open(self) -> None:
        self._connection = await self._cluster.post.open_session(NodeId(1), self)

    def send(self, data: bytes, attachment: tuple[bytes, ...] = ()) -> None:
        assert self._connection is not None
        self._asked += 1
        self._connection.send(data, request=self._asked, attachments=attachment)

    async def ask(self, request: NodeRequest, attachment: tuple[bytes, ...] = ()) -> NodeAnswer:
        before = len(self.answers)
        self.send(encode_node_message(request), attachment)
        await self._cluster.until(lambda: len(self.answers) > before or self.is_lost)
        return self.answers[-1]

    def on_frame(self, header: FrameHeader, message: bytes, attachment: memoryview) -> None:
        self.answers.append(decode_node_answer(message))

    def on_broken(self, error: LogError) -> None:
        raise AssertionError(error)

    def on_lost(self, error: Exception | None) -> None:
        self.is_lost = True


def begin(source: int) -> NodeSessionBegin:
    return NodeSessionBegin(NODE_PROTOCOL, CLUSTER.hex(), source, 1, DIRECTOR_LANES)


def code_of(answer: NodeAnswer) -> int:
    assert isinstance(answer, Error)
    return answer.code


@scene
async def test_a_node_that_speaks_for_another_one_gets_no_session() -> None:
    async with running() as cluster:
        peer = Peer(cluster)
        await peer.open()
        assert code_of(await peer.ask(begin(source=2))) == NodeErrorCode.UNEXPECTED_MESSAGE
        await cluster.until(lambda: peer.is_lost)


@scene
async def test_bytes_that_are_no_request_end_their_connection_alone() -> None:
    async with running() as cluster:
        await cluster.elect(1, (2, 3))
        peer = Peer(cluster)
        await peer.open()
        peer.send(b"nonsense")
        await cluster.until(lambda: peer.is_lost)
        assert (await cluster.member(1).append(b"a")).glsn == 1


def flipped(data: bytes, bit: int) -> bytes:
    number = int.from_bytes(data, "little") ^ 1 << bit
    return number.to_bytes(len(data), "little")


@pytest.mark.parametrize(
    "data",
    [
        b"no batch",
        sealed_batch(b"a")[:-1],
        sealed_batch(b"a", b"b"),
        *(flipped(sealed_batch(b"a"), bit) for bit in range(3, 8 * len(sealed_batch(b"a")), 97)),
    ],
)
def test_a_batch_that_no_disk_could_store_ends_the_session_and_nothing_else(data: bytes) -> None:
    @scene
    async def play() -> None:
        async with running() as cluster:
            await cluster.elect(1, (2, 3))
            control, lane = Peer(cluster), Peer(cluster)
            await control.open()
            begun = await control.ask(begin(source=DIRECTOR))
            assert isinstance(begun, NodeSessionBegun)
            await lane.open()
            assert isinstance(await lane.ask(LaneOpen(DIRECTOR, begun.secret, 0)), Ack)
            unsound = Batch(Term(9), Llsn(1), 1, data)
            request = AddEntriesRequest(
                DIRECTOR, NodeId(1), STREAM, Term(9), Term(9), NO_ENTRY, (unsound,), Llsn(0)
            )
            payload = encode_replica_message(request)
            answer = await lane.ask(Carry(STREAM, 1, payload.message), payload.attachment)
            assert code_of(answer) == NodeErrorCode.BAD_PAYLOAD
            await cluster.until(lambda: control.is_lost and lane.is_lost)
            assert (await cluster.member(1).append(b"a")).glsn == 1
            assert not cluster.member(1).failures

    play()
