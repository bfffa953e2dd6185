"""What the order layer is told, and what it answers.  No state.

The commands are the entries of the metadata repository's log: the same commands
in the same order give the same cuts on every node.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog.types import Glsn, Llsn, StreamId, Term, TopicId, Version


class CreateTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic begins to exist, with its first streams."""

    topic: TopicId
    streams: tuple[StreamId, ...]
    name: str = ""


class AddStreams(msgspec.Struct, frozen=True, gc=False):
    """A topic gets more streams; its GLSN sequence goes on."""

    topic: TopicId
    streams: tuple[StreamId, ...]


class ChangeTerm(msgspec.Struct, frozen=True, gc=False):
    """A stream has a new leadership: from here on, reports of older terms are void."""

    stream: StreamId
    term: Term


class Report(msgspec.Struct, frozen=True, gc=False):
    """A replica has ``length`` durable, unordered entries from ``llsn_begin`` on.

    ``version`` is the highest cut that the replica knows.
    """

    stream: StreamId
    term: Term
    version: Version
    llsn_begin: Llsn
    length: int


class Cut(msgspec.Struct, frozen=True, gc=False):
    """Order all that was reported and is not ordered yet."""


Command: TypeAlias = CreateTopic | AddStreams | ChangeTerm | Report | Cut


class StreamCommit(msgspec.Struct, frozen=True, gc=False):
    """One stream's part of a cut: ``length`` entries get GLSNs from ``glsn_begin`` on.

    ``high_watermark`` is that of the topic after the whole cut.
    """

    topic: TopicId
    stream: StreamId
    high_watermark: Glsn
    glsn_begin: Glsn
    llsn_begin: Llsn
    length: int

    @property
    def glsn_end(self) -> Glsn:
        """The first GLSN not included."""
        return Glsn(self.glsn_begin + self.length)

    @property
    def llsn_end(self) -> Llsn:
        """The first LLSN not included."""
        return Llsn(self.llsn_begin + self.length)


class CutDecided(msgspec.Struct, frozen=True, gc=False):
    """A new version: the streams that something was ordered for, by (topic, stream)."""

    version: Version
    commits: tuple[StreamCommit, ...]


Effect: TypeAlias = CutDecided
