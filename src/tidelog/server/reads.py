"""Answers what asks for entries or their places."""

from __future__ import annotations

from typing import Final

from tidelog.embedded.page_filling import StreamPiece, is_sent_whole
from tidelog.embedded.pages import EnginePage, find_piece, read_page
from tidelog.embedded.positions import find_end, find_time, position
from tidelog.formats.checksum import Buffer
from tidelog.formats.message_fields import PieceHeader
from tidelog.formats.messages import (
    FindEnd,
    FindTime,
    Get,
    Page,
    ReadPage,
    encode_message,
)
from tidelog.server.backend import Reply
from tidelog.server.parts import NodeParts

_BUFFERS_MAX: Final = 64
"""More pieces than these are cheaper to copy here, in a thread, than to send one by one."""


async def answer_read_page(parts: NodeParts, message: ReadPage) -> Reply:
    topic = parts.topic(message.topic)
    begin = message.glsn_begin
    here = position(parts.engine, topic)
    if message.wait_ms and begin > here.high_watermark:
        # Waited in vain, perhaps for something that lies further ahead: nothing is no error.
        return Reply.of(Page((), begin, begin, here.first_available, here.high_watermark))
    return await parts.readers.run(
        lambda: encode_page(
            read_page(
                parts.engine, topic, begin, message.glsn_end, message.streams, message.bytes_max
            )
        )
    )


async def answer_get(parts: NodeParts, message: Get) -> Reply:
    topic = parts.topic(message.topic)

    def look() -> Reply:
        found = find_piece(parts.engine, topic, message.key, message.storage_id)
        return encode_page(EnginePage([found] if found else [], 0, 0, 0, 0))

    return await parts.readers.run(look)


async def answer_find_end(parts: NodeParts, message: FindEnd) -> Reply:
    topic = parts.topic(message.topic)
    found = await parts.readers.run(
        lambda: find_end(
            parts.engine,
            topic,
            message.glsn_begin,
            records_max=message.records_max,
            bytes_max=message.bytes_max,
        )
    )
    parts.engine.audience.note(topic.name, message.reader, message.glsn_begin)
    return Reply.of(found)


async def answer_find_time(parts: NodeParts, message: FindTime) -> Reply:
    topic = parts.topic(message.topic)
    return Reply.of(
        await parts.readers.run(lambda: find_time(parts.engine, topic, message.timestamp_us))
    )


async def wait_for_entries(
    parts: NodeParts, message: ReadPage | FindEnd, seconds_max: float
) -> None:
    """Wait, as long as the request wants to, for something at its begin."""
    if message.wait_ms:
        seconds = min(message.wait_ms / 1000, seconds_max)
        await parts.tide.wait_for(parts.topic(message.topic).topic, message.glsn_begin, seconds)


def encode_page(page: EnginePage) -> Reply:
    """A page as it travels: its index as a message, the batches behind it."""
    headers: list[PieceHeader] = []
    attachments: list[Buffer] = []
    for piece in page.pieces:
        header, data = encode_piece(piece)
        headers.append(header)
        attachments.append(data)
    message = Page(
        tuple(headers), page.glsn_begin, page.glsn_end, page.first_available, page.high_watermark
    )
    if len(attachments) > _BUFFERS_MAX:
        attachments = [b"".join(attachments)]
    return Reply(encode_message(message), attachments)


def encode_piece(found: StreamPiece) -> tuple[PieceHeader, Buffer]:
    """A piece as it travels: whole, if most of its batch is asked for."""
    stream, piece = found
    batch, begin, end = piece.batch, piece.begin, piece.end
    runs = tuple(piece.runs.slices(batch.llsn_at(begin), batch.llsn_at(end - 1) + 1))
    if is_sent_whole(piece):
        return PieceHeader(stream, begin, end, batch.length, runs), batch.data
    data = batch.select(range(begin, end))
    return PieceHeader(stream, 0, end - begin, len(data), runs), data
