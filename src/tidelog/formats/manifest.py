"""The manifest: topics, log streams and their state as of the last roll of the WAL.  No state.

M1  no two topics share a number or name, no two log streams a number; the next numbers are free
M2  what ``encode_manifest`` writes, ``decode_manifest`` reads: both check the same things
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from tidelog.core.replica.commit_context import NONE, CommitContext, Natural, flaw_in_context
from tidelog.core.replica.output import HardState
from tidelog.core.replica.producers import ProducerState
from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.invariants import check
from tidelog.limits import (
    MANIFEST_BYTES_MAX,
    MANIFEST_PRODUCERS_MAX,
    PRODUCER_WINDOW,
    PRODUCERS_PER_STREAM_MAX,
    STREAMS_PER_TOPIC_MAX,
    TOPIC_NAME_CHARS_MAX,
    TOPICS_MAX,
    WRITE_VERSION_END,
)
from tidelog.types import FIRST_TERM, Llsn, Term

__all__ = [
    "LOG_ID_BYTES",
    "Manifest",
    "ProducerState",
    "ReplicaManifest",
    "StreamManifest",
    "StreamState",
    "TopicManifest",
    "TruncationLimit",
    "decode_manifest",
    "encode_manifest",
    "fit_producers",
    "join_boundary",
    "split_boundary",
    "state_fault",
]

LOG_ID_BYTES: Final = 16

TopicVersions: TypeAlias = Annotated[str, msgspec.Meta(pattern="^(log|explicit)$")]
"""Whether the write versions of a topic are its GLSNs or numbers that writers give."""

_MAGIC: Final = b"TLMF"
_VERSION: Final = 1
_LOW_64: Final = (1 << 64) - 1


class StreamState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The state of a log stream that its entries do not hold."""

    context: CommitContext = NONE
    trim_llsn_end: Natural = 1
    """Entries below were trimmed."""
    trim_glsn_end: Natural = 1
    boundary: Natural = 0
    """The GC boundary: a write version of up to 128 bits."""
    producers: tuple[ProducerState, ...] = ()


