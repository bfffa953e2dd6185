"""What the entries of the metadata repository's Raft log say.  No state.

One Raft entry is one ``Batch``: what piled up while the batch before it was on its way, and the
cut over it.  So a report needs one round of Raft to become a commit.

Every change names what it creates, or the ``revision`` that it has seen of what it writes.  So one
that is repeated late undoes nothing.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from tidelog.core.order.commands import Cut, Report, TopicChange
from tidelog.errors import CorruptData
from tidelog.types import NO_REVISION, NodeId, Revision


class RegisterNode(msgspec.Struct, frozen=True, tag=64, array_like=True):
    """A storage node joins, or has moved to another address."""

    node: NodeId
    address: str = ""
    revision: Revision = NO_REVISION


class UnregisterNode(msgspec.Struct, frozen=True, tag=65, array_like=True):
    """A storage node that holds no replica leaves."""

    node: NodeId
    revision: Revision


class SetPaused(msgspec.Struct, frozen=True, tag=68, array_like=True):
    """Operators begin nothing of their own accord while they are paused."""

    is_paused: bool
    revision: Revision


class NameMember(msgspec.Struct, frozen=True, tag=69, array_like=True):
    """A node of the metadata repository is found at this address; empty: it is forgotten."""

    node: NodeId
    address: str
    revision: Revision


class Assign(msgspec.Struct, frozen=True, tag=66, array_like=True):
    """From here on ``collector`` collects from ``node`` and answers it."""

    node: NodeId
    collector: NodeId


Change: TypeAlias = TopicChange | RegisterNode | UnregisterNode | SetPaused | NameMember
"""What a user or an operator may ask for."""


class Request(msgspec.Struct, frozen=True, tag=67, array_like=True):
    """A change, and where its outcome is waited for: ``number`` is the origin's own count."""

    origin: NodeId
    number: int
    change: Change


Shared: TypeAlias = Report | Request
Command: TypeAlias = Report | Request | Assign | Cut


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """The content of one Raft entry."""

    commands: tuple[Command, ...]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Batch)


def encode_batch(batch: Batch) -> bytes:
    """Return the bytes of a Raft entry."""
    return _encoder.encode(batch)


def request_bytes(request: Request) -> int:
    """Return how much of a Raft entry a change takes."""
    return len(_encoder.encode(request))


def decode_batch(data: bytes) -> Batch:
    """Read a Raft entry; raise CorruptData if it is none of ours."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptData(f"an entry of the metadata log cannot be read: {error}") from error
