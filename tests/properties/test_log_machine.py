"""The embedded log against a list: whatever is done to it, it holds what was acknowledged.

All on a simulated disk, in one thread, with WAL files so small that they roll all the time.
"""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tidelog
from tests.properties.log_model import TopicModel
from tidelog import Entry, Kind, Log, Options, Receipt, Topic
from tidelog.core.compaction.plan import Strategy
from tidelog.errors import OutOfRange, ProducerConflict, StaleWrite, Trimmed
from tidelog.limits import PRODUCER_WINDOW
from tidelog.testing.disk import Choice, SimDisk

PATH = "/log"
OPTIONS = Options(
    wal_file_bytes=64 << 10,
    snapshot_bytes=8 << 10,
    background=False,
    compaction=Strategy(minors=3, dead_ratio=0.3, dead_bytes_min=1),
)
LOG, VERSIONS = "events", "table"

keys = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
storages = st.sampled_from([0, 0, 0, 7])
values = st.one_of(
    st.binary(max_size=12),
    st.builds(lambda head, size: head + bytes(size), st.binary(max_size=3), st.just(9000)),
)
topics = st.sampled_from([LOG, VERSIONS])
versions = st.integers(0, 40)


class LogMachine(RuleBasedStateMachine):
    """Rules call the log and the model alike; invariants compare what can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.models = {LOG: TopicModel(), VERSIONS: TopicModel(explicit=True)}
        self.log: Log | None = None
        self.producers: dict[str, dict[int, Receipt]] = {}

    @initialize(streams=st.integers(1, 3))
    def create(self, streams: int) -> None:
        self.open(streams)
        assert self.log is not None
        self.log.create_topic(VERSIONS, streams=2, versions="explicit")

    def open(self, streams: int = 1) -> None:
        self.log = tidelog.open(
            PATH, topic=LOG, streams=streams, options=OPTIONS, vfs=self.disk.vfs()
        )

    def topic(self, name: str) -> Topic:
        assert self.log is not None
        return self.log.topic(name)

    def take(self, name: str, receipts: Receipt | Sequence[Receipt], sent: Sequence[Entry]) -> None:
        receipts = [receipts] if isinstance(receipts, Receipt) else receipts
        self.models[name].take(self.topic(name), receipts, sent)

    # -- appending -------------------------------------------------------------------------

    @rule(name=topics, value=values, key=st.sampled_from([b"", b"", b"a"]))
    def append(self, name: str, value: bytes, key: bytes) -> None:
        receipt = self.topic(name).append(value, key=key)
        self.take(name, receipt, [Entry(Kind.APPEND, value, key)])

    @rule(name=topics, batch=st.lists(values, min_size=1, max_size=5), at=st.integers(0, 9))
    def append_batch(self, name: str, batch: list[bytes], at: int) -> None:
        topic = self.topic(name)
        stream = topic.streams[at % len(topic.streams)]
        receipt = topic.append_batch(batch, stream=stream)
        assert receipt.stream == stream
        self.take(name, receipt, [Entry(Kind.APPEND, value) for value in batch])

    @rule(key=keys, value=values, storage=storages)
    def put(self, key: bytes, value: bytes, storage: int) -> None:
        receipt = self.topic(LOG).put(key, value, storage_id=storage)
        self.take(LOG, receipt, [Entry(Kind.PUT, value, key, storage)])

    @rule(items=st.lists(st.tuples(keys, values), min_size=1, max_size=6), storage=storages)
    def put_batch(self, items: list[tuple[bytes, bytes]], storage: int) -> None:
        receipts = self.topic(LOG).put_batch(items, storage_id=storage)
        self.take(LOG, receipts, [Entry(Kind.PUT, value, key, storage) for key, value in items])

    @rule(key=keys, storage=storages)
    def delete(self, key: bytes, storage: int) -> None:
        receipt = self.topic(LOG).delete(key, storage_id=storage)
        self.take(LOG, receipt, [Entry(Kind.DELETE, b"", key, storage)])

    @rule(storage=storages)
    def delete_storage(self, storage: int) -> None:
        topic = self.topic(LOG)
        receipts = topic.delete_storage(storage)
        assert {receipt.stream for receipt in receipts} <= set(topic.streams)
        self.take(LOG, receipts, [Entry(Kind.DELETE_STORAGE, b"", b"", storage)] * len(receipts))

    @rule(
        writes=st.lists(
            st.tuples(st.sampled_from([Kind.PUT, Kind.DELETE]), keys, values, storages, versions),
            min_size=1,
            max_size=4,
        )
    )
    def write(self, writes: list[tuple[Kind, bytes, bytes, int, int]]) -> None:
        entries = [
            Entry(kind, value if kind is Kind.PUT else b"", key, storage, version)
            for kind, key, value, storage, version in writes
        ]
        topic, boundary = self.topic(VERSIONS), self.models[VERSIONS].boundary
        if boundary and any(version <= boundary for *_, version in writes):
            with pytest.raises(StaleWrite, match=str(boundary)):
                topic.write(entries)
            return
        if any(version == 0 for *_, version in writes):
            with pytest.raises(StaleWrite):
                topic.write(entries)
            return
        self.take(VERSIONS, topic.write(entries), entries)

    @rule(
        name=st.sampled_from(["alice", "bob"]),
        step=st.integers(-PRODUCER_WINDOW - 3, 3),
        count=st.integers(1, 3),
    )
    def append_as_producer(self, name: str, step: int, count: int) -> None:
        """A new sequence is appended, a known one answered from the table, an old one refused."""
        known = self.producers.setdefault(name, {})
        newest = max(known, default=0)
        sequence = newest + step
        if sequence < 1:
            return
        batch = [f"{name} {sequence} {number}".encode() for number in range(count)]

        def call() -> Receipt:
            return self.topic(LOG).append_batch(batch, producer=name, sequence=sequence)

        if sequence > newest:
            known[sequence] = call()
            self.take(LOG, known[sequence], [Entry(Kind.APPEND, value) for value in batch])
        elif sequence in sorted(known)[-PRODUCER_WINDOW:]:
            self.check_duplicate(call(), known[sequence])
        else:
            with pytest.raises(ProducerConflict):
                call()

    def check_duplicate(self, again: Receipt, first: Receipt) -> None:
        assert again.duplicate
        assert (again.stream, again.llsn, again.count) == (first.stream, first.llsn, first.count)
        if first.glsn >= self.models[LOG].first:
            assert again.glsn == first.glsn
        else:
            assert again.glsn in (0, first.glsn)

    # -- reading ---------------------------------------------------------------------------

    @rule(name=topics, data=st.data(), limit=st.one_of(st.none(), st.integers(0, 5)))
    def read_a_range(self, name: str, data: st.DataObject, limit: int | None) -> None:
        model, topic = self.models[name], self.topic(name)
        begin = data.draw(st.integers(1, model.high + 1))
        end = data.draw(st.integers(begin, model.high + 1))
        if begin < model.first:
            with pytest.raises(Trimmed) as caught:
                topic.read(begin, end)
            assert caught.value.first_available == model.first
            return
        everything = list(topic.read(begin, end))
        model.check_read(everything, begin, end)
        if limit is not None:
            assert list(topic.read(begin, end, limit=limit)) == everything[:limit]

    @rule(name=topics, beyond=st.integers(1, 3))
    def read_beyond_the_end(self, name: str, beyond: int) -> None:
        end = self.models[name].high + 1
        with pytest.raises(OutOfRange, match=f"GLSN {end + beyond - 1}"):
            self.topic(name).read(end, end + beyond)

    @rule(name=topics, data=st.data())
    def tail(self, name: str, data: st.DataObject) -> None:
        model, topic = self.models[name], self.topic(name)
        begin = data.draw(st.integers(model.first, model.high + 1))
        assert list(topic.subscribe(begin, timeout=0)) == list(topic.read(begin))
        assert list(topic.subscribe(timeout=0)) == []

    @rule(name=topics, key=keys, storage=storages)
    def get(self, name: str, key: bytes, storage: int) -> None:
        found = self.topic(name).get(key, storage_id=storage)
        self.models[name].check_get(found, storage, key)

    # -- keeping it small ------------------------------------------------------------------

    @rule(name=topics, data=st.data())
    def trim(self, name: str, data: st.DataObject) -> None:
        model = self.models[name]
        before = data.draw(st.integers(1, model.high + 1))
        first = self.topic(name).trim(before)
        model.first = max(model.first, before)
        assert first == model.first

    @rule(version=versions)
    def set_gc_boundary(self, version: int) -> None:
        self.topic(VERSIONS).set_gc_boundary(version)
        model = self.models[VERSIONS]
        model.boundary = max(model.boundary, version)

    @rule(name=topics)
    def snapshot(self, name: str) -> None:
        self.topic(name).snapshot()

    @rule(name=topics, full=st.booleans())
    def compact(self, name: str, full: bool) -> None:
        assert not self.topic(name).compact(full=full).failures

    @rule()
    def roll(self) -> None:
        assert self.log is not None
        self.log.engine.roll()

    @rule(name=topics, entries_max=st.sampled_from([1, 3, 4096]))
    def rewrite(self, name: str, entries_max: int) -> None:
        topic = self.topic(name)
        self.models[name].take_copies(topic, topic.rewrite(entries_max=entries_max))

    @precondition(lambda self: self.log is not None and len(self.log.topic(LOG).streams) < 4)
    @rule()
    def add_streams(self) -> None:
        assert self.log is not None
        before = self.topic(LOG).streams
        assert self.log.add_streams(LOG, 1).streams[:-1] == before

    # -- ends and beginnings ---------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        assert self.log is not None
        self.log.close()
        self.open()

    @rule(kept=st.sampled_from([Choice.LOST, Choice.KEPT]))
    def crash(self, kept: Choice) -> None:
        """The power goes; what was not synced is lost, or not."""
        self.disk = self.disk.after_crash(kept)
        self.open()

    @invariant()
    def everything_acknowledged_is_there(self) -> None:
        if self.log is None or VERSIONS not in self.log.topics():
            return
        for name, model in self.models.items():
            topic = self.topic(name)
            assert topic.high_watermark == model.high
            assert topic.first_available == model.first
            model.check_read(list(topic.read()), model.first, model.high + 1)

    def teardown(self) -> None:
        if self.log is not None:
            self.log.close()


def test_the_log_equals_a_list_of_what_was_acknowledged() -> None:
    examples = settings().max_examples * 6 // 10
    bounds = settings(max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(LogMachine, settings=bounds)