class TruncationLimit(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Segments up to ``segment_number`` hold nothing valid at or above ``llsn_end``."""

    segment_number: Natural
    llsn_end: Natural


class ReplicaManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a storage node keeps of its replica of a stream besides the log itself."""

    hard_state: HardState | None = None
    terms: tuple[tuple[Term, Llsn], ...] = ()
    """Each term, and the first LLSN that it wrote."""
    filled_index: Natural = 0
    """Up to here a synchronisation left dead entries out."""
    generation: Natural = 0
    """How often the log began anew; each time in another directory."""


class StreamManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One log stream."""

    stream: Natural
    topic: Natural
    term: Natural = FIRST_TERM
    state: StreamState = StreamState()
    limits: tuple[TruncationLimit, ...] = ()
    next_segment: Natural = 1
    stored_end: Natural = 1
    """Entries below are in segments, or were trimmed or compacted away."""
    replica: ReplicaManifest | None = None
    """Of a stream of a storage node.  All that is said of it is as of the first WAL file that is
    still needed: from there on the WAL tells what happened, step by step."""


class TopicManifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One topic; keyed entries go to the first ``key_streams`` of its log streams."""

    topic: Natural
    name: str
    streams: tuple[Natural, ...]
    key_streams: Natural
    versions: TopicVersions


class Manifest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All of it."""

    log_id: bytes
    hash_seed: Natural
    wal_file: Natural
    """The first WAL file that is still needed."""
    wal_sequence: Natural
    """All frames below it were durable when the manifest was written."""
    topics: tuple[TopicManifest, ...] = ()
    streams: tuple[StreamManifest, ...] = ()
    next_topic: Natural = 1
    next_stream: Natural = 1


class _Wire(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """MessagePack has 64 bit numbers: the upper halves of the boundaries stand beside them."""

    manifest: Manifest
    boundaries_high: list[Natural]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Wire)


def encode_manifest(manifest: Manifest) -> bytes:
    """The whole file."""
    fault = _manifest_fault(manifest)
    check(fault is None, fault or "")
    halves = [split_boundary(stream.state) for stream in manifest.streams]
    streams = tuple(
        replace(stream, state=state)
        for stream, (state, _) in zip(manifest.streams, halves, strict=True)
    )
    body = _ENCODER.encode(_Wire(replace(manifest, streams=streams), [high for _, high in halves]))
    check(len(body) <= MANIFEST_BYTES_MAX, "M2: the manifest is small enough to be read back")
    return seal(_MAGIC, _VERSION, body)


def decode_manifest(data: bytes | memoryview) -> Manifest:
    """The manifest in exactly these bytes."""
    what = "manifest"
    body = unseal(_MAGIC, _VERSION, data, what=what, max_length=MANIFEST_BYTES_MAX)
    try:
        wire = _DECODER.decode(body)
    except ValueError as error:  # Bad structure, and bad UTF-8 in a name.
        raise CorruptData(f"{what}: {error}") from error
    manifest, highs = wire.manifest, wire.boundaries_high
    if len(highs) != len(manifest.streams):
        raise CorruptData(f"{what}: {len(highs)} boundaries of {len(manifest.streams)} log streams")
    streams = tuple(
        replace(stream, state=join_boundary(stream.state, high))
        for stream, high in zip(manifest.streams, highs, strict=True)
    )
    manifest = replace(manifest, streams=streams)
    if fault := _manifest_fault(manifest):
        raise CorruptData(f"{what}: {fault}")
    return manifest


def fit_producers(streams: Sequence[StreamManifest]) -> tuple[StreamManifest, ...]:
    """The streams with as many of their producers as there is room for, the last ones.

    Streams that have few of them keep all.
    """
    known = [len(stream.state.producers) for stream in streams]
    most = PRODUCERS_PER_STREAM_MAX
    while sum(min(count, most) for count in known) > MANIFEST_PRODUCERS_MAX:
        most //= 2
    return tuple(
        replace(each, state=replace(each.state, producers=each.state.producers[-most:]))
        if count > most
        else each
        for each, count in zip(streams, known, strict=True)
    )


def split_boundary(state: StreamState) -> tuple[StreamState, int]:
    """The state with the lower half of its boundary, and the upper half."""
    if state.boundary <= _LOW_64:
        return state, 0
    return replace(state, boundary=state.boundary & _LOW_64), state.boundary >> 64


def join_boundary(state: StreamState, high: int) -> StreamState:
    """What ``split_boundary`` took apart."""
    return replace(state, boundary=state.boundary | high << 64) if high else state


def state_fault(state: StreamState) -> str | None:
    """What is wrong with a log stream's state; None when nothing is."""
    if not 0 <= state.boundary < WRITE_VERSION_END:
        return "a GC boundary has more than 128 bits"
    if state.trim_llsn_end < 1 or state.trim_glsn_end < 1:
        return "an end of trimming is 0"
    if len(state.producers) > PRODUCERS_PER_STREAM_MAX:
        return f"{len(state.producers)} producers, the limit is {PRODUCERS_PER_STREAM_MAX}"
    if any(len(producer.appends) > PRODUCER_WINDOW for producer in state.producers):
        return f"a producer remembers more than {PRODUCER_WINDOW} appends"
    if _repeats(producer.producer for producer in state.producers):
        return "a producer stands there twice"
    context = state.context
    if max(context.version, context.high_watermark, context.llsn_end) > _LOW_64:
        return "a number of a commit context has more than 64 bits"
    return flaw_in_context(context)


def _manifest_fault(manifest: Manifest) -> str | None:
    topics, streams = manifest.topics, manifest.streams
    if len(manifest.log_id) != LOG_ID_BYTES:
        return f"a log id of {len(manifest.log_id)} bytes"
    if len(topics) > TOPICS_MAX:
        return f"{len(topics)} topics, the limit is {TOPICS_MAX}"
    if _repeats(topic.topic for topic in topics) or _repeats(topic.name for topic in topics):
        return "M1: a topic stands there twice"
    if _repeats(stream.stream for stream in streams):
        return "M1: a log stream stands there twice"
    if any(topic.topic >= manifest.next_topic for topic in topics):
        return f"M1: the next topic, {manifest.next_topic}, exists"
    if any(stream.stream >= manifest.next_stream for stream in streams):
        return f"M1: the next log stream, {manifest.next_stream}, exists"
    faults = (_topic_fault(topic) for topic in topics)
    states = (state_fault(stream.state) for stream in streams)
    return next(filter(None, faults), None) or next(filter(None, states), None)


def _topic_fault(topic: TopicManifest) -> str | None:
    if not 1 <= len(topic.name) <= TOPIC_NAME_CHARS_MAX:
        return f"topic {topic.topic} has a name of {len(topic.name)} characters"
    if topic.versions not in ("log", "explicit"):
        return f"topic {topic.topic} has versions {topic.versions!r}"
    if len(topic.streams) > STREAMS_PER_TOPIC_MAX:
        return f"topic {topic.topic} has {len(topic.streams)} log streams"
    if _repeats(topic.streams):
        return f"M1: topic {topic.topic} has a log stream twice"
    return None


def _repeats(names: Iterable[int | str]) -> bool:
    names = list(names)
    return len(set(names)) != len(names)
