"""What an append tells, and the one order that all readers see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.embedded.logs import INLINE, in_thread, open_sim, together, values
from tidelog import Ack, Kind
from tidelog.storage.stream_store import StreamStore
from tidelog.testing.disk import SimDisk


def test_a_receipt_names_the_place_of_the_append() -> None:
    with open_sim(SimDisk()) as log:
        first, second = log.append(b"a"), log.append_batch([b"b", b"c"])
        assert (first.topic, first.stream, first.glsn, first.llsn, first.count) == (
            "default",
            log.streams[0],
            1,
            1,
            1,
        )
        assert (second.glsn, second.llsn, second.count, second.glsn_end) == (2, 2, 2, 4)
        assert second.ack is Ack.ORDERED
        assert not second.duplicate
        assert [(r.glsn, r.llsn, r.value) for r in log.read()] == [
            (1, 1, b"a"),
            (2, 2, b"b"),
            (3, 3, b"c"),
        ]


def test_a_record_carries_all_that_was_written() -> None:
    with open_sim(SimDisk(), versions="explicit") as log:
        log.put(b"k", b"v", storage_id=3, write_version=1 << 100, blobs=(5, 6))
        (record,) = log.read()
        assert (record.kind, record.key, record.value) == (Kind.PUT, b"k", b"v")
        assert (record.storage_id, record.write_version, record.blobs) == (3, 1 << 100, (5, 6))
        assert record.timestamp_us > 0
        assert not record.rewritten
        assert log.get(b"k", storage_id=3) == record


def test_llsns_count_per_stream_and_glsns_over_all() -> None:
    with open_sim(SimDisk(), streams=3) as log:
        receipts = [log.append(b"%d" % number) for number in range(9)]
        assert [receipt.glsn for receipt in receipts] == list(range(1, 10))
        for stream in log.streams:
            llsns = [receipt.llsn for receipt in receipts if receipt.stream == stream]
            assert llsns == [1, 2, 3]
        assert values(log) == [b"%d" % number for number in range(9)]


def test_a_batch_gets_neighbouring_glsns_whatever_else_is_appended() -> None:
    with open_sim(SimDisk(), streams=2) as log:

        def append_batches(writer: int) -> list[tidelog.Receipt]:
            batch = [b"%d" % writer] * 7
            stream = log.streams[writer % 2]
            return [log.append_batch(batch, stream=stream) for _ in range(20)]

        lists = together(4, append_batches)
        receipts = [receipt for found in lists for receipt in found]
        covered = sorted(g for r in receipts for g in range(r.glsn, r.glsn_end))
        assert covered == list(range(1, 4 * 20 * 7 + 1))
        by_glsn = {record.glsn: record for record in log.read()}
        for writer, found in enumerate(lists):
            for receipt in found:
                records = [by_glsn[g] for g in range(receipt.glsn, receipt.glsn_end)]
                assert {record.value for record in records} == {b"%d" % writer}
                assert {record.stream for record in records} == {receipt.stream}


def test_puts_of_one_call_are_all_in_one_frame() -> None:
    with open_sim(SimDisk(), streams=4) as log:
        before = log.log_stats().wal_frames
        items = [(b"key %d" % number, b"%d" % number) for number in range(40)]
        receipts = log.put_batch(items)
        assert log.log_stats().wal_frames == before + 1
        assert len({receipt.stream for receipt in receipts}) == len(receipts) == 4
        assert sum(receipt.count for receipt in receipts) == 40
        for key, value in items:
            found = log.get(key)
            assert found is not None
            assert found.value == value


def test_an_append_that_returned_comes_before_one_that_starts_later(tmp_path: Path) -> None:
    """Real-time order, over threads and log streams, with real files."""
    with tidelog.open(tmp_path / "log", streams=3, options=INLINE) as log:
        last_seen = [0]  # The greatest GLSN that any thread got back so far.

        def append(writer: int) -> None:
            for _ in range(100):
                before = last_seen[0]
                receipt = log.append(b"", stream=log.streams[writer % 3])
                assert receipt.glsn > before
                last_seen[0] = max(last_seen[0], receipt.glsn)

        together(4, append)
        assert [record.glsn for record in log.read()] == list(range(1, 401))


def test_what_was_acknowledged_can_be_read_at_once_by_every_thread() -> None:
    with open_sim(SimDisk(), streams=2) as log:

        def append_and_read(writer: int) -> None:
            for number in range(50):
                receipt = log.append(b"%d %d" % (writer, number))
                assert log.high_watermark >= receipt.glsn
                (record,) = log.read(receipt.glsn, receipt.glsn_end)
                assert record.value == b"%d %d" % (writer, number)

        together(3, append_and_read)


def test_a_tail_misses_nothing_while_others_append() -> None:
    """The high watermark moves only when all below it can be read."""
    with open_sim(SimDisk(), streams=3) as log:
        total = 3 * 150

        def follow() -> list[int]:
            glsns = []
            for record in log.subscribe(1, timeout=20):
                glsns.append(record.glsn)
                if len(glsns) == total:
                    break
            return glsns

        def append(writer: int) -> list[int]:
            return [log.append(b"x", stream=log.streams[writer]).glsn for _ in range(150)]

        with in_thread(follow) as first, in_thread(follow) as second:
            together(3, append)
            assert first.result(20) == second.result(20) == list(range(1, total + 1))


def test_every_reader_sees_the_same_order_after_a_restart(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", streams=2, options=INLINE) as log:
        for number in range(300):
            log.append(b"%d" % number + bytes(600))
        before = list(log.read())
        assert log.log_stats().flushes > 1
    with tidelog.open(tmp_path / "log", options=INLINE) as log:
        assert list(log.read()) == before


@pytest.mark.parametrize("ack", list(Ack))
def test_both_levels_of_acknowledgement_are_reached_at_once(ack: Ack) -> None:
    with open_sim(SimDisk()) as log:
        assert log.append(b"x", ack=ack).glsn == 1


def test_a_read_ends_where_it_was_asked_to_even_if_something_is_appended_meanwhile() -> None:
    """The end of a read is looked up in two steps; an append may come between them."""
    with open_sim(SimDisk()) as log, pytest.MonkeyPatch.context() as patch:
        log.append(b"a")
        store = log.engine.node.streams[1]
        looked_up = type(store).runs_by_glsn

        def look_and_append(
            self: StreamStore, begin: int, end: int
        ) -> Iterator[tuple[int, int, int]]:
            yield from looked_up(self, begin, end)
            patch.undo()
            log.append(b"meanwhile")

        patch.setattr(type(store), "runs_by_glsn", look_and_append)
        assert [record.value for record in log.read(1, 2)] == [b"a"]
        assert values(log) == [b"a", b"meanwhile"]
