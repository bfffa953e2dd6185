"""The base of all messages between clients and nodes, and the types of their fields.  No state."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tidelog.limits import READER_NAME_CHARS_MAX, STREAMS_PER_TOPIC_MAX, TOPIC_NAME_CHARS_MAX

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Word: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""An unsigned number of 64 bits: MessagePack has no longer ones."""
TopicName: TypeAlias = Annotated[str, msgspec.Meta(max_length=TOPIC_NAME_CHARS_MAX)]
ReaderName: TypeAlias = Annotated[str, msgspec.Meta(max_length=READER_NAME_CHARS_MAX)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]
Streams: TypeAlias = Annotated[tuple[Natural, ...], msgspec.Meta(max_length=STREAMS_PER_TOPIC_MAX)]
Sequences: TypeAlias = Annotated[
    tuple[Natural, ...], msgspec.Meta(max_length=STREAMS_PER_TOPIC_MAX)
]
"""Numbers of a producer, one for each log stream"""
Run: TypeAlias = tuple[Natural, Natural, Natural]
"""(LLSN begin, GLSN begin, length)"""
Version128: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
"""A write version, most significant byte first."""


class Message(
    msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False, forbid_unknown_fields=True
):
    """Base of all messages; the tag is the name of the class."""


class Placement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a log stream lies, as addresses for clients."""

    stream: Natural
    leader: Text
    """Empty: nobody leads at the moment."""
    replicas: tuple[Text, ...]
    is_sealed: bool = False


class WireReceipt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    stream: Natural
    glsn: Natural
    llsn: Natural
    count: Natural
    duplicate: bool


class PieceHeader(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Entries ``[begin, end)`` of an attached batch of ``length`` bytes."""

    stream: Natural
    begin: Natural
    end: Natural
    length: Natural
    runs: tuple[Run, ...]
