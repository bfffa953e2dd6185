"""The client on a cluster of real processes: what only such a cluster can show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice, pairwise

import pytest

import tidelog
from tests.client.proxy import wait_until
from tests.client.uploads import LONG, LONG_PARTS, Broken, Source, breaking
from tidelog import Entry, Kind, RemoteLog, RemoteTopic
from tidelog.errors import (
    RevisionConflict,
    Sealed,
    Trimmed,
    UnknownBlob,
    UnknownStream,
    UnknownTopic,
    WrongLog,
)
from tidelog.formats.topic_blob import topics_of_blobs
from tidelog.interface.records import Ack
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.timeout(180)
_NAMES = count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[RemoteLog]:
    with cluster.connect() as connected:
        yield connected


@pytest.fixture
def topic(log: RemoteLog) -> RemoteTopic:
    """A topic of its own with two log streams."""
    return log.create_topic(f"topic-{next(_NAMES)}", streams=2)


def test_a_client_sees_what_it_appended_whichever_node_it_asks(
    cluster: LocalCluster, topic: RemoteTopic
) -> None:
    written = [b"%d" % number for number in range(50)]
    for value in written:
        topic.append(value)
        topic.put(b"key", value)
        found = topic.get(b"key")
        assert found is not None
        assert found.value == value
    for node in cluster.nodes:
        with tidelog.connect(node.url, topic=topic.name) as other:
            appended = [r.value for r in other.read() if r.kind is Kind.APPEND]
            assert appended == written
            assert other.position() == topic.position()


@pytest.mark.parametrize("ack", Ack)
def test_an_append_waits_for_what_it_is_told_to(topic: RemoteTopic, ack: Ack) -> None:
    receipt = topic.append(b"a", ack=ack)
    assert receipt.llsn == 1
    assert (receipt.glsn, receipt.ack) == ((1, ack) if ack is Ack.ORDERED else (0, ack))
    assert next(topic.subscribe(1)).value == b"a"


def test_keys_of_several_log_streams_are_set_and_deleted(topic: RemoteTopic) -> None:
    items = [(b"key-%d" % number, b"%d" % number) for number in range(40)]
    receipts = topic.put_batch(items)
    assert sorted(receipt.stream for receipt in receipts) == list(topic.streams)
    assert {record.key: record.value for record in topic.read()} == dict(items)
    topic.write([Entry(Kind.DELETE, b"", key) for key, _ in items[:20]])
    assert [topic.get(key) is None for key, _ in items] == [True] * 20 + [False] * 20
    topic.delete_storage(0)
    assert topic.get(items[-1][0]) is None


def test_a_numbered_append_is_there_once(cluster: LocalCluster, topic: RemoteTopic) -> None:
    first = topic.append(b"a", producer="p", sequence=1)
    with tidelog.connect(cluster.nodes[-1].url, topic=topic.name) as other:
        again = other.append(b"a", producer="p", sequence=1)
    assert (again.glsn, again.duplicate) == (first.glsn, True)


def test_one_log_stream_is_followed_by_itself(topic: RemoteTopic) -> None:
    first, second = topic.streams
    for number in range(10):
        topic.append(b"%d" % number, stream=topic.streams[number % 2])
    values = [record.value for record in topic.subscribe_to(second, 1, timeout=0.2)]
    assert values == [b"1", b"3", b"5", b"7", b"9"]
    with pytest.raises(UnknownStream):
        next(topic.subscribe_to(first + 1_000_000, 1))


def test_a_subscriber_follows_log_streams_that_are_added(
    log: RemoteLog, topic: RemoteTopic
) -> None:
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(lambda: [r.value for r in islice(topic.subscribe(1), 20)])
        for number in range(10):
            topic.append(b"%d" % number)
        wider = log.add_streams(topic.name, 1)
        assert len(wider.streams) == 3
        for number in range(10, 20):
            wider.append(b"%d" % number, stream=wider.streams[-1])
        assert heard.result(60) == [b"%d" % number for number in range(20)]
    assert topic.streams == wider.streams


def test_a_sealed_log_stream_is_passed_over(log: RemoteLog, topic: RemoteTopic) -> None:
    sealed, other = topic.streams
    log.admin.seal(sealed)
    assert {topic.append(b"a").stream for _ in range(6)} == {other}
    with pytest.raises(Sealed):
        topic.append(b"a", stream=sealed)


def test_sealing_leaves_no_append_without_an_answer(
    cluster: LocalCluster, log: RemoteLog, topic: RemoteTopic
) -> None:
    """Whoever has no choice of log streams is refused; all else that was taken has its place."""
    sealed, _ = topic.streams
    stop = threading.Event()

    def append(worker: int) -> list[bytes]:
        taken: list[bytes] = []
        with tidelog.connect(cluster.nodes[worker].url, topic=topic.name) as mine:
            while not stop.is_set():
                value = b"%d/%d" % (worker, len(taken))
                try:
                    mine.append(value, stream=sealed)
                except Sealed:
                    return taken
                taken.append(value)
        raise AssertionError("the stream was never sealed")

    with ThreadPoolExecutor(3) as pool:
        workers = [pool.submit(append, worker) for worker in range(3)]
        try:
            wait_until(lambda: topic.high_watermark >= 30, "thirty appends")
            log.admin.seal(sealed)
            end = topic.high_watermark
            taken = [value for worker in workers for value in worker.result(60)]
        finally:
            stop.set()
    assert sorted(taken) == sorted(record.value for record in topic.read())
    assert topic.high_watermark == end
    log.admin.unseal(sealed)
    assert topic.append(b"again", stream=sealed).glsn == end + 1


def test_positions_are_kept_under_names(cluster: LocalCluster, topic: RemoteTopic) -> None:
    assert topic.position_of("reader").revision == 0
    stored = topic.store_position("reader", 5, expected=0)
    with tidelog.connect(cluster.nodes[-1].url, topic=topic.name) as other:
        assert other.position_of("reader") == stored
        with pytest.raises(RevisionConflict):
            other.store_position("reader", 6, expected=0)
        assert other.store_position("reader", 6, expected=1).revision == 2
    assert topic.position_of("reader").glsn == 6


def test_what_was_trimmed_is_told(topic: RemoteTopic) -> None:
    topic.append_batch([b"%d" % number for number in range(10)])
    assert topic.trim(6) == 6
    with pytest.raises(Trimmed) as caught:
        next(topic.subscribe(1))
    assert caught.value.first_available == 6
    assert [record.glsn for record in topic.read()] == [6, 7, 8, 9, 10]


def test_another_cluster_or_topic_is_told(cluster: LocalCluster, log: RemoteLog) -> None:
    with pytest.raises(WrongLog):
        cluster.connect(log_id=bytes(16))
    with pytest.raises(UnknownTopic):
        log.topic("missing")


def test_leaders_that_move_and_die_lose_and_double_nothing(
    cluster: LocalCluster, log: RemoteLog, topic: RemoteTopic
) -> None:
    """Each log stream keeps the order of its writer; the subscriber sees the total order."""
    stopping = threading.Event()
    stream = topic.streams[0]

    def write(stream: int) -> list[bytes]:
        values: list[bytes] = []
        with topic.appender(bytes_max=20_000) as appender:
            while not stopping.is_set():
                added = [b"%d %d" % (stream, len(values) + i) for i in range(1 + len(values) % 3)]
                values += added
                if len(added) == 1:
                    appender.append(added[0], stream=stream)
                else:
                    appender.append_batch(added, stream=stream)
        return values

    def wait_for_more() -> None:
        seen = topic.high_watermark
        wait_until(lambda: topic.high_watermark > seen + 100, "appends go on")

    with ThreadPoolExecutor(3) as pool:
        heard = pool.submit(lambda: follow(topic))
        writing = [pool.submit(write, number) for number in topic.streams]
        wait_for_more()
        log.admin.move_leader(stream)
        wait_for_more()
        leader = cluster.leader_of(stream)
        leader.kill()
        wait_for_more()
        leader.start()
        wait_for_more()
        stopping.set()
        written = [task.result(60) for task in writing]
        topic.append(b"end")
        records = heard.result(60)
    assert records == list(topic.read())
    # Leaders make entries of their own, which nobody sees: so there may be gaps.
    assert all(one.glsn < next_one.glsn for one, next_one in pairwise(records))
    for number, values in zip(topic.streams, written, strict=True):
        assert len(values) > 100
        found = [r.value for r in records if r.stream == number and r.value != b"end"]
        assert found == values


def test_a_blob_is_put_while_leaders_die(cluster: LocalCluster, log: RemoteLog) -> None:
    """The leader of its description dies with the first parts under way, one of parts later."""
    topic = log.create_topic(f"topic-{next(_NAMES)}", streams=2)
    topic.put_blob(b"makes the topics")
    described, parts = (log.topic(name) for name in topics_of_blobs(topic.name))
    killed = []

    def kill(stream: int) -> None:
        killed.append(cluster.leader_of(stream))
        killed[-1].kill()

    def at_part(read: int) -> None:
        if read == 2:
            kill(described.streams[0])
        if read == 4:
            killed[0].start()
            cluster.wait_until_ready()
            kill(parts.streams[-1])

    blob = topic.put_blob(Source(LONG, at_part))
    topic.append(b"refers to it", blobs=(blob,))
    for node in killed:
        node.start()
    cluster.wait_until_ready()
    assert len(killed) == 2
    assert (len(described.streams), len(parts.streams)) == (1, 2)
    for node in cluster.nodes:
        with tidelog.connect(node.url, topic=topic.name) as other:
            assert other.open_blob(blob).read() == LONG
            assert [record.blobs for record in other.read()] == [(blob,)]


def test_collection_on_a_cluster_takes_what_is_torn_or_unused_and_nothing_else(
    log: RemoteLog, topic: RemoteTopic
) -> None:
    kept, unused = topic.put_blob(LONG), topic.put_blob(LONG)
    with pytest.raises(Broken):
        topic.put_blob(breaking(2))
    topic.append(b"refers to it", blobs=(kept,))
    assert [info.is_complete for info in topic.list_blobs()] == [True, True, False]
    done = topic.collect_blobs(0)
    assert (done.kept, done.deleted, done.torn) == (1, 1, 1)
    assert topic.open_blob(kept).read() == LONG
    with pytest.raises(UnknownBlob):
        topic.open_blob(unused)
    parts = log.topic(topics_of_blobs(topic.name)[1])
    assert sum(parts.get(record.key) is not None for record in parts.read()) == len(LONG_PARTS)


def follow(topic: RemoteTopic) -> list[tidelog.Record]:
    found = []
    for record in topic.subscribe(1):
        found.append(record)
        if record.value == b"end":
            break
    return found
