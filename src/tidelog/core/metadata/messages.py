"""What metadata nodes say to one another besides Raft, and to storage nodes.  No state.

Any message may be lost, late, repeated or reordered.  A storage node

  * reports to the metadata node that asked with the highest ``assignment``: all of its replicas
    when it is asked, and then each replica that has more to order, as soon as that is durable;
  * takes a ``CommitResult`` only if it knows ``previous`` or a later version, applies in order
    what is beyond the version that it knows, and then knows ``version``.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog.core.metadata.commands import Shared
from tidelog.core.order.commands import Report, VersionedCommit
from tidelog.types import Glsn, NodeId, StreamId, TopicId, Version


class Collect(msgspec.Struct, frozen=True, tag=32, array_like=True):
    """A metadata node collects from a storage node and asks for a report of all its replicas."""

    source: NodeId
    target: NodeId
    assignment: int


class NodeReport(msgspec.Struct, frozen=True, tag=33, array_like=True):
    """What a storage node has durable, and the last version whose cut it has applied.

    Replicas that start, truncate or synchronise are silent: they are left out.
    """

    source: NodeId
    target: NodeId
    version: Version
    reports: tuple[Report, ...]


class HighWatermark(msgspec.Struct, frozen=True, tag=35, array_like=True, gc=False):
    """How far a topic's GLSNs are issued."""

    topic: TopicId
    glsn: Glsn


class CommitResult(msgspec.Struct, frozen=True, tag=36, array_like=True):
    """All cuts after ``previous`` up to ``version``, as far as they concern the target.

    ``commits``: one per cut and stream, in the order of versions.  A stream that is not there had
    nothing ordered: its replica applies an empty commit.  ``watermarks``: topics whose high
    watermark is news.  ``behind``: streams whose missed commits are gone from the history; these
    replicas synchronise from a peer.
    """

    source: NodeId
    target: NodeId
    previous: Version
    version: Version
    watermarks: tuple[HighWatermark, ...]
    commits: tuple[VersionedCommit, ...]
    behind: tuple[StreamId, ...] = ()


class Share(msgspec.Struct, frozen=True, tag=37, array_like=True):
    """A metadata node gives the leader what is to go through Raft."""

    source: NodeId
    target: NodeId
    commands: tuple[Shared, ...]


ToStorage: TypeAlias = Collect | CommitResult
