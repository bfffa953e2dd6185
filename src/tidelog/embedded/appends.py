"""Makes append requests: checks entries, encodes them, picks the streams.

What both faces of a topic share: the blocking one commits a request itself, the asyncio one has
it committed.  All encoding happens here, in the caller's thread, outside any lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from time import time_ns
from typing import Final, TypedDict

from tidelog.embedded.engine import Engine
from tidelog.embedded.records import Ack
from tidelog.embedded.requests import AppendRequest, Part
from tidelog.embedded.routing import chosen_stream, producer_id, split_by_stream, stream_of_key
from tidelog.errors import BadEntry, BadOption
from tidelog.formats.batch import encode_entries, encode_puts, encode_values
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest

_SEQUENCE_END: Final = 1 << 63


class AppendOptions(TypedDict, total=False):
    """Options that every append takes."""

    producer: str
    """Name of a producer: with ``sequence`` it makes a repeated append harmless."""
    sequence: int
    """The producer's number of this append; numbers grow from 1 on, gaps are allowed."""
    ack: Ack
    """What to wait for; an embedded log reaches both levels with one fsync."""
    timeout: float | None
    """Seconds to wait; the log's default if left out."""


class Appends:
    def __init__(self, engine: Engine, topic: int) -> None:
        self._engine = engine
        self._topic = topic
        self._turn = count()

    @property
    def _manifest(self) -> TopicManifest:
        return self._engine.node.topics[self._topic]

    def append(
        self, value: bytes, key: bytes, stream: int | None, options: AppendOptions
    ) -> AppendRequest:
        if key:
            body = encode_entries([Entry(Kind.APPEND, value, key, timestamp_us=_now_us())])
        else:
            body = encode_values((value,), timestamp_us=_now_us())
        return self._request([Part(self._place(stream, key, options), body)], options)

    def append_batch(
        self, values: Sequence[bytes], stream: int | None, options: AppendOptions
    ) -> AppendRequest:
        body = encode_values(values, timestamp_us=_now_us())
        return self._request([Part(self._place(stream, b"", options), body)], options)

    def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], storage_id: int, options: AppendOptions
    ) -> AppendRequest:
        if self._manifest.versions != "log":
            raise BadEntry(f"topic {self._name!r} has explicit versions: use write() with entries")
        pairs = list(items)
        if not pairs:
            raise BadEntry("the batch has no entries: put at least one")
        keys = [key for key, _ in pairs]
        values = [value for _, value in pairs]
        now = _now_us()
        parts = []
        for stream, positions in split_by_stream(self._manifest, keys).items():
            whole = len(positions) == len(keys)
            body = encode_puts(
                keys if whole else [keys[i] for i in positions],
                values if whole else [values[i] for i in positions],
                timestamp_us=now,
                storage_id=storage_id,
            )
            parts.append(Part(stream, body))
        return self._request(parts, options)

    def write(self, entries: Sequence[Entry], options: AppendOptions) -> AppendRequest:
        """Entries of any kinds that have keys; one that has no timestamp gets the time of now."""
        now = _now_us()
        stamped = [entry if entry.timestamp_us else entry.at(now) for entry in entries]
        for entry in stamped:
            self._check_version(entry)
        keys = [entry.key for entry in stamped]
        if not keys or not all(keys):
            raise BadEntry("every entry of this call needs a key: append the others by themselves")
        parts = [
            _part(stream, [stamped[position] for position in positions])
            for stream, positions in split_by_stream(self._manifest, keys).items()
        ]
        return self._request(parts, options)

    def delete_storage(
        self, storage_id: int, write_version: int | None, options: AppendOptions
    ) -> AppendRequest:
        """One entry in each log stream that may hold keys."""
        entry = Entry(Kind.DELETE_STORAGE, b"", b"", storage_id, write_version, _now_us())
        self._check_version(entry)
        streams = self._manifest.streams[: self._manifest.key_streams]
        return self._request([_part(stream, [entry]) for stream in streams], options)

    def _request(self, parts: Sequence[Part], options: AppendOptions) -> AppendRequest:
        producer, sequence = options.get("producer", ""), options.get("sequence", 0)
        if bool(producer) != bool(sequence) or sequence < 0:
            raise BadOption("a producer needs a name and a sequence from 1 on; give both or none")
        if sequence >= _SEQUENCE_END:
            raise BadOption(f"a producer's sequence has 63 bits, not {sequence}")
        number = producer_id(producer) if producer else 0
        return AppendRequest(self._name, parts, producer=number, sequence=sequence)

    @property
    def _name(self) -> str:
        return self._manifest.name

    def _place(self, stream: int | None, key: bytes, options: AppendOptions) -> int:
        topic = self._manifest
        if stream is not None:
            return chosen_stream(topic, stream, key)
        if key:
            return stream_of_key(topic, key)
        # A producer's retries must find the stream that its first try went to.
        # Streams that were added in between must not change the answer.
        producer = options.get("producer", "")
        if producer:
            return topic.streams[producer_id(producer) % topic.key_streams]
        return topic.streams[next(self._turn) % len(topic.streams)]

    def _check_version(self, entry: Entry) -> None:
        if self._manifest.versions == "log":
            if entry.write_version is not None:
                raise BadEntry(
                    f"topic {self._name!r} takes GLSNs as write versions: leave write_version out, "
                    "or create the topic with versions='explicit'"
                )
        elif entry.write_version is None:
            raise BadEntry(f"topic {self._name!r} needs a write_version for every keyed write")


def _now_us() -> int:
    return time_ns() // 1000


def _part(stream: int, entries: Sequence[Entry]) -> Part:
    versions = [entry.write_version for entry in entries if entry.write_version is not None]
    return Part(stream, encode_entries(entries), min(versions) if versions else None)
