"""What people ask of a cluster: nodes, log streams, metadata members, operators.  No state.

Any storage node takes these requests, one for each action.  What takes long is only begun: its
state is in the metadata repository, where ``ClusterFigures`` looks, so that it can be followed from
anywhere and asked for again.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from tidelog.formats.message_fields import Message, Natural, TopicName
from tidelog.limits import ENSEMBLE_NODES_MAX, NODE_ADDRESS_CHARS_MAX

Address: TypeAlias = Annotated[str, msgspec.Meta(max_length=NODE_ADDRESS_CHARS_MAX)]
Nodes: TypeAlias = Annotated[tuple[Natural, ...], msgspec.Meta(max_length=ENSEMBLE_NODES_MAX)]


# -- looking -------------------------------------------------------------------------------------


class ClusterFigures(Message, frozen=True):
    """How the whole cluster is: ``Figures`` with a ``ClusterStatus``."""


class NodeFigures(Message, frozen=True):
    """How a node is: ``Figures`` with ``NodeFacts``; 0: the node that is asked."""

    node: Natural = 0


class StreamDigest(Message, frozen=True):
    """What a node holds of a log stream in ``[llsn_begin, llsn_end)``: ``Figures`` with
    ``DigestFacts``."""

    node: Natural
    stream: Natural
    llsn_begin: Natural
    llsn_end: Natural


class StreamGlsns(Message, frozen=True):
    """Which GLSNs a node knows of a log stream in a range: ``Figures`` with ``GlsnFacts``."""

    node: Natural
    stream: Natural
    glsn_begin: Natural
    glsn_end: Natural


# -- nodes ---------------------------------------------------------------------------------------


class AddNode(Message, frozen=True):
    """Register a storage node, or tell that it has moved; one that starts does so itself."""

    node: Natural
    peers: Address
    clients: Address


class RemoveNode(Message, frozen=True):
    """Unregister a storage node that holds no replica."""

    node: Natural


# -- log streams ---------------------------------------------------------------------------------


class CreateStream(Message, frozen=True):
    """Give a topic one more log stream: ``Number``.  No nodes: where there is room for it."""

    topic: TopicName
    nodes: Nodes = ()
    replicas: Natural = 0
    """How many, if no nodes are named; 0: as the topic's other streams."""


class SealStream(Message, frozen=True):
    """Let a log stream take no more appends, or take them again."""

    stream: Natural
    sealed: bool


class MoveLeader(Message, frozen=True):
    """Elect the leader anew; ``target`` is preferred if its log is as long as any."""

    stream: Natural
    target: Natural = 0


class ChangeEnsemble(Message, frozen=True):
    """Begin to swap a replica for one on another node, to add one, or to remove one."""

    stream: Natural
    kind: Literal["swap", "expand", "contract"]
    old: Natural = 0
    new: Natural = 0


class AbortChange(Message, frozen=True):
    """Undo a change of the ensemble that is not committed yet."""

    stream: Natural


# -- operators and the metadata repository -------------------------------------------------------


class PauseOperators(Message, frozen=True):
    """Let operators begin nothing by themselves, or go on."""

    paused: bool


class ChangeMembers(Message, frozen=True):
    """Add a node to the metadata repository, remove one, or let one lead it."""

    kind: Literal["add", "remove", "transfer"]
    node: Natural
    peers: Address = ""
    """Where a node that is added listens for others; empty: as registered."""


AdminRequest: TypeAlias = (
    ClusterFigures
    | NodeFigures
    | StreamDigest
    | StreamGlsns
    | AddNode
    | RemoveNode
    | CreateStream
    | SealStream
    | MoveLeader
    | ChangeEnsemble
    | AbortChange
    | PauseOperators
    | ChangeMembers
)
"""``Done`` is the answer where nothing else is told."""
