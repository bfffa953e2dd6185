"""Positions that readers of a topic store under a name, with compare-and-set.

A position is a key of the internal topic ``~positions``.  Its revision counts how often it was
stored; whoever stores names the revision that it saw, so of two that saw the same only one gets
its way.

Invariants:
  N1  nobody else stores a position between the look at its revision and the append
"""

from __future__ import annotations

from time import time_ns

from tidelog.embedded.engine import Engine
from tidelog.embedded.pages import find_piece
from tidelog.embedded.requests import AppendRequest
from tidelog.errors import Busy
from tidelog.formats.batch import encode_puts
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import NamedPosition
from tidelog.formats.stored_positions import (
    NO_POSITION,
    POSITIONS_TOPIC,
    decode_position,
    encode_position,
    next_position,
    position_key,
)
from tidelog.interface.appends import Append, Part


def position_of(engine: Engine, topic: TopicManifest, name: str) -> NamedPosition:
    """The position that was stored under a name; revision 0 if there is none."""
    key = position_key(topic.topic, name)
    if not engine.has_topic(POSITIONS_TOPIC):
        return NO_POSITION
    return _look(engine, key)


def store_position(
    engine: Engine, topic: TopicManifest, name: str, glsn: int, expected: int
) -> NamedPosition:
    """Store a position, if ``expected`` is its revision; RevisionConflict if it is not."""
    key = position_key(topic.topic, name)
    internal = engine.internal_topic(POSITIONS_TOPIC)
    lock = engine.storing_position  # N1
    if not lock.acquire(timeout=engine.options.append_timeout_seconds):
        raise Busy("another position is being stored: try again later")
    try:
        engine.await_settled()
        position = next_position(name, _look(engine, key), glsn, expected)
        body = encode_puts([key], [encode_position(position)], timestamp_us=time_ns() // 1000)
        engine.settle(AppendRequest(Append(internal.name, [Part(internal.streams[0], body)])))
        return position
    finally:
        lock.release()


def _look(engine: Engine, key: bytes) -> NamedPosition:
    found = find_piece(engine, engine.internal_topic(POSITIONS_TOPIC), key, 0)
    return NO_POSITION if found is None else decode_position(found[1].first_value())
