"""A producer may repeat an append, whenever and however often: it happens once."""

from __future__ import annotations

import errno
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from tests.embedded.logs import (
    INLINE,
    WAIT_SECONDS,
    flush,
    gated,
    in_thread,
    open_sim,
    together,
    values,
    wait_for_queued,
)
from tidelog import Receipt
from tidelog.core.replica import producers
from tidelog.core.replica.producers import ProducerState
from tidelog.errors import BadOption, CorruptData, ProducerConflict, StorageFailed
from tidelog.formats import manifest
from tidelog.limits import PRODUCER_WINDOW, PRODUCERS_PER_STREAM_MAX
from tidelog.testing.disk import Op, SimDisk

PATIENCE_SECONDS = 0.2
"""How long to wait for what must not happen."""


def same_place(again: Receipt, first: Receipt) -> bool:
    places = [(r.topic, r.stream, r.glsn, r.llsn, r.count) for r in (again, first)]
    return again.duplicate and not first.duplicate and places[0] == places[1]


def test_a_repeated_append_gets_the_receipt_of_the_first() -> None:
    with open_sim(SimDisk()) as log:
        first = log.append_batch([b"a", b"b"], producer="p", sequence=1)
        log.append(b"between")
        again = log.append_batch([b"a", b"b"], producer="p", sequence=1)
        assert same_place(again, first)
        assert values(log) == [b"a", b"b", b"between"]


@pytest.mark.parametrize("event", ["reopen", "flush", "flush and reopen", "crash"])
def test_a_repeated_append_is_known_after(event: str) -> None:
    disk = SimDisk()
    log = open_sim(disk, streams=2)
    first = log.append(b"a", producer="p", sequence=7)
    puts = log.put_batch([(b"%d" % n, b"") for n in range(20)], producer="p", sequence=8)
    assert len(puts) == 2
    if "flush" in event:
        flush(log)
    if "reopen" in event:
        log.close()
        log = open_sim(disk)
    if event == "crash":
        log = open_sim(disk.after_crash())
    with log:
        assert same_place(log.append(b"a", producer="p", sequence=7), first)
        again = log.put_batch([(b"%d" % n, b"") for n in range(20)], producer="p", sequence=8)
        assert all(map(same_place, again, puts))
        assert log.high_watermark == 21


def test_a_duplicate_whose_entries_are_gone_has_no_glsn_any_more() -> None:
    with open_sim(SimDisk()) as log:
        first = log.append(b"a", producer="p", sequence=1)
        flush(log)
        log.append(b"b")
        flush(log)
        log.trim(2)
        again = log.append(b"a", producer="p", sequence=1)
        assert (again.duplicate, again.llsn, again.glsn) == (True, first.llsn, 0)
        assert values(log) == [b"b"]


def test_a_start_brings_no_producer_back_that_made_room_for_others() -> None:
    """It is in the WAL, but those that came after it pushed it out: it must not push out them."""
    disk = SimDisk()
    log = open_sim(disk, options=replace(INLINE, wal_file_bytes=16 << 20))
    first = log.append(b"first", producer="p", sequence=1)
    flush(log)
    log.append(b"", producer="gone", sequence=1)
    log.append(b"", producer="p", sequence=2)
    for number in range(PRODUCERS_PER_STREAM_MAX - 1):
        log.append(b"", producer=f"{number}", sequence=1)
    assert same_place(log.append(b"first", producer="p", sequence=1), first)
    log.close()
    with open_sim(disk) as log:
        assert same_place(log.append(b"first", producer="p", sequence=1), first)


def test_a_manifest_that_is_written_during_an_append_knows_its_producer() -> None:
    disk = SimDisk()
    log = open_sim(disk)
    log.append(b"first", producer="p", sequence=1)
    second = log.append(b"second", producer="p", sequence=2)
    flush(log)
    with ThreadPoolExecutor(1) as pool:
        saves: list[Future[None]] = []

        def save_then_state(*fields: Any) -> ProducerState:
            if not saves:
                saves.append(pool.submit(log.engine.node.save_manifest))
                wait(saves, PATIENCE_SECONDS)
            return ProducerState(*fields)

        with patch.object(producers, "ProducerState", save_then_state):
            log.append(b"third", producer="p", sequence=3)
        saves[0].result(WAIT_SECONDS)
    with open_sim(disk.copy()) as again:
        assert same_place(again.append(b"second", producer="p", sequence=2), second)
    log.close()


def test_an_append_older_than_the_window_is_refused() -> None:
    with open_sim(SimDisk()) as log:
        for sequence in range(1, PRODUCER_WINDOW + 2):
            log.append(b"%d" % sequence, producer="p", sequence=sequence)
        assert log.append(b"2", producer="p", sequence=2).duplicate
        with pytest.raises(ProducerConflict, match=f"an append 1 .* last {PRODUCER_WINDOW}") as it:
            log.append(b"1", producer="p", sequence=1)
        assert it.value.definite
        assert log.high_watermark == PRODUCER_WINDOW + 1


