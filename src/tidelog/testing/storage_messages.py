"""What the modelled storage nodes and their operator say to one another.  No state."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog.core.order.commands import VersionedCommit
from tidelog.types import NodeId, StreamId, Term, Version


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of a stream.  ``payload`` is unique; 0 is a control entry."""

    term: Term
    payload: int


class Copy(msgspec.Struct, frozen=True, tag=100, array_like=True):
    """A leader's records from LLSN ``begin`` + 1 on; the one before them is of ``before_term``.

    ``propagated``: this many records are durable on a quorum, and stay.
    """

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term
    begin: int
    before_term: Term
    records: tuple[Record, ...]
    propagated: int
    ensemble: tuple[NodeId, ...]


class CopyAnswer(msgspec.Struct, frozen=True, tag=101, array_like=True):
    """This many records are durable here and equal to the leader's."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term
    count: int


class CopyRefusal(msgspec.Struct, frozen=True, tag=102, array_like=True):
    """The record before ``begin`` is another one here; at most ``hint`` records can agree."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term
    begin: int
    hint: int


class Fence(msgspec.Struct, frozen=True, tag=103, array_like=True):
    """The operator ends all older terms of a stream."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term


class Fenced(msgspec.Struct, frozen=True, tag=104, array_like=True):
    """The term is durable here; the last durable record is of ``head_term``."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term
    head_term: Term
    count: int


class Lead(msgspec.Struct, frozen=True, tag=105, array_like=True):
    """The operator makes a replica the leader of a term."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term
    ensemble: tuple[NodeId, ...]


class Leads(msgspec.Struct, frozen=True, tag=106, array_like=True):
    """The replica leads."""

    source: NodeId
    target: NodeId
    stream: StreamId
    term: Term


class AskCommits(msgspec.Struct, frozen=True, tag=107, array_like=True):
    """A replica that fell behind the history asks a peer for what it missed."""

    source: NodeId
    target: NodeId
    stream: StreamId
    version: Version


class MissedCommits(msgspec.Struct, frozen=True, tag=108, array_like=True):
    """What was ordered of a stream after the asked version, up to ``version``."""

    source: NodeId
    target: NodeId
    stream: StreamId
    asked: Version
    version: Version
    commits: tuple[VersionedCommit, ...]


ToOperator: TypeAlias = Fenced | Leads
StorageMessage: TypeAlias = (
    Copy | CopyAnswer | CopyRefusal | Fence | Lead | AskCommits | MissedCommits
)
"""What goes to a storage node."""
