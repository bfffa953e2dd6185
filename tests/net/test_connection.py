"""Connections over real sockets: frames of all sizes, bad ones, slow ones, and back-pressure."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from tests.net.pairs import Frame, Recorder, connected, receive, run, send_all, until
from tidelog.errors import BadFrame, ConnectionLost, DeadlineExceeded, UnsupportedVersion
from tidelog.formats.wire import HEADER_BYTES, encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, HELLO_BYTES_MAX, KIB, MESSAGE_BYTES_MAX, MIB
from tidelog.net.connection import FrameConnection, Patience

SOON = Patience(hello=0.05, frame=0.05, write=0.05, close=0.05)


def frame_of(number: int, message: bytes, attachment: bytes = b"") -> bytes:
    head = encode_frame(message, request=number, attachment_bytes=len(attachment))
    return head + attachment


def frames_of_all_sizes(random: Random) -> list[Frame]:
    sizes = [0, 1, 100, 5_000, 64 * KIB - HEADER_BYTES, 64 * KIB, 64 * KIB + 1, 300_000]
    return [
        (number, random.randbytes(random.choice(sizes)), random.randbytes(random.choice(sizes)))
        for number in range(1, 40)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_frames_arrive_however_they_are_cut(seed: int) -> None:
    random = Random(seed)
    frames = frames_of_all_sizes(random)
    data = b"".join(frame_of(*frame) for frame in frames)

    async def main() -> None:
        async with connected() as (recorder, peer):
            offset = 0
            while offset < len(data):
                size = random.choice([1, 7, 31, 33, 1000, 65_536, 200_000])
                await send_all(peer, data[offset : offset + size])
                offset += size
                if random.random() < 0.1:
                    await asyncio.sleep(0)
            await until(lambda: len(recorder.frames) == len(frames), "all frames")
            assert recorder.frames == frames
            assert not recorder.broken

    run(main())


def test_frames_arrive_byte_by_byte() -> None:
    frames = [(1, b"hello", b"attached"), (2, b"", b""), (3, b"", b"x"), (4, b"y", b"")]

    async def main() -> None:
        async with connected() as (recorder, peer):
            for byte in b"".join(frame_of(*frame) for frame in frames):
                await send_all(peer, bytes((byte,)))
                await asyncio.sleep(0)
            await until(lambda: len(recorder.frames) == len(frames), "all frames")
            assert recorder.frames == frames

    run(main())


def test_frames_leave_as_they_are_encoded_and_together() -> None:
    async def main() -> None:
        async with connected() as (recorder, peer):
            recorder.connection.send(b"one", request=1, timeout_ms=7)
            recorder.connection.send(b"two", request=2, attachments=[b"ab", memoryview(b"cd")])
            expected = encode_frame(b"one", request=1, timeout_ms=7) + frame_of(2, b"two", b"abcd")
            assert await receive(peer, len(expected)) == expected

    run(main())


@pytest.mark.parametrize("opened", [False, True])
def test_lengths_beyond_the_limits_break_the_connection(opened: bool) -> None:
    message_max = MESSAGE_BYTES_MAX if opened else HELLO_BYTES_MAX
    attachment_max = ATTACHMENT_BYTES_MAX if opened else 0

    async def send_head(message: int, attachment: int) -> None:
        head = bytearray(encode_frame(b"", request=1, attachment_bytes=attachment))
        head[8:12] = message.to_bytes(4, "little")
        async with connected(opened=opened) as (recorder, peer):
            await send_all(peer, bytes(head))
            await until(lambda: bool(recorder.broken), "the connection breaks")
            assert isinstance(recorder.broken[0], BadFrame)
            assert not recorder.frames

    run(send_head(message_max + 1, 0))
    run(send_head(0, attachment_max + 1))


def test_after_the_hello_frames_may_be_large() -> None:
    async def main() -> None:
        async with connected(opened=False) as (recorder, peer):
            await send_all(peer, frame_of(1, b"x" * HELLO_BYTES_MAX))
            await until(lambda: len(recorder.frames) == 1, "the hello")
            recorder.connection.open_up()
            await send_all(peer, frame_of(2, b"y" * MIB, b"z" * MIB))
            await until(lambda: len(recorder.frames) == 2, "the large frame")
            assert recorder.frames[1] == (2, b"y" * MIB, b"z" * MIB)

    run(main())


@pytest.mark.parametrize(
    ("at", "error"), [(0, BadFrame), (5, BadFrame), (28, UnsupportedVersion), (34, BadFrame)]
)
def test_damage_breaks_the_connection_once(at: int, error: type[Exception]) -> None:
    data = bytearray(frame_of(1, b"hello"))
    data[at] ^= 0x10

    async def main() -> None:
        async with connected() as (recorder, peer):
            await send_all(peer, bytes(data) * 3)
            await until(lambda: bool(recorder.broken), "the connection breaks")
            assert [type(broken) for broken in recorder.broken] == [error]
            assert not recorder.frames

    run(main())


def test_an_error_of_the_handler_breaks_the_connection() -> None:
    async def main() -> None:
        async with connected() as (recorder, peer):
            recorder.raises = BadFrame("not now")
            await send_all(peer, frame_of(1, b"a") + frame_of(2, b"b"))
            await until(lambda: bool(recorder.broken), "the connection breaks")
            assert recorder.frames == [(1, b"a", b"")]

    run(main())


def test_a_pause_holds_back_what_has_arrived() -> None:
    frames = [(number, b"%d" % number, b"") for number in range(1, 101)]

    async def main() -> None:
        async with connected() as (recorder, peer):
            recorder.pause_after = 10
            await send_all(peer, b"".join(frame_of(*frame) for frame in frames))
            await until(lambda: len(recorder.frames) == 10, "ten frames")
            await asyncio.sleep(0.01)
            assert len(recorder.frames) == 10
            recorder.connection.resume()
            await until(lambda: len(recorder.frames) == 100, "all frames")
            assert recorder.frames == frames

    run(main())


def test_a_paused_connection_is_not_impatient() -> None:
    """It is not the peer's fault that nobody reads."""

    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            recorder.pause_after = 1
            await send_all(peer, frame_of(1, b"a") + frame_of(2, b"b")[:-1])
            await until(lambda: len(recorder.frames) == 1, "a frame")
            await asyncio.sleep(0.2)
            assert not recorder.broken
            recorder.connection.resume()
            await send_all(peer, b"b")
            await until(lambda: len(recorder.frames) == 2, "the other frame")

    run(main())


