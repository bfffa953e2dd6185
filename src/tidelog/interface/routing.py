"""Which stream an entry goes to.  No state.

A key always goes to the same stream of its topic, so that its versions meet in one place and
compaction can compare them.  Streams that were added later take entries without keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xxhash import xxh3_64_intdigest

from tidelog.errors import BadEntry, BadOption, UnknownStream
from tidelog.formats.manifest import TopicManifest


def stream_of_key(topic: TopicManifest, key: bytes) -> int:
    if topic.key_streams == 1:
        return topic.streams[0]
    return topic.streams[xxh3_64_intdigest(key) % topic.key_streams]


def split_by_stream(topic: TopicManifest, keys: Sequence[bytes]) -> Mapping[int, Sequence[int]]:
    """Positions of the keys for each stream, in the order in which streams first occur."""
    if topic.key_streams == 1:
        return {topic.streams[0]: range(len(keys))}
    parts: dict[int, list[int]] = {}
    for position, key in enumerate(keys):
        parts.setdefault(stream_of_key(topic, key), []).append(position)
    return parts


def chosen_stream(topic: TopicManifest, stream: int, key: bytes) -> int:
    """Check a stream that the caller chose."""
    if type(stream) is not int:  # 1.0, True and a number of numpy equal 1 as well.
        raise BadOption(f"the log stream is a {type(stream).__name__}: give an int")
    if stream not in topic.streams:
        raise UnknownStream(
            f"topic {topic.name!r} has no log stream {stream}, only {list(topic.streams)}"
        )
    if key and stream != stream_of_key(topic, key):
        raise BadEntry(
            f"key {key[:40]!r} belongs to log stream {stream_of_key(topic, key)}, not {stream}: "
            "leave the stream out for entries with keys"
        )
    return stream


def producer_id(name: str) -> int:
    """The number of a named producer; 0 stands for none."""
    return xxh3_64_intdigest(name.encode()) or 1
