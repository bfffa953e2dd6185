"""Many appends share one write and one sync, without a timer."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tests.embedded.logs import (
    INLINE,
    WAIT_SECONDS,
    gated,
    in_thread,
    open_sim,
    together,
    values,
    wait_for_queued,
)
from tidelog.errors import Busy
from tidelog.testing.disk import SimDisk


def test_a_lone_append_is_one_frame() -> None:
    with open_sim(SimDisk()) as log:
        for number in range(1, 6):
            log.append(b"x")
            assert log.log_stats().wal_frames == number


def test_appends_that_wait_for_the_same_sync_share_a_frame() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, streams=3, vfs=vfs) as log:
        with gate.shut(), in_thread(lambda: log.append(b"first")) as held:
            gate.wait_until_held()
            with in_thread(lambda: together(20, lambda n: log.append(b"%d" % n).glsn)) as others:
                wait_for_queued(log, 20)
                gate.open()
                assert sorted(others.result(WAIT_SECONDS)) == list(range(2, 22))
            held.result(WAIT_SECONDS)
        assert log.log_stats().wal_frames == 2
        assert sorted(values(log)) == sorted([b"first", *(b"%d" % n for n in range(20))])


def test_many_threads_need_fewer_frames_than_appends(tmp_path: Path) -> None:
    """With real files: a sync takes long enough for others to queue up."""
    with tidelog.open(tmp_path / "log", streams=2, options=INLINE) as log:
        together(8, lambda _: [log.append(b"x" * 100) for _ in range(50)])
        assert log.high_watermark == 400
        assert log.log_stats().wal_frames < 400


def test_trims_boundaries_and_topics_ride_along_with_appends() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, versions="explicit", vfs=vfs) as log:
        log.append_batch([b"1", b"2", b"3"])

        def call(number: int) -> None:
            match number:
                case 0:
                    log.append(b"4")
                case 1:
                    log.trim(3)
                case 2:
                    log.set_gc_boundary(7)
                case _:
                    log.create_topic("other").append(b"there")

        with gate.shut(), in_thread(lambda: log.append(b"held")) as held:
            gate.wait_until_held()
            with in_thread(lambda: together(4, call)) as others:
                wait_for_queued(log, 4)
                gate.open()
                others.result(WAIT_SECONDS)
            held.result(WAIT_SECONDS)
        assert values(log) == [b"3", b"held", b"4"]
        assert values(log.topic("other")) == [b"there"]
    with open_sim(disk) as log:
        assert values(log) == [b"3", b"held", b"4"]
        assert log.first_available == 3


def test_an_append_that_cannot_start_before_its_deadline_is_not_written() -> None:
    disk = SimDisk()
    vfs, gate = gated(disk)
    with open_sim(disk, vfs=vfs) as log:
        with gate.shut(), in_thread(lambda: log.append(b"held")) as held:
            gate.wait_until_held()
            with pytest.raises(Busy, match="nothing was written"):
                log.append(b"late", timeout=0.01)
            gate.open()
            held.result(WAIT_SECONDS)
        log.append(b"next")
        assert values(log) == [b"held", b"next"]


def test_a_frame_larger_than_a_wal_file_is_taken() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        log.append(b"before")
        log.append_batch([bytes(60 << 10)] * 4)
        log.append(b"after")
        lengths = [len(value) for value in values(log)]
        assert lengths == [6, *[60 << 10] * 4, 5]
    with open_sim(disk) as log:
        assert [len(value) for value in values(log)] == lengths
