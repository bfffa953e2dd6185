"""What an audit asks of a node about itself: each answer is of that node alone.  No state.

Nothing is passed on to other nodes, nothing is repaired, and damage that a node finds in its own
files is an answer like any other.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from tidelog.formats.message_fields import Message, Natural, PieceHeader, Text
from tidelog.limits import CHECKED_FILES_MAX


class ListReplicas(Message, frozen=True):
    """What the node holds: ``Figures`` with ``AuditedNode``."""


class ReadReplica(Message, frozen=True):
    """The node's own entries of a log stream in ``[llsn_begin, llsn_end)``: ``ReplicaPage``."""

    stream: Natural
    llsn_begin: Natural
    llsn_end: Natural
    bytes_max: Natural = 0
    """Roughly how much to send; 0: as the node likes."""


class CheckFiles(Message, frozen=True):
    """Read files again and check every byte: ``FilesChecked``.

    Files are numbered, and a node checks as many as it likes, at least one, from ``first`` on.
    """

    stream: Natural
    """Segments of this log stream; 0: the write-ahead log."""
    first: Natural = 0


class ReplicaPage(Message, frozen=True):
    """All ordered entries of a replica with LLSNs in ``[llsn_begin, llsn_end)``, control entries
    included; batches are attached.

    With ``damage`` there are none: it says why they cannot be read.
    """

    pieces: tuple[PieceHeader, ...]
    llsn_begin: Natural
    llsn_end: Natural
    settled_index: Natural
    """Compaction and trims may have taken entries up to here; what lies above must be there."""
    damage: Text = ""


class CheckedFile(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file; ``problem`` is empty if it is sound."""

    name: Text
    bytes: Natural
    problem: Text = ""


class FilesChecked(Message, frozen=True):
    files: Annotated[tuple[CheckedFile, ...], msgspec.Meta(max_length=CHECKED_FILES_MAX)]
    next: Natural
    """Where to go on; 0: there are no more."""


AuditRequest: TypeAlias = ListReplicas | ReadReplica | CheckFiles
AuditAnswer: TypeAlias = ReplicaPage | FilesChecked