def test_a_sequence_that_was_jumped_over_cannot_be_used_later() -> None:
    with open_sim(SimDisk()) as log:
        log.append(b"5", producer="p", sequence=5)
        with pytest.raises(ProducerConflict):
            log.append(b"4", producer="p", sequence=4)
        assert values(log) == [b"5"]


def test_producers_do_not_know_one_another() -> None:
    with open_sim(SimDisk()) as log:
        receipts = [log.append(b"", producer=name, sequence=1) for name in ("p", "q")]
        assert [receipt.duplicate for receipt in receipts] == [False, False]


def test_retries_of_one_append_in_one_group_happen_once() -> None:
    """They queue up behind a held sync, so that all are looked at in one go."""
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, vfs=vfs) as log:
        with gate.shut(), in_thread(lambda: log.append(b"first")) as held:
            gate.wait_until_held()
            with in_thread(
                lambda: together(6, lambda _: log.append(b"x", producer="p", sequence=1))
            ) as retries:
                wait_for_queued(log, 6)
                gate.open()
                receipts = retries.result(20)
            held.result(20)
        assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 5
        assert len({(receipt.glsn, receipt.llsn) for receipt in receipts}) == 1
        assert values(log) == [b"first", b"x"]


def test_a_retry_of_what_cannot_be_read_any_more_harms_nobody_in_its_group() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, vfs=vfs) as log:
        log.append(b"a", producer="p", sequence=1)
        flush(log)
        (segment,) = log.engine.node.streams[1].view.segments
        log.engine.node.opened.forget(segment.path)
        disk.fail(Op.OPEN, segment.path, errno.EIO)
        with ThreadPoolExecutor(3) as pool:
            with gate.shut():
                first = pool.submit(log.append, b"first")
                gate.wait_until_held()
                retry = pool.submit(log.append, b"a", producer="p", sequence=1)
                wait_for_queued(log, 1)
                other = pool.submit(log.append, b"other")
                wait_for_queued(log, 2)
            assert first.result(WAIT_SECONDS).glsn == 2
            assert other.result(WAIT_SECONDS).glsn == 3
            with pytest.raises(CorruptData):
                retry.result(WAIT_SECONDS)
        assert log.append(b"a", producer="p", sequence=1).glsn == 1
        assert values(log) == [b"a", b"first", b"other"]


def test_a_retry_finds_its_stream_after_streams_were_added() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        firsts = {f"{n}": log.append(b"", producer=f"{n}", sequence=1) for n in range(10)}
        log.add_streams("default", 3)
        for name, first in firsts.items():
            assert same_place(log.append(b"", producer=name, sequence=1), first)
        assert log.high_watermark == 10


@pytest.mark.parametrize(
    ("producer", "sequence"), [("p", 0), ("", 1), ("p", -1), ("p", 1 << 63), ("p", 1 << 64)]
)
def test_a_producer_needs_a_name_and_a_sequence(producer: str, sequence: int) -> None:
    with open_sim(SimDisk()) as log:
        with pytest.raises(BadOption, match="producer"):
            log.append(b"", producer=producer, sequence=sequence)
        assert log.append(b"", producer="p", sequence=(1 << 63) - 1).glsn == 1


def test_a_repeat_after_a_failed_sync_is_appended_once_in_all() -> None:
    """The append was refused without a word on its fate; the producer asks again and knows."""
    disk = SimDisk()
    log = open_sim(disk, options=INLINE)
    log.append(b"a", producer="p", sequence=1)
    disk.fail(Op.SYNC, ".wal", errno.EIO)
    with pytest.raises(StorageFailed):
        log.append(b"b", producer="p", sequence=2)
    log.close()
    with open_sim(disk.after_crash()) as log:
        log.append(b"b", producer="p", sequence=2)
        assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize("ending", ["close", "crash"])
def test_a_log_of_more_producers_than_its_manifest_takes_knows_the_last_ones(ending: str) -> None:
    """Its manifest could be written no more, and with it nothing else."""
    disk = SimDisk()
    with patch.object(manifest, "MANIFEST_PRODUCERS_MAX", 10):
        log = open_sim(disk, streams=3)
        for producer in range(8):
            for stream in log.streams[: 3 if producer == 7 else 2]:
                log.append_batch([b"x"], stream=stream, producer=f"p{producer}", sequence=1)
        flush(log)
        end = log.high_watermark
        if ending == "close":
            log.close()
        with open_sim(disk if ending == "close" else disk.after_crash()) as log:
            for producer in range(4, 8):
                for stream in log.streams[: 3 if producer == 7 else 2]:
                    name = f"p{producer}"
                    again = log.append_batch([b"x"], stream=stream, producer=name, sequence=1)
                    assert again.duplicate
            assert log.high_watermark == end
            assert not log.append_batch([b"x"], producer="p0", sequence=1).duplicate
