"""Why a command about topics and streams is refused.  No state.

Every function raises a ``Rejected`` error, or returns and the command may take effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from tidelog import limits
from tidelog.core.order.commands import CreateTopic, NewStream, RetainTopic, UpdateStream
from tidelog.core.order.quorum import surviving_version
from tidelog.core.order.reports import departed_after, replicas_after
from tidelog.core.order.state import StreamOrder, TopicOrder
from tidelog.errors import BadOption, OutOfRange, ReplicasBehind, RevisionConflict, TopicExists
from tidelog.types import (
    FIRST_GLSN,
    NO_NODE,
    NO_VERSION,
    NodeId,
    Revision,
    StreamId,
    TopicId,
    Version,
)


def refuse_topic(
    command: CreateTopic, topics: Mapping[TopicId, TopicOrder], names: Mapping[str, TopicId]
) -> None:
    if command.topic in topics:
        raise TopicExists(f"there is a topic {command.topic} already")
    if command.name in names:
        raise TopicExists(f"there is a topic named {command.name!r} already")
    if len(command.name) > limits.TOPIC_NAME_CHARS_MAX:
        raise BadOption(f"a topic name has at most {limits.TOPIC_NAME_CHARS_MAX} characters")
    if len(topics) >= limits.TOPICS_MAX:
        raise BadOption(f"a log has at most {limits.TOPICS_MAX} topics")
    if not 0 <= command.key_streams <= len(command.streams):
        raise BadOption(
            f"{command.key_streams} streams for keys, and the topic begins with"
            f" {len(command.streams)}"
        )
    refuse_number(command.topic)


def refuse_retention(command: RetainTopic, topic: TopicOrder) -> None:
    """Nothing is trimmed before it is ordered: its GLSN might yet be anybody's."""
    end = topic.high_watermark + 1
    if not FIRST_GLSN <= command.trim_glsn_end <= end:
        raise OutOfRange(f"trimming ends between 1 and {end}, not at {command.trim_glsn_end}")
    for word in (command.boundary_high, command.boundary_low):
        if not 0 <= word < limits.WORD_END:
            raise BadOption("a GC boundary has 128 bits, in two words")


def refuse_streams(
    new: Sequence[NewStream],
    *,
    present: int,
    streams: Mapping[StreamId, StreamOrder],
    retired: StreamId,
) -> None:
    """``present`` is the number of streams that the topic has; ``retired`` was once removed."""
    if not new:
        raise BadOption("at least one stream is added")
    if present + len(new) > limits.STREAMS_PER_TOPIC_MAX:
        raise BadOption(f"a topic has at most {limits.STREAMS_PER_TOPIC_MAX} streams")
    if len(streams) + len(new) > limits.STREAMS_MAX:
        raise BadOption(f"a log has at most {limits.STREAMS_MAX} streams")
    if len({each.stream for each in new}) != len(new):
        raise BadOption("a stream is named twice")
    for each in new:
        refuse_number(each.stream)
        if each.stream in streams:
            raise BadOption(f"stream {each.stream} exists already")
        if each.stream <= retired:
            raise BadOption(
                f"stream {each.stream} may have existed: numbers go on at {retired + 1}"
            )
        refuse_ensemble(each.ensemble)


def refuse_revision(order: StreamOrder, revision: Revision) -> None:
    if revision != order.revision:
        raise RevisionConflict(
            f"stream {order.stream} is at revision {order.revision}, not at {revision}"
        )


def refuse_update(command: UpdateStream, order: StreamOrder, latest: Version) -> None:
    refuse_revision(order, command.revision)
    if command.term < order.term:
        raise BadOption(f"stream {order.stream} is in term {order.term}: {command.term} has passed")
    refuse_number(command.term)
    refuse_ensemble(command.ensemble)
    refuse_joining(command, order)
    refuse_versions(command, latest)
    if not NO_NODE <= command.leader < limits.ORDER_NUMBER_END:
        raise BadOption(f"{command.leader} is no node")
    if len(command.plan) > limits.STREAM_PLAN_BYTES_MAX:
        raise BadOption(f"a plan has at most {limits.STREAM_PLAN_BYTES_MAX} bytes")


def refuse_joining(command: UpdateStream, order: StreamOrder) -> None:
    """A replica that left and comes back is another one: its old reports must be void by then."""
    returning = [node for node in command.ensemble if node in order.departed]
    if returning and command.term == order.term:
        raise BadOption(
            f"node {returning[0]} left stream {order.stream} in term {order.term};"
            " it comes back with a new term only"
        )
    if len(departed_after(command, order)) > limits.ENSEMBLE_DEPARTED_MAX:
        raise BadOption(
            f"at most {limits.ENSEMBLE_DEPARTED_MAX} nodes leave stream {order.stream} in one term;"
            " begin a new one"
        )


def refuse_versions(command: UpdateStream, latest: Version) -> None:
    """What is said of joining nodes is bounded, and no cut is known before it is decided."""
    if len(command.joining_versions) > limits.ENSEMBLE_NODES_MAX:
        raise BadOption(f"at most {limits.ENSEMBLE_NODES_MAX} nodes join an ensemble")
    for node, version in command.joining_versions:
        if not NO_VERSION <= version <= latest:
            raise BadOption(f"node {node} cannot know version {version}: the last is {latest}")


def refuse_forgetting(command: UpdateStream, order: StreamOrder, forgotten: Version) -> None:
    """Cuts that are no longer kept must outlive any minority of a new ensemble (O6)."""
    surviving = surviving_version(replicas_after(command, order))
    if surviving < forgotten and command.ensemble != order.ensemble:
        raise ReplicasBehind(
            f"enough replicas know the cuts up to {surviving}, but those up to {forgotten} are"
            " no longer kept: wait until one more has caught up"
        )


def refuse_ensemble(ensemble: Sequence[NodeId]) -> None:
    if not 1 <= len(ensemble) <= limits.ENSEMBLE_NODES_MAX:
        raise BadOption(f"an ensemble has 1 to {limits.ENSEMBLE_NODES_MAX} nodes")
    if any(a >= b for a, b in pairwise(ensemble)):
        raise BadOption(f"the nodes of an ensemble are sorted, each once: not {ensemble}")
    for node in ensemble:
        refuse_number(node)


def refuse_number(number: int) -> None:
    if not 0 < number < limits.ORDER_NUMBER_END:
        raise BadOption(f"{number} is out of range")
