"""Makes appends: checks entries, encodes them, picks the streams.

What all faces of a topic share, embedded or remote, blocking or not.  All encoding happens here,
in the caller's thread, outside any lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import count
from time import time_ns
from typing import Final, Literal, TypedDict

import msgspec

from tidelog.errors import BadEntry, BadOption
from tidelog.formats.batch import BatchBody, encode_entries, encode_puts, encode_values
from tidelog.formats.batch_encode import encode_value
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.wal_payloads import BodyPlace
from tidelog.interface.records import Ack
from tidelog.interface.routing import chosen_stream, producer_id, split_by_stream, stream_of_key

_SEQUENCE_END: Final = 1 << 63


class AppendOptions(TypedDict, total=False):
    """Options that every append takes."""

    producer: str
    """Name of a producer: with ``sequence`` it makes a repeated append harmless."""
    sequence: int
    """The producer's number of this append; numbers grow from 1 on, gaps are allowed."""
    ack: Ack | Literal["stored", "propagated", "ordered"]
    """What to wait for; a log on one node reaches all levels with one fsync."""
    timeout: float | None
    """Seconds to wait; the log's default if left out."""


class CopiedFrom(msgspec.Struct, frozen=True, gc=False):
    """What copies that compaction makes were chosen from."""

    first_llsn: int
    """The first original."""
    end_llsn: int
    """Where the log stream ended then: the copies come right behind that or not at all."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """The part of an append that goes to one stream."""

    stream: int
    body: BatchBody
    version_min: int | None = None
    """The smallest explicit write version in it; None when versions are GLSNs."""
    copied: CopiedFrom | None = None
    """For copies that compaction makes."""
    place: BodyPlace | None = None
    """Where the body is durable already, if it is."""


class Append(msgspec.Struct, frozen=True, gc=False):
    """Batches that become durable together, all or none."""

    topic: str
    parts: Sequence[Part]
    producer: int = 0
    sequence: int = 0
    after: Sequence[int] = ()
    """For each part the producer's append before this one in its log stream, which must have
    arrived; 0, or nothing at all: none."""
    ack: Ack = Ack.ORDERED
    """What to wait for."""


class Appends:
    """Makes the appends of one topic; ``manifest`` tells what the topic is like now.

    ``sealed`` tells of log streams that are left out when they take turns.
    """

    def __init__(
        self,
        manifest: Callable[[], TopicManifest],
        sealed: Callable[[], frozenset[int]] = frozenset,
    ) -> None:
        self._current = manifest
        self._sealed = sealed
        self._turn = count()

    @property
    def _manifest(self) -> TopicManifest:
        return self._current()

    def append(
        self,
        value: bytes,
        key: bytes,
        stream: int | None,
        options: AppendOptions,
        blobs: tuple[int, ...] = (),
    ) -> Append:
        if key or blobs:
            entry = Entry(Kind.APPEND, value, key, timestamp_us=_now_us(), blobs=blobs)
            body = encode_entries([entry])
        elif type(value) is bytes:
            body = encode_value((value,), timestamp_us=_now_us())
        else:
            body = encode_values((value,), timestamp_us=_now_us())
        return self._request([Part(self.place(stream, key, options), body)], options)

    def append_batch(
        self, values: Sequence[bytes], stream: int | None, options: AppendOptions
    ) -> Append:
        body = encode_values(values, timestamp_us=_now_us())
        return self._request([Part(self.place(stream, b"", options), body)], options)

    def put_batch(
        self, items: Iterable[tuple[bytes, bytes]], storage_id: int, options: AppendOptions
    ) -> Append:
        topic = self._current()
        if topic.versions != "log":
            raise BadEntry(f"topic {topic.name!r} has explicit versions: use write() with entries")
        pairs = list(items)
        if not pairs:
            raise BadEntry("the batch has no entries: put at least one")
        # No zip(*pairs): that makes an iterator for each pair, and wakes the garbage collector.
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        now = _now_us()
        parts = []
        for stream, positions in split_by_stream(topic, keys).items():
            whole = len(positions) == len(keys)
            body = encode_puts(
                keys if whole else [keys[i] for i in positions],
                values if whole else [values[i] for i in positions],
                timestamp_us=now,
                storage_id=storage_id,
            )
            parts.append(Part(stream, body))
        return self._request(parts, options)

    def write(self, entries: Sequence[Entry], options: AppendOptions) -> Append:
        """Entries of any kinds that have keys; one that has no timestamp gets the time of now."""
        now = _now_us()
        stamped = [entry if entry.timestamp_us else entry.at(now) for entry in entries]
        topic = self._current()
        if topic.versions != "log" or any(entry.write_version is not None for entry in stamped):
            for entry in stamped:
                self.check_version(entry)
        keys = [entry.key for entry in stamped]
        if not keys or not all(keys):
            raise BadEntry("every entry of this call needs a key: append the others by themselves")
        if len(keys) == 1:
            return self._request([_part(stream_of_key(topic, keys[0]), stamped)], options)
        parts = [
            _part(stream, [stamped[position] for position in positions])
            for stream, positions in split_by_stream(topic, keys).items()
        ]
        return self._request(parts, options)

    def delete_storage(
        self, storage_id: int, write_version: int | None, options: AppendOptions
    ) -> Append:
        """One entry in each log stream that may hold keys."""
        entry = Entry(Kind.DELETE_STORAGE, b"", b"", storage_id, write_version, _now_us())
        self.check_version(entry)
        streams = self._manifest.streams[: self._manifest.key_streams]
        return self._request([_part(stream, [entry]) for stream in streams], options)

    def _request(self, parts: Sequence[Part], options: AppendOptions) -> Append:
        if not options:
            return Append(self._current().name, parts)
        check_names(options)
        producer, sequence = options.get("producer", ""), options.get("sequence", 0)
        if type(sequence) is not int:
            raise BadOption(f"the sequence is a {type(sequence).__name__}: give an int")
        if bool(producer) != bool(sequence) or sequence < 0:
            raise BadOption("a producer needs a name and a sequence from 1 on; give both or none")
        if sequence >= _SEQUENCE_END:
            raise BadOption(f"a producer's sequence has 63 bits, not {sequence}")
        number = producer_id(producer) if producer else 0
        ack = ack_of(options)
        return Append(self._name, parts, producer=number, sequence=sequence, ack=ack)

    @property
    def _name(self) -> str:
        return self._manifest.name

    def place(self, stream: int | None, key: bytes, options: AppendOptions) -> int:
        """The log stream for an entry: the one that was chosen, its key's, or whose turn it is."""
        topic = self._current()
        if stream is not None:
            return chosen_stream(topic, stream, key)
        if key:
            return stream_of_key(topic, key)
        # A producer's retries must find the stream that its first try went to.
        # Streams that were added in between must not change the answer.
        if options and (producer := options.get("producer", "")):
            return topic.streams[producer_id(producer) % topic.key_streams]
        streams = topic.streams
        if len(streams) == 1:
            return streams[0]
        if sealed := self._sealed():
            streams = tuple(one for one in streams if one not in sealed) or streams
        return streams[next(self._turn) % len(streams)]

    def check_version(self, entry: Entry) -> None:
        """Raise unless the entry has a write version exactly if the topic wants one."""
        if self._manifest.versions == "log":
            if entry.write_version is not None:
                raise BadEntry(
                    f"topic {self._name!r} takes GLSNs as write versions: leave write_version out, "
                    "or create the topic with versions='explicit'"
                )
        elif entry.write_version is None:
            raise BadEntry(f"topic {self._name!r} needs a write_version for every keyed write")


def check_names(options: AppendOptions) -> None:
    """Raise if there is an option that no append takes: nobody would look at it."""
    if unknown := options.keys() - AppendOptions.__optional_keys__:
        names = ", ".join(AppendOptions.__annotations__)
        raise BadOption(f"there is no option {min(unknown)!r}: besides its own, it takes {names}")


def ack_of(options: AppendOptions) -> Ack:
    """What an append waits for, which may be given by its name."""
    if "ack" not in options:
        return Ack.ORDERED
    try:
        return Ack(options["ack"])
    except ValueError:
        names = ", ".join(repr(ack.value) for ack in Ack)
        raise BadOption(f"ack is {options.get('ack')!r}, but must be one of {names}") from None


def _now_us() -> int:
    return time_ns() // 1000


def _part(stream: int, entries: Sequence[Entry]) -> Part:
    versions = [entry.write_version for entry in entries if entry.write_version is not None]
    return Part(stream, encode_entries(entries), min(versions) if versions else None)
