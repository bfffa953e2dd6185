"""What a log does, whether it is embedded or served: the same tests for all of its faces."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest

from tests.client.proxy import wait_until
from tidelog import Entry, Kind
from tidelog.errors import (
    BadEntry,
    BadOption,
    LogClosed,
    OutOfRange,
    ProducerConflict,
    RevisionConflict,
    StaleWrite,
    TopicExists,
    Trimmed,
    UnknownStream,
    UnknownTopic,
    ValueTooLarge,
)
from tidelog.formats.batch import encode_values
from tidelog.interface.appends import Part
from tidelog.interface.handles import AppenderHandle, LogHandle, TopicHandle
from tidelog.interface.records import Ack, Receipt
from tidelog.limits import VALUE_BYTES_MAX


def values(topic: TopicHandle) -> list[bytes]:
    return [record.value for record in topic.read()]


def test_receipts_tell_where_entries_are(log: LogHandle) -> None:
    first = log.append(b"a")
    assert (first.topic, first.glsn, first.llsn, first.count) == ("default", 1, 1, 1)
    batch = log.append_batch([b"b", b"c"])
    assert (batch.glsn, batch.glsn_end, batch.duplicate) == (2, 4, False)
    assert log.high_watermark == 3
    assert [(r.glsn, r.value) for r in log.read()] == [(1, b"a"), (2, b"b"), (3, b"c")]


def test_keys_are_set_deleted_and_found(log: LogHandle) -> None:
    log.put(b"k", b"1")
    log.put(b"k", b"2", blobs=(7, 8))
    log.put(b"k", b"other", storage_id=9)
    found = log.get(b"k")
    assert found is not None
    assert (found.value, found.glsn, found.blobs, found.write_version) == (b"2", 2, (7, 8), 2)
    other = log.get(b"k", storage_id=9)
    assert other is not None
    assert other.value == b"other"
    log.delete(b"k")
    assert log.get(b"k") is None
    assert log.get(b"never") is None
    log.delete_storage(9)
    assert [r.kind for r in log.read()][-2:] == [Kind.DELETE, Kind.DELETE_STORAGE]


def test_a_batch_of_keys_goes_to_all_their_streams_at_once(log: LogHandle) -> None:
    topic = log.create_topic("wide", streams=4)
    items = [(b"key-%d" % i, b"%d" % i) for i in range(40)]
    receipts = topic.put_batch(items)
    assert sorted(r.stream for r in receipts) == sorted(topic.streams)
    assert sum(r.count for r in receipts) == 40
    records = list(topic.read())
    assert [r.glsn for r in records] == list(range(1, 41))
    assert {r.key: r.value for r in records} == dict(items)
    for key, value in items:
        found = topic.get(key)
        assert found is not None
        assert found.value == value


def test_records_of_several_streams_come_in_total_order(log: LogHandle) -> None:
    topic = log.create_topic("wide", streams=3)
    receipts = [topic.append(b"%d" % i) for i in range(30)]
    assert len({r.stream for r in receipts}) == 3
    assert [r.value for r in topic.read()] == [b"%d" % i for i in range(30)]
    assert [r.value for r in topic.read(5, 8)] == [b"4", b"5", b"6"]
    assert [r.value for r in topic.read(20, limit=2)] == [b"19", b"20"]
    assert list(topic.read(limit=0)) == []
    assert list(topic.read(31)) == []


def test_a_reader_that_lags_can_ask_for_the_delete_horizon(log: LogHandle) -> None:
    topic = log.create_topic("keyed", streams=2)
    assert (topic.stats().delete_horizon, topic.stats().dropped_deletes) == (1, 0)
    topic.put(b"k", b"v")
    gone = topic.delete(b"k")
    for number in range(3):
        topic.put(b"other %d" % number, b"")
        topic.compact(full=True)
    assert gone.glsn not in {record.glsn for record in topic.read()}
    assert (topic.stats().delete_horizon, topic.stats().dropped_deletes) == (gone.glsn + 1, 1)


def test_entries_keep_all_their_fields(log: LogHandle) -> None:
    topic = log.create_topic("explicit", versions="explicit")
    entries = [
        Entry(Kind.PUT, b"v", b"k", 5, (1 << 127) + 3, 1_234, (1, 2)),
        Entry(Kind.DELETE, b"", b"k", 5, (1 << 127) + 4, 1_235),
        Entry(Kind.APPEND, b"w", b"l", 6, 7, 1_236),
    ]
    topic.write(entries)
    found = [
        Entry(r.kind, r.value, r.key, r.storage_id, r.write_version, r.timestamp_us, r.blobs)
        for r in topic.read()
    ]
    assert found == entries


def test_a_numbered_append_is_appended_once(log: LogHandle) -> None:
    first = log.append(b"a", producer="p", sequence=1)
    again = log.append(b"a", producer="p", sequence=1)
    assert (again.glsn, again.duplicate, first.duplicate) == (first.glsn, True, False)
    for sequence in range(2, 12):
        log.append(b"b", producer="p", sequence=sequence)
    with pytest.raises(ProducerConflict):
        log.append(b"a", producer="p", sequence=1)
    assert len(values(log)) == 11


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda log: log.append(bytes(VALUE_BYTES_MAX + 1)), ValueTooLarge),
        (lambda log: log.append("text"), BadEntry),
        (lambda log: log.append(b"a", stream=99), UnknownStream),
        (lambda log: log.append(b"a", producer="p"), BadOption),
        (lambda log: log.append(b"a", producer="p", sequence=-1), BadOption),
        (lambda log: log.append_batch([]), BadEntry),
        (lambda log: log.put(b"", b"v"), BadEntry),
        (lambda log: log.put(b"k", b"v", write_version=3), BadEntry),
        (lambda log: log.put_batch([]), BadEntry),
        (lambda log: log.write([Entry(Kind.PUT, b"v")]), BadEntry),
        (lambda log: log.get(b""), BadEntry),
        (lambda log: log.read(0), OutOfRange),
        (lambda log: log.read(9), OutOfRange),
        (lambda log: log.read(1, 9), OutOfRange),
        (lambda log: log.read(limit=-1), BadOption),
        (lambda log: next(iter(log.subscribe(0))), OutOfRange),
        (lambda log: log.trim(0), OutOfRange),
        (lambda log: log.trim(9), OutOfRange),
        (lambda log: log.set_gc_boundary(5), BadOption),
        (lambda log: log.topic("x"), UnknownTopic),
        (lambda log: log.create_topic("default"), TopicExists),
        (lambda log: log.create_topic("x", streams=0), BadOption),
        (lambda log: log.create_topic("x", versions="other"), BadOption),
        (lambda log: log.create_topic("~hidden"), BadOption),
        (lambda log: log.add_streams("default", 0), BadOption),
        (lambda log: log.read_arrow(columns=["glns"]), BadOption),
        (lambda log: log.appender(bytes_max=0), BadOption),
    ],
)
def test_what_is_refused(log: LogHandle, call: object, error: type[Exception]) -> None:
    assert callable(call)
    with pytest.raises(error):
        call(log)
    log.append(b"still there")
    assert values(log) == [b"still there"]


def test_old_versions_are_refused_and_harm_no_neighbour(log: LogHandle) -> None:
    topic = log.create_topic("explicit", versions="explicit")
    topic.put(b"k", b"1", write_version=10)
    topic.set_gc_boundary(10)
    with topic.appender() as appender:
        futures = [
            appender.put(b"a%d" % i, b"v", write_version=9 if i == 3 else 11) for i in range(6)
        ]
        with pytest.raises(StaleWrite):
            appender.flush()
    failed = [i for i, future in enumerate(futures) if future.exception() is not None]
    assert failed == [3]
    assert topic.high_watermark == 6


def test_a_trimmed_range_is_told_with_what_is_left(log: LogHandle) -> None:
    log.append_batch([b"%d" % i for i in range(10)])
    assert log.trim(5) == 5
    assert log.first_available == 5
    with pytest.raises(Trimmed) as caught:
        list(log.read(3))
    assert caught.value.first_available == 5
    assert [r.glsn for r in log.read()] == [5, 6, 7, 8, 9, 10]


def test_a_subscription_meets_its_trim(log: LogHandle) -> None:
    log.append_batch([b"a", b"b", b"c"])
    log.trim(3)
    with pytest.raises(Trimmed) as caught:
        next(iter(log.subscribe(1)))
    assert caught.value.first_available == 3


def test_a_subscription_gets_what_is_there_and_what_comes(log: LogHandle) -> None:
    log.append_batch([b"0", b"1"])
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(lambda: list(islice(log.subscribe(1), 20)))
        for number in range(2, 20):
            log.append(b"%d" % number)
        records = heard.result(30)
    assert [r.value for r in records] == [b"%d" % i for i in range(20)]
    assert [r.glsn for r in records] == list(range(1, 21))


def test_a_subscription_ends_when_nothing_comes(log: LogHandle) -> None:
    log.append(b"a")
    assert [r.value for r in log.subscribe(1, timeout=0.01)] == [b"a"]
    assert list(log.subscribe(timeout=0)) == []
    assert [r.value for r in log.subscribe(1, timeout=0)] == [b"a"]


def test_a_subscription_ends_when_the_log_is_closed(log: LogHandle) -> None:
    log.append(b"a")
    begun = threading.Event()
    heard: list[bytes] = []

    def listen() -> None:
        for record in log.subscribe(1):
            heard.append(record.value)
            begun.set()

    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen)
        assert begun.wait(30)
        log.close()
        listening.result(30)
    assert heard == [b"a"]


def test_appends_of_many_threads_are_all_there_once(log: LogHandle) -> None:
    def work(number: int) -> list[int]:
        return [log.append(b"%d-%d" % (number, i)).glsn for i in range(50)]

    with ThreadPoolExecutor(6) as pool:
        glsns = [glsn for found in pool.map(work, range(6)) for glsn in found]
    assert sorted(glsns) == list(range(1, 301))
    found = values(log)
    assert len(set(found)) == 300
    for number in range(6):
        mine = [value for value in found if value.startswith(b"%d-" % number)]
        assert mine == [b"%d-%d" % (number, i) for i in range(50)]


def test_an_appender_keeps_order_and_tells_each_receipt(log: LogHandle) -> None:
    with log.appender(bytes_max=10_000) as appender:
        futures = [appender.append(b"%d" % i) for i in range(500)]
        futures += [appender.put(b"k", b"v"), appender.delete(b"k")]
    assert [future.result(0).glsn for future in futures] == list(range(1, 503))
    assert values(log)[:500] == [b"%d" % i for i in range(500)]
    assert log.get(b"k") is None


def test_an_appender_takes_batches_between_entries(log: LogHandle) -> None:
    """Each where it was appended, with one receipt for all of a batch."""
    with log.appender(bytes_max=10_000) as appender:
        first = [appender.append(b"%d" % i) for i in range(50)]
        batch = appender.append_batch([b"%d" % i for i in range(50, 250)])
        last = [appender.append(b"%d" % i) for i in range(250, 300)]
    assert values(log) == [b"%d" % i for i in range(300)]
    assert [future.result(0).glsn for future in first] == list(range(1, 51))
    told = batch.result(0)
    assert (told.glsn, told.llsn, told.count) == (51, 51, 200)
    assert [future.result(0).glsn for future in last] == list(range(251, 301))


def test_a_batch_of_an_appender_lies_behind_what_came_before_in_each_log_stream(
    log: LogHandle,
) -> None:
    topic = log.create_topic("wide", streams=3)
    keys = [b"key-%d" % i for i in range(60)]
    with topic.appender() as appender:
        for turn in range(20):
            for key in keys[:3]:
                appender.put(key, b"alone %d" % turn)
            batch = appender.put_batch([(key, b"together %d" % turn) for key in keys])
    assert {topic.get(key) is not None for key in keys} == {True}
    for key in keys[:3]:
        written = [record.value for record in topic.read() if record.key == key]
        assert written == [
            b"%s %d" % (how, turn) for turn in range(20) for how in (b"alone", b"together")
        ]
    receipts = batch.result(0)
    assert {receipt.stream for receipt in receipts} == set(topic.streams)
    assert sum(receipt.count for receipt in receipts) == 60


def test_a_batch_that_an_appender_cannot_take_leaves_nothing_behind(log: LogHandle) -> None:
    with log.appender() as appender:
        with pytest.raises(BadEntry, match="no entries"):
            appender.append_batch([])
        with pytest.raises(BadEntry, match="no entries"):
            appender.put_batch([])
        with pytest.raises(ValueTooLarge):
            appender.append_batch([b"small", bytes(VALUE_BYTES_MAX + 1)])
        with pytest.raises(UnknownStream):
            appender.append_batch([b"nowhere"], stream=99)
        appender.flush()
        appender.append_batch([b"still", b"there"])
    assert values(log) == [b"still", b"there"]


def test_a_batch_larger_than_an_appenders_room_goes_alone(log: LogHandle) -> None:
    with log.appender(bytes_max=10) as appender:
        batches = [appender.append_batch([bytes(10_000)] * 5) for _ in range(5)]
        appender.flush()
        assert [batch.result(0).glsn for batch in batches] == [1, 6, 11, 16, 21]


def test_an_appender_takes_nothing_once_its_context_was_left(log: LogHandle) -> None:
    """And nobody else waits for what it was given."""
    with log.appender() as appender:
        appender.append(b"a")
    other = log.appender()
    with pytest.raises(ZeroDivisionError):
        _leave_by_an_error(other)
    for left in (appender, other):
        with pytest.raises(LogClosed, match="make another one"):
            left.append(b"late")
        with pytest.raises(LogClosed):
            left.append_batch([b"late"])
        with pytest.raises(LogClosed):
            left.put(b"late", b"")
        left.flush()
    log.append(b"c", timeout=10)
    assert values(log) == [b"a", b"b", b"c"]


def _leave_by_an_error(appender: AppenderHandle) -> None:
    with appender:
        appender.append(b"b")
        raise ZeroDivisionError


def test_threads_whose_appender_is_left_meanwhile_know_what_was_appended(log: LogHandle) -> None:
    def write(number: int, appender: AppenderHandle) -> list[Future[Receipt]]:
        told: list[Future[Receipt]] = []
        with suppress(LogClosed):
            while True:
                told.append(appender.append(b"%d %d" % (number, len(told))))
        return told

    for _ in range(10):
        with ThreadPoolExecutor(3) as pool:
            with log.appender(bytes_max=2_000) as appender:
                writing = [pool.submit(write, number, appender) for number in range(3)]
                wait_until(lambda: any(log.read(limit=1)), "appends go on")
            told = [future.result(0) for task in writing for future in task.result(60)]
        assert sorted(one.glsn for one in told) == [record.glsn for record in log.read()]
        log.trim(log.append(b"between", timeout=10).glsn + 1)


def test_an_appender_takes_what_is_larger_than_its_room(log: LogHandle) -> None:
    with log.appender(bytes_max=10) as appender:
        futures = [appender.append(bytes(100_000)) for _ in range(5)]
        appender.flush()
        assert all(future.done() for future in futures)


def test_arrow_batches_hold_what_records_hold(log: LogHandle) -> None:
    topic = log.create_topic("wide", streams=2)
    topic.put_batch([(b"key-%d" % i, b"%d" % i) for i in range(100)])
    topic.append(b"plain")
    rows = [row for batch in topic.read_arrow() for row in batch.to_pylist()]
    records = list(topic.read())
    assert [row["glsn"] for row in rows] == [r.glsn for r in records]
    assert [row["value"] for row in rows] == [r.value for r in records]
    assert [row["key"] or b"" for row in rows] == [r.key for r in records]
    [stream, _] = topic.streams
    batches = topic.read_arrow(2, 50, columns=["stream", "glsn"], streams=[stream])
    chosen = [row for batch in batches for row in batch.to_pylist()]
    expected = [r.glsn for r in records if r.stream == stream and 2 <= r.glsn < 50]
    assert [row["glsn"] for row in chosen] == expected
    assert {row["stream"] for row in chosen} == {stream}


def test_positions_are_found(log: LogHandle) -> None:
    empty = log.position()
    assert (empty.glsn, empty.first_available, empty.high_watermark) == (1, 1, 0)
    log.append_batch([b"%d" % i for i in range(10)])
    log.append_batch([b"%d" % i for i in range(10)])
    assert log.find_end(1).glsn == 21
    assert log.find_end(1, records_max=15).glsn == 11
    assert log.find_end(21).glsn == 21
    assert log.find_time(0).glsn == 1
    assert log.find_time(1 << 60).glsn == 21


def test_one_log_stream_is_followed_by_itself(log: LogHandle) -> None:
    topic = log.create_topic("wide", streams=3)
    for number in range(9):
        topic.append(b"%d" % number, stream=topic.streams[number % 3])
    chosen = topic.streams[1]
    assert [r.value for r in topic.subscribe_to(chosen, 1, timeout=0)] == [b"1", b"4", b"7"]
    assert [r.value for r in topic.subscribe_to(chosen, 3, timeout=0.01)] == [b"4", b"7"]
    assert list(topic.subscribe_to(chosen, timeout=0)) == []
    with pytest.raises(UnknownStream):
        next(topic.subscribe_to(4_000, 1))
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(lambda: next(topic.subscribe_to(chosen, 10)).value)
        topic.append(b"other", stream=topic.streams[0])
        topic.append(b"mine", stream=chosen)
        assert heard.result(30) == b"mine"


def test_positions_are_kept_under_names_and_nobody_overwrites_what_it_did_not_see(
    log: LogHandle,
) -> None:
    none = log.position_of("reader")
    assert (none.glsn, none.revision) == (0, 0)
    first = log.store_position("reader", 5, expected=0)
    assert (first.glsn, first.revision) == (5, 1)
    with pytest.raises(RevisionConflict):
        log.store_position("reader", 6, expected=0)
    assert log.store_position("reader", 4, expected=first.revision).revision == 2
    assert log.position_of("reader").glsn == 4
    assert log.position_of("another").revision == 0
    other = log.create_topic("other")
    assert other.position_of("reader").revision == 0
    assert log.topics() == ["default", "other"]
    assert values(log) == []
    for name, glsn, expected in (("", 1, 0), ("reader", 1, -1)):
        with pytest.raises(BadOption):
            log.store_position(name, glsn, expected=expected)
    with pytest.raises(OutOfRange):
        log.store_position("reader", 0, expected=2)


@pytest.mark.parametrize("ack", [*Ack, "stored", "propagated", "ordered"])
def test_an_append_waits_for_what_it_is_told_to(log: LogHandle, ack: Ack) -> None:
    assert log.append(b"a", ack=ack).llsn == 1
    assert log.append_batch([b"b", b"c"], ack=ack).count == 2
    assert values(log) == [b"a", b"b", b"c"]


def test_a_level_that_there_is_not_is_told(log: LogHandle) -> None:
    nonsense: Any = "sometimes"
    with pytest.raises(BadOption, match="propagated"):
        log.append(b"a", ack=nonsense)


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log.append(b"a", timout=5),
        lambda log: log.append_batch([b"a"], timout=5),
        lambda log: log.put(b"k", b"v", timout=5),
        lambda log: log.put_batch([(b"k", b"v")], timout=5),
        lambda log: log.write([Entry(Kind.PUT, b"v", b"k")], timout=5),
        lambda log: log.delete(b"k", timout=5),
        lambda log: log.delete_storage(1, timout=5),
        lambda log: log.append(b"a", producer="p", sequence=1, timout=5),
    ],
)
def test_an_option_that_there_is_not_is_told(log: LogHandle, call: Any) -> None:
    with pytest.raises(BadOption, match="there is no option 'timout'"):
        call(log)
    assert not log.high_watermark


def test_the_end_is_waited_for(log: LogHandle) -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: log.find_end(1, wait=30.0))
        log.append(b"a")
        assert found.result(30).glsn == 2


def test_what_is_staged_is_published_once(log: LogHandle) -> None:
    log.append(b"before")
    stream = log.streams[0]
    stages = [
        log.stage([Part(stream, encode_values([b"a", b"b"], timestamp_us=1))]),
        log.stage([Part(stream, encode_values([b"c"], timestamp_us=1))]),
    ]
    assert values(log) == [b"before"]
    published = log.publish("writer", 1, stages)
    assert (published.entries, published.duplicate) == (3, False)
    assert log.publish("writer", 1, stages).duplicate
    assert values(log) == [b"before", b"a", b"b", b"c"]
    log.discard([log.stage([Part(stream, encode_values([b"d"], timestamp_us=1))])])
    assert log.topics() == ["default"]


def test_a_log_is_kept_small(log: LogHandle) -> None:
    for number in range(5):
        log.put_batch([(b"k%d" % i, b"%d" % number) for i in range(20)])
    assert len(log.explain(b"k1")) == 5
    log.snapshot()
    assert not log.compact(full=True).failures
    assert len(values(log)) == 20
    assert log.rewrite(entries_max=5) == 5
    stats = log.stats()
    assert (stats.topic, stats.versions) == ("default", "log")
    assert log.log_stats().topics[0].topic == "default"


def test_topics_are_made_and_listed(log: LogHandle) -> None:
    topic = log.create_topic("other", streams=2)
    assert (topic.name, topic.versions, len(topic.streams)) == ("other", "log", 2)
    assert log.topics() == ["default", "other"]
    with pytest.raises(BadOption, match="one replica"):
        log.create_topic("wide", replicas=3)
    assert len(log.add_streams("other", 1).streams) == 3
    assert len(log.topic("other").streams) == 3
    log.topic("other").append(b"a")
    assert values(log) == []


def test_a_closed_log_says_so(log: LogHandle) -> None:
    log.append(b"a")
    log.close()
    log.close()
    with pytest.raises(LogClosed):
        log.append(b"b")
    with pytest.raises(LogClosed):
        log.get(b"b")
    with pytest.raises(LogClosed):
        list(log.read(1, 2))