@pytest.mark.parametrize("size", [1, HEADER_BYTES, HEADER_BYTES + 3, HEADER_BYTES + 5 + 10])
def test_half_a_frame_has_a_deadline(size: int) -> None:
    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            await send_all(peer, frame_of(1, b"first"))
            await send_all(peer, frame_of(2, b"hello", bytes(100_000))[:size])
            await until(lambda: bool(recorder.broken), "the connection breaks")
            assert "not complete" in str(recorder.broken[0])
            assert len(recorder.frames) == 1

    run(main())


def test_a_slow_frame_has_the_same_deadline() -> None:
    """Every byte in time, but not the frame."""

    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            data = frame_of(1, bytes(10_000))
            for byte in data:
                if recorder.broken:
                    break
                peer.send(bytes((byte,)))
                await asyncio.sleep(0.001)
            assert isinstance(recorder.broken[0], BadFrame)

    run(main())


def test_a_quiet_connection_has_no_deadline() -> None:
    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            await send_all(peer, frame_of(1, b"a"))
            await asyncio.sleep(0.2)
            await send_all(peer, frame_of(2, b"b"))
            await until(lambda: len(recorder.frames) == 2, "both frames")
            assert not recorder.broken

    run(main())


def test_a_hello_has_a_deadline() -> None:
    async def main() -> None:
        async with connected(patience=SOON, opened=False) as (recorder, _):
            await until(lambda: bool(recorder.broken), "the connection breaks")
            assert isinstance(recorder.broken[0], DeadlineExceeded)

    run(main())


def small_buffers(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


def test_a_peer_that_does_not_read_holds_the_sender_back() -> None:
    async def main() -> None:
        async with connected() as (recorder, peer):
            small_buffers(peer)
            recorder.connection.send(b"m", request=1, attachments=[bytes(8 * MIB)])
            draining = asyncio.create_task(recorder.connection.drain())
            await asyncio.sleep(0.05)
            assert not draining.done()
            total = HEADER_BYTES + 1 + 8 * MIB
            assert len(await receive(peer, total)) == total
            await draining

    run(main())


def test_a_peer_that_never_reads_is_dropped() -> None:
    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            small_buffers(peer)
            recorder.connection.send(b"m", request=1, attachments=[bytes(8 * MIB)])
            with pytest.raises(ConnectionLost):
                await recorder.connection.drain()
            await until(lambda: recorder.lost == 1, "the connection is gone")
            recorder.connection.send(b"dropped", request=2)

    run(main())


def test_a_slow_reader_that_gets_on_is_not_dropped() -> None:
    async def main() -> None:
        patience = Patience(write=0.3)
        async with connected(patience=patience) as (recorder, peer):
            small_buffers(peer)
            total = HEADER_BYTES + 1 + 4 * MIB
            recorder.connection.send(b"m", request=1, attachments=[bytes(4 * MIB)])
            received = 0
            while received < total:
                received += len(await receive(peer, min(256 * KIB, total - received)))
                await asyncio.sleep(0.05)
            assert recorder.lost == 0

    run(main())


def test_close_sends_what_was_queued() -> None:
    async def main() -> None:
        async with connected() as (recorder, peer):
            recorder.connection.send(b"last", request=1, attachments=[bytes(MIB)])
            recorder.connection.close()
            expected = frame_of(1, b"last", bytes(MIB))
            assert await receive(peer, len(expected) + 1) == expected
            peer.shutdown(socket.SHUT_WR)
            await recorder.connection.wait_closed()

    run(main())


def test_close_does_not_wait_for_ever() -> None:
    async def main() -> None:
        async with connected(patience=SOON) as (recorder, peer):
            small_buffers(peer)
            recorder.connection.send(b"last", request=1, attachments=[bytes(8 * MIB)])
            recorder.connection.close()
            await recorder.connection.wait_closed()

    run(main())


def test_what_is_sent_early_leaves_when_the_connection_is_there() -> None:
    """Also when it is closed again at once, and though the peer has sent something."""

    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await send_all(theirs, b"unread")
        recorder = Recorder()
        recorder.connection = FrameConnection(recorder)
        recorder.connection.send(b"go away", request=0)
        recorder.connection.close()
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: recorder.connection, ours)
        expected = frame_of(0, b"go away")
        assert await receive(theirs, 1000) == expected
        theirs.close()
        await recorder.connection.wait_closed()

    run(main())


def test_nothing_is_read_after_close() -> None:
    async def main() -> None:
        async with connected() as (recorder, peer):
            recorder.connection.close()
            await send_all(peer, frame_of(1, b"a"))
            peer.shutdown(socket.SHUT_WR)
            await recorder.connection.wait_closed()
            assert not recorder.frames

    run(main())
