"""Bad input: a typed error that names the thing and the remedy, and nothing changes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.embedded.logs import (
    INLINE,
    PATH,
    flush,
    gated,
    in_thread,
    open_sim,
    together,
    values,
    wait_for_queued,
)
from tidelog import Entry, Kind, Log, Options
from tidelog.core.compaction.plan import Strategy
from tidelog.embedded import engine
from tidelog.errors import (
    BadEntry,
    BadOption,
    BatchTooLarge,
    CorruptData,
    KeyTooLarge,
    LogError,
    OutOfRange,
    Rejected,
    StaleWrite,
    TopicExists,
    Trimmed,
    UnknownStream,
    UnknownTopic,
    ValueTooLarge,
)
from tidelog.limits import BATCH_ENTRIES_MAX, KEY_BYTES_MAX, STREAMS_PER_TOPIC_MAX, VALUE_BYTES_MAX
from tidelog.testing.disk import Op, SimDisk

Call = Callable[[Log], Any]

REFUSED: dict[str, tuple[Call, type[LogError], str]] = {
    "a value that is too large": (
        lambda log: log.append(bytes(VALUE_BYTES_MAX + 1)),
        ValueTooLarge,
        f"{VALUE_BYTES_MAX + 1} bytes, the limit is {VALUE_BYTES_MAX}.*parts",
    ),
    "a key that is too large": (
        lambda log: log.put(bytes(KEY_BYTES_MAX + 1), b""),
        KeyTooLarge,
        f"{KEY_BYTES_MAX + 1} bytes, the limit is {KEY_BYTES_MAX}.*digest",
    ),
    "a batch of too many bytes": (
        lambda log: log.append_batch([bytes(VALUE_BYTES_MAX)] * 3),
        BatchTooLarge,
        "limit",
    ),
    "a batch of too many entries": (
        lambda log: log.append_batch([b""] * (BATCH_ENTRIES_MAX + 1)),
        BatchTooLarge,
        f"{BATCH_ENTRIES_MAX}",
    ),
    "an empty batch": (lambda log: log.append_batch([]), BadEntry, "no entries.*at least one"),
    "an empty batch of puts": (lambda log: log.put_batch([]), BadEntry, "no entries.*at least one"),
    "an empty list of writes": (lambda log: log.write([]), BadEntry, "needs a key"),
    "a put without a key": (lambda log: log.put(b"", b"v"), BadEntry, "needs a key"),
    "a write without a key": (
        lambda log: log.write([Entry(Kind.APPEND, b"v")]),
        BadEntry,
        "append the others",
    ),
    "an empty key among others": (
        lambda log: log.put_batch([(b"a", b""), (b"", b"")]),
        BadEntry,
        "at least one byte",
    ),
    "a value that is text": (lambda log: log.append("text"), BadEntry, "encode"),  # type: ignore[arg-type]
    "a storage id out of range": (
        lambda log: log.put_batch([(b"k", b"v")], storage_id=1 << 64),
        BadEntry,
        "storage id",
    ),
    "a negative storage id": (
        lambda log: log.delete(b"k", storage_id=-1),
        BadEntry,
        "storage id -1",
    ),
    "a storage id out of range to look in": (
        lambda log: log.get(b"k", storage_id=1 << 64),
        BadEntry,
        "storage id",
    ),
    "a negative storage id to explain": (
        lambda log: log.explain(b"k", storage_id=-1),
        BadEntry,
        "storage id -1",
    ),
    "no key to explain": (lambda log: log.explain(b""), BadEntry, "at least one byte"),
    "a position that no log reaches": (
        lambda log: log.store_position("p", 1 << 64, expected=0),
        BadOption,
        "63 bits",
    ),
    "a write version where GLSNs rule": (
        lambda log: log.put(b"k", b"v", write_version=5),
        BadEntry,
        "leave write_version out.*versions='explicit'",
    ),
    "an unknown stream": (
        lambda log: log.append(b"", stream=99),
        UnknownStream,
        r"'default' has no log stream 99, only \[1, 2\]",
    ),
    "the wrong stream for a key": (
        lambda log: [log.append(b"", key=b"k", stream=s) for s in log.streams],
        BadEntry,
        "belongs to log stream . *, not .*leave the stream out",
    ),
    "an unknown topic": (lambda log: log.topic("x"), UnknownTopic, "'x'; known: .'default'"),
    "streams for an unknown topic": (lambda log: log.add_streams("x", 1), UnknownTopic, "'x'"),
    "a topic that exists": (
        lambda log: log.create_topic("default"),
        TopicExists,
        "'default' already",
    ),
    "a topic without a name": (lambda log: log.create_topic(""), BadOption, "1 to 200"),
    "a topic with a long name": (lambda log: log.create_topic("x" * 201), BadOption, "1 to 200"),
    "a topic with a strange name": (lambda log: log.create_topic("a\nb"), BadOption, "printable"),
    "a topic without streams": (
        lambda log: log.create_topic("t", streams=0),
        BadOption,
        f"1 to {STREAMS_PER_TOPIC_MAX} log streams, not 0",
    ),
    "too many streams": (
        lambda log: log.add_streams("default", STREAMS_PER_TOPIC_MAX),
        BadOption,
        f"not {STREAMS_PER_TOPIC_MAX + 2}",
    ),
    "no more streams": (lambda log: log.add_streams("default", 0), BadOption, "at least"),
    "fewer streams": (lambda log: log.add_streams("default", -1), BadOption, "at least"),
    "unknown versions": (
        lambda log: log.create_topic("t", versions="none"),
        BadOption,
        "'log' or 'explicit', not 'none'",
    ),
    "a boundary where GLSNs rule": (
        lambda log: log.set_gc_boundary(5),
        BadOption,
        "'default' has no GC boundary",
    ),
    "a read from 0": (lambda log: log.read(0), OutOfRange, "start at 1, not 0"),
    "a read beyond the end": (lambda log: log.read(1, 9), OutOfRange, "GLSN 8: it ends at 2"),
    "a read from beyond the end": (lambda log: log.read(5), OutOfRange, "GLSN 5: it ends at 2"),
    "a read with a negative limit": (lambda log: log.read(limit=-1), BadOption, "limit is -1"),
    "a tail from 0": (lambda log: list(log.subscribe(0)), OutOfRange, "start at 1, not 0"),
    "a trim beyond the end": (lambda log: log.trim(4), OutOfRange, "GLSN 4: the last one is 2"),
    "a trim before the beginning": (lambda log: log.trim(0), OutOfRange, "start at 1"),
    "a get without a key": (lambda log: log.get(b""), BadEntry, "at least one byte"),
    "a rewrite of nothing": (lambda log: log.rewrite(entries_max=0), BadOption, "entries_max is 0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_log_refuses(what: str) -> None:
    call, error, message = REFUSED[what]
    with open_sim(SimDisk(), streams=2) as log:
        log.append_batch([b"a", b"b"])
        frames = log.log_stats().wal_frames
        with pytest.raises(error, match=message) as caught:
            call(log)
        assert isinstance(caught.value, Rejected)
        assert caught.value.definite
        if what != "the wrong stream for a key":  # One of its streams is the right one.
            assert values(log) == [b"a", b"b"]
            assert log.log_stats().wal_frames == frames
            assert log.topics() == ["default"]
        assert log.append(b"c").glsn == log.high_watermark, "the log goes on"


EXPLICIT: dict[str, tuple[Call, type[LogError], str]] = {
    "a put without a version": (
        lambda log: log.put(b"k", b"v"),
        BadEntry,
        "needs a write_version",
    ),
    "puts without versions": (
        lambda log: log.put_batch([(b"k", b"v")]),
        BadEntry,
        r"use write\(\)",
    ),
    "a storage delete without a version": (
        lambda log: log.delete_storage(0),
        BadEntry,
        "needs a write_version",
    ),
    "a version that is too large": (
        lambda log: log.put(b"k", b"v", write_version=1 << 128),
        BadEntry,
        "write version",
    ),
    "a version at the boundary": (
        lambda log: log.put(b"k", b"v", write_version=10),
        StaleWrite,
        "10 is not above the GC boundary 10: write with a newer version",
    ),
    "an old version among new ones": (
        lambda log: log.write(
            [Entry(Kind.PUT, b"", b"k", write_version=11), Entry(Kind.DELETE, b"", b"k", 0, 3)]
        ),
        StaleWrite,
        "3 is not above",
    ),
    "a boundary that is too large": (
        lambda log: log.set_gc_boundary(1 << 128),
        BadOption,
        "128 bits",
    ),
    "a negative boundary": (lambda log: log.set_gc_boundary(-1), BadOption, "128 bits"),
}


@pytest.mark.parametrize("what", EXPLICIT)
def test_a_topic_with_explicit_versions_refuses(what: str) -> None:
    call, error, message = EXPLICIT[what]
    with open_sim(SimDisk(), versions="explicit") as log:
        log.set_gc_boundary(10)
        with pytest.raises(error, match=message) as caught:
            call(log)
        assert caught.value.definite
        assert log.high_watermark == 0
        assert log.put(b"k", b"v", write_version=11).glsn == 1


NO_NUMBERS: dict[str, Call] = {
    "a trim": lambda log: log.trim(1.5),  # type: ignore[arg-type]
    "a GC boundary": lambda log: log.set_gc_boundary(1.5),  # type: ignore[arg-type]
    "a log stream": lambda log: log.append(b"", stream=1.0),  # type: ignore[arg-type]
    "a sequence": lambda log: log.append(b"", producer="p", sequence=1.5),  # type: ignore[arg-type]
    "a position": lambda log: log.store_position("p", 1.5, expected=0),  # type: ignore[arg-type]
    "a revision": lambda log: log.store_position("p", 1, expected=0.0),  # type: ignore[arg-type]
    "a batch": lambda log: log.publish("writer", 1.5, []),  # type: ignore[arg-type]
    "a stage": lambda log: log.publish("writer", 1, [1.5]),  # type: ignore[list-item]
    "a stage to forget": lambda log: log.discard([1.5]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("what", NO_NUMBERS)
def test_what_is_no_whole_number_harms_nobody_else(what: str) -> None:
    disk = SimDisk()
    with open_sim(disk, versions="explicit") as log:
        log.append(b"before")
        with pytest.raises((TypeError, BadOption), match="int"):
            NO_NUMBERS[what](log)
        log.append(b"after")
        assert log.publish("writer", 2, []).duplicate is False
        assert log.store_position("p", 1, expected=0).revision == 1
    with open_sim(disk) as log:
        assert values(log) == [b"before", b"after"]


def test_a_refused_append_does_not_hurt_its_group() -> None:
    """One of many that are committed together has a stale version; the others go through."""
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, versions="explicit", vfs=vfs) as log:
        log.set_gc_boundary(10)

        def put(number: int) -> str:
            try:
                log.put(b"k", b"", write_version=9 + number * 5)
            except StaleWrite:
                return "stale"
            return "written"

        with gate.shut(), in_thread(lambda: log.append(b"")) as held:
            gate.wait_until_held()
            with in_thread(lambda: together(4, put)) as puts:
                wait_for_queued(log, 4)
                gate.open()
                assert puts.result(20) == ["stale", "written", "written", "written"]
            held.result(20)
        assert [record.glsn for record in log.read()] == [1, 2, 3, 4]


def test_a_trim_that_cannot_look_at_one_log_stream_trims_none() -> None:
    disk = SimDisk()
    with open_sim(disk, streams=2) as log:
        for key in (b"a", b"b", b"c", b"d"):
            log.put(key, b"v")
        assert {record.stream for record in log.read()} == set(log.streams)
        flush(log)
        (segment,) = log.engine.node.streams[log.streams[1]].view.segments
        log.engine.node.opened.forget(segment.path)
        disk.fail(Op.OPEN, segment.path, errno.EIO)
        with pytest.raises(CorruptData) as caught:
            log.trim(5)
        assert caught.value.definite
        assert log.first_available == 1
        assert all(log.get(key) for key in (b"a", b"b", b"c", b"d"))
        assert log.trim(5) == 5


def test_a_read_below_the_trim_tells_the_first_available_position() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        log.append_batch([b"%d" % n for n in range(10)])
        assert log.trim(5) == 5
        assert log.trim(3) == 5, "a trim never goes back"
        with pytest.raises(Trimmed, match=r"GLSN 4 of topic 'default'.*available is 5") as caught:
            log.read(4)
        assert caught.value.first_available == 5
        with pytest.raises(Trimmed):
            next(log.subscribe(1))
        assert [record.glsn for record in log.read()] == [5, 6, 7, 8, 9, 10]
        assert log.trim(11) == log.first_available == 11
        assert list(log.read()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (lambda: Options(wal_file_bytes=1), "wal_file_bytes is 1, but must lie between 65536"),
        (lambda: Options(wal_file_bytes=1 << 40), "must lie between"),
        (lambda: Options(snapshot_bytes=0), "snapshot_bytes is 0"),
        (lambda: Options(tick_seconds=0), "tick_seconds"),
        (lambda: Options(append_timeout_seconds=-1), "append_timeout_seconds"),
        (lambda: Options(compaction=Strategy(dead_ratio=2)), "dead_ratio is 2"),
    ],
)
def test_options_are_checked(options: Callable[[], Options], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        options()


@pytest.mark.parametrize("options", [{"streams": 0}, {"versions": "x"}, {"topic": ""}])
def test_a_bad_first_topic_leaves_no_lock_behind(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(BadOption):
        tidelog.open(tmp_path / "log", options=INLINE, **options)
    with tidelog.open(tmp_path / "log", options=INLINE) as log:
        assert log.append(b"").glsn == 1


def test_a_topic_too_many_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "TOPICS_MAX", 2)
    disk = SimDisk()
    with open_sim(disk) as log:
        log.create_topic("second")
        with pytest.raises(BadOption, match="at most 2 topics"):
            log.create_topic("third")
        assert log.topics() == ["default", "second"]
    with open_sim(disk) as log:
        assert log.topics() == ["default", "second"]


def test_a_stream_too_many_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "STREAMS_MAX", 3)
    disk = SimDisk()
    with open_sim(disk) as log:
        log.create_topic("second", streams=2)
        with pytest.raises(BadOption, match="at most 3 log streams"):
            log.create_topic("third")
        with pytest.raises(BadOption, match="at most 3 log streams"):
            log.add_streams("second", 1)
        assert log.topic("second").append(b"").glsn == 1
    with open_sim(disk) as log:
        assert log.topics() == ["default", "second"]
        assert log.topic("second").append(b"").glsn == 2


def test_an_unknown_topic_is_not_made_when_nothing_may_be_created() -> None:
    disk = SimDisk()
    open_sim(disk).close()
    with pytest.raises(UnknownTopic, match="'other'"):
        tidelog.open(PATH, topic="other", create=False, options=INLINE, vfs=disk.vfs())
    with open_sim(disk) as log:
        assert log.topics() == ["default"]
