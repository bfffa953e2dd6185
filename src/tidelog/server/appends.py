"""Takes batches in that clients encoded, and trusts nothing in them.  No state."""

from __future__ import annotations

from typing import Final

from tidelog.errors import BadEntry, BadFrame, BadOption, CorruptData, UnknownStream
from tidelog.formats.batch import Batch, BatchBody, Column, decode_batch
from tidelog.formats.batch_layout import HAS_KEYS, HAS_LLSNS, REWRITTEN
from tidelog.formats.entry import Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.message_fields import WireReceipt
from tidelog.formats.messages import AppendBatches, Receipts
from tidelog.formats.staged import body_of, smallest_version
from tidelog.interface.appends import Append, Part
from tidelog.interface.records import Ack, Receipt
from tidelog.interface.routing import chosen_stream

_VERSIONED: Final = frozenset({int(Kind.PUT), int(Kind.DELETE), int(Kind.DELETE_STORAGE)})
"""Kinds of which the write version counts."""


def decode_append(topic: TopicManifest, message: AppendBatches, attachment: memoryview) -> Append:
    """The append that a client asks for; raises unless it may be appended as it is."""
    if bool(message.producer) != bool(message.sequence):
        raise BadOption("a producer needs a number and a sequence from 1 on; give both or none")
    if message.after and len(message.after) != len(message.streams):
        raise BadOption("an append names what lies before it in all of its log streams, or in none")
    parts = decode_parts(topic, message.streams, attachment)
    return Append(
        topic.name,
        parts,
        producer=message.producer,
        sequence=message.sequence,
        after=message.after,
        ack=Ack(message.ack),
    )


def decode_parts(
    topic: TopicManifest, streams: tuple[int, ...], attachment: memoryview
) -> list[Part]:
    """One checked batch for each of ``streams``."""
    if not streams or len(set(streams)) != len(streams):
        raise BadOption("an append names at least one log stream, and each but once")
    parts: list[Part] = []
    offset = 0
    for stream in streams:
        if stream not in topic.streams:
            raise UnknownStream(
                f"topic {topic.name!r} has no log stream {stream}, only {list(topic.streams)}"
            )
        try:
            batch = decode_batch(attachment, offset)
        except CorruptData as error:
            raise BadFrame(f"the batch for log stream {stream} arrived damaged: {error}") from error
        parts.append(_part(topic, stream, batch))
        offset += batch.length
    if offset != len(attachment):
        raise BadFrame(f"{len(attachment) - offset} bytes follow the last batch")
    return parts


def wire_receipts(receipts: tuple[Receipt, ...], leader: str = "") -> Receipts:
    return Receipts(
        tuple(
            [
                WireReceipt(one.stream, one.glsn, one.llsn, one.count, one.duplicate)
                for one in receipts
            ]
        ),
        leader,
    )


def _part(topic: TopicManifest, stream: int, batch: Batch) -> Part:
    if batch.flags & (REWRITTEN | HAS_LLSNS):
        raise BadEntry("only compaction makes copies and leaves entries out: send whole batches")
    column = batch.column(Column.KINDS)
    kinds = frozenset((batch.kind_at(0),) if column is None else column.tobytes())
    if Kind.CONTROL in kinds:
        raise BadEntry("CONTROL entries are made by the log alone")
    body = body_of(batch)
    version_min = _version_min(topic, body, not kinds.isdisjoint(_VERSIONED))
    if batch.flags & HAS_KEYS and len(topic.streams) > 1:
        keys = batch.keys()
        for key in keys:
            chosen_stream(topic, stream, key)
    return Part(stream, body, version_min)


def _version_min(topic: TopicManifest, body: BatchBody, versioned: bool) -> int | None:
    """The smallest write version; None in a topic whose versions are GLSNs."""
    smallest = smallest_version(body)
    if topic.versions == "log":
        if smallest is not None:
            raise BadEntry(
                f"topic {topic.name!r} takes GLSNs as write versions: leave write_version out, "
                "or create the topic with versions='explicit'"
            )
    elif smallest is None and versioned:
        raise BadEntry(f"topic {topic.name!r} needs a write_version for every keyed write")
    return smallest
