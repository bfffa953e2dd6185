"""A master that speaks the protocol frame by frame, also badly."""

from __future__ import annotations

import socket
import ssl
from types import TracebackType
from typing import Protocol, Self

from tests.client.proxy import wait_until
from tests.process.children import DEADLINE_SECONDS
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    Answer,
    BlobWrite,
    Error,
    ErrorCode,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogEntryWrite,
    Request,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.output import ChannelBatch
from tidelog.errors import ConnectionLost
from tidelog.formats.channel_batch import encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.messages import Hello, Welcome, decode_answer, encode_message
from tidelog.formats.session_messages import decode_session_answer, encode_session_message
from tidelog.formats.wire import HEADER_BYTES, check_message, decode_header, encode_frame
from tidelog.limits import HELLO_BYTES_MAX
from tidelog.net.endpoint import UnixEndpoint, parse_endpoint

CONFIGURATION = "00112233445566778899aabbccddeeff"


class Connection:
    """One connection; requests are numbered from 1 on."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        greet: bool = True,
        context: ssl.SSLContext | None = None,
    ) -> None:
        endpoint = parse_endpoint(address)
        if isinstance(endpoint, UnixEndpoint):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(DEADLINE_SECONDS)
            self.socket.connect(endpoint.path)
        else:
            self.socket = socket.create_connection((endpoint.host, endpoint.port), DEADLINE_SECONDS)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self._numbers = 0
        if greet:
            self.send_bytes(encode_frame(encode_message(Hello("test", token=token)), request=0))
            assert isinstance(decode_answer(self.receive()), Welcome)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, request: Request, attachment: bytes | memoryview = b"") -> None:
        self._numbers += 1
        frame = encode_frame(
            encode_session_message(request),
            request=self._numbers,
            attachment_bytes=len(attachment),
        )
        self.send_bytes(frame)
        if len(attachment):
            self.socket.sendall(attachment)

    def receive(self) -> bytes:
        """The next message; ConnectionLost at the end of the connection."""
        head = self._receive_exactly(HEADER_BYTES)
        header = decode_header(head, message_max=HELLO_BYTES_MAX, attachment_max=0)
        message = self._receive_exactly(header.message_bytes)
        check_message(header, head, message)
        self.answered = header.request
        return message

    def _receive_exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionError as error:
                raise ConnectionLost(str(error)) from error
            if not part:
                raise ConnectionLost("the replica hung up")
            data += part
        return data

    def answer(self) -> Answer:
        answer = decode_session_answer(self.receive())
        assert self.answered == self._numbers
        return answer

    def ask(self, request: Request, attachment: bytes | memoryview = b"") -> Answer:
        self.send(request, attachment)
        return self.answer()

    def error(self, request: Request, attachment: bytes | memoryview = b"") -> ErrorCode:
        """The code with which a request is refused."""
        answer = self.ask(request, attachment)
        assert isinstance(answer, Error), answer
        return ErrorCode(answer.code)

    def ack(self, request: Request, attachment: bytes | memoryview = b"") -> Ack:
        answer = self.ask(request, attachment)
        assert isinstance(answer, Ack), answer
        return answer

    def ack_now(self) -> None:
        """The answer to what was sent, which is none but an Ack."""
        answer = self.answer()
        assert isinstance(answer, Ack), answer

    @property
    def is_hung_up(self) -> bool:
        """Whether the replica has closed the connection and says nothing more."""
        try:
            return not self.socket.recv(1)
        except ConnectionError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Replica(Protocol):
    """A replica service, wherever it runs."""

    @property
    def address(self) -> str: ...

    @property
    def state(self) -> str: ...

    @property
    def epoch(self) -> int: ...


class RawMaster:
    """A session with its control channel; log channels are opened on demand.

    ``recorded`` has where each channel ended at the last group commit; several masters of one
    replica, one after the other, share it.
    """

    def __init__(
        self,
        replica: Replica,
        recorded: dict[int, int] | None = None,
        *,
        channels: int = 2,
        configuration: str = CONFIGURATION,
        token: str = "",
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.replica = replica
        self._context = context
        self.configuration = configuration
        self._token = token
        self._channels = channels
        self.recorded = {} if recorded is None else recorded
        self._ends: dict[int, list[tuple[int, int]]] = {}
        """Channel → epoch and end of each unrecorded batch."""
        self.lanes: dict[int, Connection] = {}
        wait_until(lambda: replica.state == "listening", "the session before is over")
        self.control = Connection(replica.address, token=token, context=context)
        answer = self.control.ask(self.session_begin())
        assert isinstance(answer, SessionBegun), answer
        self.secret = answer.secret

    def session_begin(
        self,
        *,
        protocol_version: int = SESSION_PROTOCOL,
        configuration: str | None = None,
        epoch: int | None = None,
    ) -> SessionBegin:
        return SessionBegin(
            protocol_version,
            self.configuration if configuration is None else configuration,
            self.replica.epoch if epoch is None else epoch,
            self._channels,
        )

    def lane(self, channel: int = 0) -> Connection:
        """The connection of a log channel."""
        if channel not in self.lanes:
            lane = Connection(self.replica.address, token=self._token, context=self._context)
            self.lanes[channel] = lane
            lane.ack(LogChannelCreate(self.secret, channel))
        return self.lanes[channel]

    # -- entries ------------------------------------------------------------------------------

    def end(self, channel: int) -> int:
        """The LLSN of the channel's next entry."""
        unrecorded = self._ends.get(channel)
        return unrecorded[-1][1] if unrecorded else self.recorded.get(channel, 1)

    def batch(
        self,
        channel: int,
        epoch: int,
        *keys: bytes,
        blobs: tuple[int, ...] = (),
        gap: int = 0,
    ) -> ChannelBatch:
        """Puts of these keys, with the epoch as value and write version."""
        entries = [
            Entry(Kind.PUT, b"%d" % epoch, key, write_version=epoch << 64 | n, blobs=blobs)
            for n, key in enumerate(keys)
        ]
        return encode_channel_batch(channel, epoch, self.end(channel) + gap, entries)

    def took(self, channel: int, epoch: int, batch: ChannelBatch) -> None:
        """The replica has these entries now."""
        self._ends.setdefault(channel, []).append((epoch, batch.llsn_end))

    def write(
        self,
        channel: int,
        epoch: int,
        *keys: bytes,
        begin: bool = True,
        end: bool = True,
        flush: bool = True,
        blobs: tuple[int, ...] = (),
    ) -> Answer:
        """Write entries, by default in a log session of their own."""
        batch = self.batch(channel, epoch, *keys, blobs=blobs)
        request = LogEntryWrite(epoch, begin, end, False, flush)
        answer = self.lane(channel).ask(request, batch.data)
        if isinstance(answer, Ack):
            self.took(channel, epoch, batch)
        return answer

    def commit(self, epoch: int) -> Answer:
        answer = self.control.ask(GroupCommit(epoch))
        if isinstance(answer, Ack):
            for channel, ends in self._ends.items():
                recorded = [end for at, end in ends if at <= epoch]
                if recorded:
                    self.recorded[channel] = recorded[-1]
                    del ends[: len(recorded)]
        return answer

    def blob(self, channel: int, blob: int, data: bytes, *, part: int = 1 << 20) -> None:
        """Send a whole BLOB."""
        lane = self.lane(channel)
        for offset in range(0, max(len(data), 1), part):
            lane.ack(BlobWrite(blob, offset, len(data)), data[offset : offset + part])

    def boundary(self, version: int) -> Answer:
        return self.control.ask(GcBoundarySwitch(version.to_bytes(16, "big")))

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> None:
        """End the session in order."""
        self.control.ack(SessionEnd())
        self.close()

    def close(self) -> None:
        """Hang up on all connections."""
        for connection in (self.control, *self.lanes.values()):
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
