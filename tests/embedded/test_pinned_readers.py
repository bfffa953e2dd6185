"""Readers that are in the middle of something while segments are merged, moved and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import tidelog
from tests.embedded.logs import (
    BACKGROUND,
    INLINE,
    WAIT_SECONDS,
    flush,
    in_thread,
    open_sim,
    together,
    wait_until,
)
from tidelog import Log, Options, Record
from tidelog.core.compaction.plan import Strategy
from tidelog.errors import Trimmed
from tidelog.testing.disk import SimDisk


@pytest.fixture(params=["simulated disk", "real files"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    simulated = request.param == "simulated disk"
    opened = open_sim(SimDisk()) if simulated else tidelog.open(tmp_path / "log", options=INLINE)
    with opened:
        yield opened


def write_segments(log: Log, count: int, *, keys: int = 10) -> None:
    """Segments in each of which half is dead and half is not."""
    for number in range(count):
        items = [(b"same %d" % n, b"%d" % number) for n in range(keys)]
        items += [(b"own %d %d" % (log.high_watermark, n), b"kept") for n in range(keys)]
        log.put_batch(items)
        flush(log)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_reader_that_begins_after_a_trim_is_told(streams: int) -> None:
    """Files are held from the first record on: what went before that must not be passed over."""
    with open_sim(SimDisk(), streams=streams) as log:
        for number in range(30):
            log.append(b"%d" % number + bytes(9000))
        readers = [log.read(1), log.subscribe(1, timeout=0), log.subscribe_to(1, 1, timeout=0)]
        begun = log.read(1)
        read = [next(begun)]
        log.trim(25)
        for reader in readers:
            with pytest.raises(Trimmed) as caught:
                next(reader)
            assert caught.value.first_available == 25
        assert [record.glsn for record in (*read, *begun)] == list(range(1, 31))


def live(records: list[Record], log: Log) -> list[Record]:
    return [record for record in records if log.get(record.key) == record]


def test_a_reader_keeps_all_live_records_over_two_compactions(log: Log) -> None:
    write_segments(log, 6)
    before = list(log.read())
    reader = log.read()
    read = list(islice(reader, 3))
    first = log.compact(full=True)
    assert first.rewritten > 1
    read += islice(reader, 30)
    write_segments(log, 3)
    second = log.compact(full=True)
    assert second.rewritten > 1
    assert log.stats().streams[0].pinned_files > 0
    read += reader
    assert [r.glsn for r in read] == sorted({r.glsn for r in read})
    assert set(read) <= set(before)
    assert set(live(before, log)) <= set(read)
    log.engine.maintenance.minor(log.engine.node.streams[1])
    assert log.stats().streams[0].pinned_files == 0, "the files go when the reader is done"


def test_a_run_tells_what_waits_for_readers(log: Log) -> None:
    """The dead segment between the first and the third is still read."""
    log.append(b"a")
    flush(log)
    log.put(b"k", b"old")
    flush(log)
    log.append(b"b")
    flush(log)
    reader = log.read()
    next(reader)
    log.put(b"k", b"new")
    flush(log)
    held = log.compact()
    assert (held.rewritten, held.waiting, held.failures) == (0, 2, [])
    [stream] = log.stats().streams
    assert (stream.rewrite_groups, stream.waiting_segments) == (((1, 3),), 2)
    assert stream.pinned_files == 1
    assert len(list(reader)) == 2
    done = log.compact()
    assert (done.rewritten, done.waiting) == (2, 0)
    assert log.stats().streams[0].waiting_segments == 0


def test_readers_see_entries_without_keys_whatever_is_compacted(log: Log) -> None:
    """They are live until they are trimmed, so that not one of them may be missed."""
    for number in range(8):
        log.append_batch([b"%d %d" % (number, n) for n in range(10)])
        log.put(b"k", b"%d" % number)
        flush(log)
    expected = [record for record in log.read() if record.kind is tidelog.Kind.APPEND]
    readers = [log.read() for _ in range(4)]
    found: list[list[Record]] = [list(islice(reader, n * 20)) for n, reader in enumerate(readers)]
    for number in range(3):
        log.put(b"k", b"again %d" % number)
        flush(log)
        assert not log.compact(full=True).failures
        for reader, records in zip(readers, found, strict=True):
            records.extend(islice(reader, 5))
    for reader, records in zip(readers, found, strict=True):
        records.extend(reader)
        appends = [record for record in records if record.kind is tidelog.Kind.APPEND]
        assert appends == expected


def test_a_reader_in_trimmed_segments_reads_on(log: Log) -> None:
    for _ in range(4):
        log.append_batch([b"x"] * 10)
        flush(log)
    reader = log.read()
    first = next(reader)
    log.trim(31)
    assert log.stats().streams[0].segments == 1
    assert [first.glsn, *(record.glsn for record in reader)] == list(range(1, 41))
    assert [record.glsn for record in log.read()] == list(range(31, 41))


def test_an_abandoned_reader_gives_its_files_back(log: Log) -> None:
    write_segments(log, 5)
    reader = log.read()
    next(reader)
    log.compact(full=True)
    assert log.stats().streams[0].pinned_files > 0
    del reader
    log.engine.maintenance.minor(log.engine.node.streams[1])
    assert log.stats().streams[0].pinned_files == 0


def test_no_get_misses_a_key_while_others_compact(tmp_path: Path) -> None:
    options = Options(
        wal_file_bytes=64 << 10,
        snapshot_bytes=4096,
        tick_seconds=0.01,
        compaction=Strategy(minors=1, dead_ratio=0.1, dead_bytes_min=1),
    )
    with tidelog.open(tmp_path / "log", streams=2, options=options) as log:
        keys = [b"%d" % number for number in range(50)]
        log.put_batch([(key, b"0") for key in keys])
        turns = 25
        done: list[bool] = []

        def write() -> None:
            for turn in range(1, turns + 1):
                log.put_batch([(key, b"%d" % turn + bytes(200)) for key in keys])
                if turn % 7 == 0:
                    log.compact(full=turn % 2 == 0)
            done.append(True)

        def read(number: int) -> int:
            newest = dict.fromkeys(keys[number::2], 0)
            rounds = 0
            ended = False
            while not ended:
                ended = bool(done)  # One more round when all is written.
                for key in newest:
                    record = log.get(key)
                    assert record is not None, f"{key!r} is missing"
                    turn = int(record.value.rstrip(b"\0"))
                    assert turn >= newest[key], "an older value came back"
                    newest[key] = turn
                rounds += 1
            assert set(newest.values()) == {turns}
            return rounds

        with in_thread(write) as writing:
            assert min(together(2, read)) >= 2
            writing.result(WAIT_SECONDS)
        assert log.log_stats().minor_compactions > 0


def test_no_read_misses_an_entry_while_the_worker_flushes_and_compacts(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", streams=2, options=BACKGROUND) as log:
        done: list[bool] = []

        def append() -> None:
            for number in range(200):
                log.append_batch([b"%d" % number + bytes(900)] * 2)
                if number % 50 == 49:
                    log.compact()
            done.append(True)

        def read(_: int) -> None:
            while not done:
                high = log.high_watermark
                glsns = [record.glsn for record in log.read(1, high + 1)]
                assert glsns == list(range(1, high + 1))

        with in_thread(append) as appending:
            together(2, read)
            appending.result(WAIT_SECONDS)
        wait_until(lambda: log.log_stats().flushes > 0, "a flush")


def test_trims_run_beside_the_worker(tmp_path: Path) -> None:
    """Trims delete segments in the caller's thread while the worker makes and merges others."""
    options = Options(
        wal_file_bytes=64 << 10,
        snapshot_bytes=4096,
        tick_seconds=0.01,
        compaction=Strategy(minors=1, dead_ratio=0.1, dead_bytes_min=1),
    )
    with tidelog.open(tmp_path / "log", streams=2, options=options) as log:

        def write(number: int) -> None:
            for turn in range(60):
                log.put_batch([(b"%d" % n, bytes(100)) for n in range(20)])
                log.append_batch([b"x" * 100] * 10)
                if turn % 5 == 4:
                    log.trim(max(1, log.high_watermark - 400 - number))

        together(2, write)
        first = log.first_available
        assert first > 1
        records = list(log.read())
        assert records[0].glsn >= first
        kept = [record.glsn for record in records if record.kind is tidelog.Kind.APPEND]
        appends = [record for record in records if record.value == b"x" * 100]
        assert len(kept) == len(appends) > 0
        assert all(not finding.problem for finding in log.verify())
    with tidelog.open(tmp_path / "log", options=options) as log:
        assert log.first_available == first
        again = [record.glsn for record in log.read() if record.kind is tidelog.Kind.APPEND]
        assert again == kept
