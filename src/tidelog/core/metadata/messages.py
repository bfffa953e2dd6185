"""What metadata nodes say to one another besides Raft, and to storage nodes.  No state.

Any message may be lost, late, repeated or reordered.  A storage node

  * reports to the metadata node that asked with the highest ``assignment``: all of its replicas
    when it is asked, and then each replica that has more to order, as soon as that is durable;
  * learns from ``Collect`` which streams it hosts, and how far they were ordered then;
  * takes a ``CommitResult`` only if it knows ``placements``, for what is not said of a stream means
    that nothing was ordered, and only if it knows ``previous`` or a later version; it applies in
    order what is beyond the version that it knows, and then knows ``version``.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tidelog.core.metadata.commands import Shared
from tidelog.core.order.commands import Report, VersionedCommit
from tidelog.types import Glsn, Llsn, NodeId, StreamId, TopicId, Version


class Hosted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A storage node is in the ensemble of a stream, which is ordered up to ``llsn_end``."""

    stream: StreamId
    llsn_end: Llsn


class Collect(msgspec.Struct, frozen=True, tag=32, array_like=True):
    """A metadata node collects from a storage node and asks for a report of all its replicas.

    ``hosted``: all streams that the target hosts since ``placements``, ordered as of ``version``;
    None if its last report shows that it knows.
    """

    source: NodeId
    target: NodeId
    assignment: int
    placements: int
    version: Version
    hosted: tuple[Hosted, ...] | None = None


class NodeReport(msgspec.Struct, frozen=True, tag=33, array_like=True):
    """What a storage node has durable, and the last version that all its replicas were told of.

    Replicas that start, truncate or synchronise are silent: they are left out of ``reports``.
    ``placements``: the last change of what it hosts that it knows; 0 for none.  ``ahead``: replicas
    that were told of later versions than the others; None: as in the part before this one.
    """

    source: NodeId
    target: NodeId
    version: Version
    placements: int
    reports: tuple[Report, ...]
    ahead: tuple[tuple[StreamId, Version], ...] | None = ()


class HighWatermark(msgspec.Struct, frozen=True, tag=35, array_like=True, gc=False):
    """How far a topic's GLSNs are issued."""

    topic: TopicId
    glsn: Glsn


class Behind(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a replica missed is not kept any more: up to cut ``version``, which is the last one that
    ordered entries of the stream, up to ``llsn_end``."""

    stream: StreamId
    version: Version
    llsn_end: Llsn


class CommitResult(msgspec.Struct, frozen=True, tag=36, array_like=True):
    """All cuts after ``previous`` up to ``version``, as far as they concern the target, which hosts
    what it hosts since ``placements``.

    ``commits``: one per cut and stream, in the order of versions.  A stream that is not there had
    nothing ordered: its replica applies an empty commit.  ``watermarks``: topics whose high
    watermark is news.  ``behind``: streams whose missed commits are gone from the history; these
    replicas ask others.  ``ahead``: what replicas are taken to know beyond ``previous``.
    """

    source: NodeId
    target: NodeId
    previous: Version
    version: Version
    placements: int
    watermarks: tuple[HighWatermark, ...]
    commits: tuple[VersionedCommit, ...]
    behind: tuple[Behind, ...] = ()
    ahead: tuple[tuple[StreamId, Version], ...] = ()


class Share(msgspec.Struct, frozen=True, tag=37, array_like=True):
    """A metadata node gives the leader what is to go through Raft."""

    source: NodeId
    target: NodeId
    commands: tuple[Shared, ...]


ToStorage: TypeAlias = Collect | CommitResult
