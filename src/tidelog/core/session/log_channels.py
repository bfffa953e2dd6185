"""What a replica does on its log channels.  No state of its own.

The rules of what may be written next are those of ``channel``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.core.session.channel import Channel, refusal
from tidelog.core.session.messages import (
    Ack,
    BlobWrite,
    ErrorCode,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    Request,
)
from tidelog.core.session.output import ChannelBatch, Write, WriteBlob
from tidelog.core.session.replica_session import Link, Session, wrong_secret
from tidelog.core.session.replica_state import State


class LogChannels:
    """Makes log channels, and carries out what comes on them."""

    __slots__ = ("_blob_exists", "_state")

    def __init__(self, state: State, blob_exists: Callable[[int], bool]) -> None:
        self._state = state
        self._blob_exists = blob_exists

    def create(self, link: Link, request: LogChannelCreate) -> None:
        """Make a connection a log channel."""
        session = self._state.session
        if session is None:
            raise wrong_secret()
        channel = session.channel_with(request.secret, request.channel)
        channel.connection, link.channel, link.session = link.connection, channel, session
        self._state.reply(link, Ack())

    def detach(self, link: Link, channel: Channel) -> None:
        """A connection is no log channel any more."""
        channel.connection = link.channel = link.session = None
        self._state.drop_blob(channel)

    def received(
        self,
        link: Link,
        session: Session,
        channel: Channel,
        request: Request,
        batches: tuple[ChannelBatch, ...] | None,
        data: bytes | memoryview,
    ) -> None:
        """Carry out a request on a log channel."""
        match request:
            case LogEntryWrite():
                session.require_whole()
                self._write(link, session, channel, request, batches)
            case LogChannelFlush():
                session.require_whole()
                self._store(link, channel, flush=True)
            case BlobWrite():
                session.require_whole()
                self._write_blob(link, channel, request, data)
            case LogChannelDispose():
                self._dispose(link, session, channel)
            case _:
                text = f"{type(request).__name__} does not belong on a log channel"
                raise refusal(ErrorCode.UNEXPECTED_MESSAGE, text)

    # --- entries ---

    def _write(
        self,
        link: Link,
        session: Session,
        channel: Channel,
        request: LogEntryWrite,
        batches: tuple[ChannelBatch, ...] | None,
    ) -> None:
        sound = channel.check_write(request, batches, self._committed(session))
        self._check_blobs(channel, sound)
        cut_to = channel.write(request, sound)
        if sound or request.flush or cut_to is not None:
            self._store(link, channel, batches=sound, cut_to=cut_to, flush=request.flush)
        else:
            self._state.reply(link, Ack())

    def _committed(self, session: Session) -> int:
        """A group commit that is under way counts: the store may be past its entries (G2)."""
        return max(self._state.epoch, session.committing)

    def _store(
        self,
        link: Link,
        channel: Channel,
        *,
        batches: tuple[ChannelBatch, ...] = (),
        cut_to: int | None = None,
        flush: bool = False,
    ) -> None:
        channel.is_writing = True
        counters = self._state.counters
        counters.writes += 1
        for batch in batches:
            counters.entries += batch.llsn_end - batch.llsn_begin
            counters.bytes += len(batch.data)
        ticket, number, epoch = self._state.ticket(), channel.number, channel.epoch
        self._state.ask(Write(ticket, number, epoch, batches, cut_to, flush), link, channel)

    def _dispose(self, link: Link, session: Session, channel: Channel) -> None:
        self.detach(link, channel)
        cut_to = channel.abort()
        if cut_to is None or session.is_broken:
            self._state.reply(link, Ack())
        else:
            self._store(link, channel, cut_to=cut_to)

    # --- BLOBs ---

    def _check_blobs(self, channel: Channel, batches: Sequence[ChannelBatch]) -> None:
        """Entries come behind their BLOBs; another channel may be sending the same one."""
        for blob in (blob for batch in batches for blob in batch.blobs):
            if channel.is_receiving(blob) or not self._blob_exists(blob):
                raise refusal(ErrorCode.BAD_BLOB, f"BLOB {blob} is not complete")

    def _write_blob(
        self, link: Link, channel: Channel, part: BlobWrite, data: bytes | memoryview
    ) -> None:
        channel.check_blob(part, len(data))
        if part.offset == 0:
            self._state.drop_blob(channel)
        channel.add_part(part, len(data))
        self._state.counters.blob_bytes += len(data)
        ticket, number = self._state.ticket(), channel.number
        write = WriteBlob(ticket, number, part.blob, part.offset, part.size, data)
        self._state.ask(write, link, channel)
