"""Large stages lie in files: written once, referred to by the WAL, gone when nothing needs them."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.crash.repeatable import CHANCE, repeatable
from tests.embedded.logs import INLINE, PATH, flush, open_sim, values
from tests.embedded.test_staging import (
    WRITER,
    at_one_time,
    check_after_crash,
    chunks,
    in_files,
    in_small_appends,
    part,
    stage_all,
)
from tidelog import Log
from tidelog.errors import BatchTooLarge, CorruptData, DiskFull
from tidelog.interface.positions import Published
from tidelog.limits import KIB, MIB
from tidelog.storage.stage_files import STAGES_DIRECTORY, StageFiles
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import SimDisk, SimVfs

LARGE = [bytes([number]) * 300 * KIB for number in range(4)]


def stage_files(disk: SimDisk) -> list[str]:
    return sorted(path for path in disk.files() if f"/{STAGES_DIRECTORY}/" in path)


@pytest.fixture
def disk() -> Iterator[SimDisk]:
    with in_files():
        yield SimDisk()


def test_only_large_stages_have_files_and_the_wal_never_holds_their_bytes() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        small = stage_all(log, [b"small"])
        assert not stage_files(disk)
        stages = stage_all(log, LARGE)
        assert len(stage_files(disk)) == len(LARGE)
        assert log.publish(WRITER, 1, small + stages) == Published(5, False)
        assert log.log_stats().wal_bytes < 16 * KIB
        assert values(log) == [b"small", *LARGE]


def test_what_a_wal_file_refers_to_fills_it() -> None:
    """Memtables hold these bytes until the file has moved into segments."""
    items = [bytes([number]) * 20 * KIB for number in range(10)]
    with open_sim(SimDisk(), options=INLINE) as log, in_files(), in_small_appends():
        log.publish(WRITER, 1, stage_all(log, items))
        held = sum(t.size for s in log.engine.node.streams.values() for t in s.view.memtables)
        assert held <= INLINE.wal_file_bytes
        assert values(log) == items


def test_a_file_goes_when_the_wal_needs_it_no_more(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        log.publish(WRITER, 1, stage_all(log, chunks(3)))
        assert len(stage_files(disk)) == 3
    for _ in range(2):
        with open_sim(disk) as log:
            assert values(log) == chunks(3)
            assert len(stage_files(disk)) == 3
    with open_sim(disk) as log:
        flush(log)
        assert not stage_files(disk)
        assert values(log) == chunks(3)
    with open_sim(disk) as log:
        assert values(log) == chunks(3)


def test_a_file_that_the_wal_does_not_need_goes_at_once(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        first, second = stage_all(log, chunks(2))
        log.discard([first])
        assert len(stage_files(disk)) == 1
        log.engine.staging.expire(-1)
        assert not stage_files(disk)
        assert second > first


def test_stages_keep_their_files_over_restarts(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        stages = stage_all(log, chunks(3))
        flush(log)
    with open_sim(disk) as log:
        log.discard(stages[:1])
        assert len(stage_files(disk)) == 2
        stages += stage_all(log, [b"next"])
        assert log.publish(WRITER, 1, stages[1:]) == Published(3, False)
        assert values(log) == [*chunks(3)[1:], b"next"]


def test_what_a_stage_never_came_of_goes_at_the_next_start(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        topic = log.engine.find_topic("default")
        log.engine.staging.stages.draft(topic, [part(b"never")])
        kept = stage_all(log, chunks(1))
    disk.vfs().create(f"{PATH}/{STAGES_DIRECTORY}/0000000000000009.stage").close()
    with open_sim(disk) as log:
        assert len(stage_files(disk)) == 1
        assert log.publish(WRITER, 1, kept) == Published(1, False)


def test_of_drafts_with_unknown_outcome_the_lost_ones_go_when_they_are_old(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        topic, staging = log.engine.find_topic("default"), log.engine.staging
        staging.stages.draft(topic, [part(b"lost")])
        staging.stage(topic, [part(b"found")])
        with patch.object(type(staging.stages), "staged", lambda self, draft, stage: stage):
            found = log.stage([part(b"unheard of")])  # It is there, but nobody was told.
        staging.expire(3600)
        assert len(stage_files(disk)) == 3
        with patch("tidelog.embedded.stages.find_time") as find_time:
            find_time.return_value.glsn = found  # All but this one are too old.
            staging.expire(-1)
        assert len(stage_files(disk)) == 1
        assert log.publish(WRITER, 1, [found]) == Published(1, False)
        flush(log)
        assert not stage_files(disk)


def test_damage_to_a_file_is_found_before_anything_is_published(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        good, bad, cut = stage_all(log, [b"good", b"bad", b"cut"])
        names = stage_files(disk)
        disk.flip_bit(names[1], len(disk.files()[names[1]]) - 8, 0)
        disk.truncate(names[2], 90)
        for damaged in (bad, cut):
            with pytest.raises(CorruptData):
                log.publish(WRITER, 1, [good, damaged])
        assert values(log) == []
        assert log.publish(WRITER, 1, [good]) == Published(1, False)


def test_damage_to_what_the_wal_refers_to_is_never_opened(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        log.publish(WRITER, 1, stage_all(log, chunks(2)))
    (first, second) = stage_files(disk)
    broken = disk.copy()
    broken.flip_bit(first, len(disk.files()[first]) - 8, 0)
    lost = disk.copy()
    lost.vfs().unlink(second)
    for damaged in (broken, lost):
        with pytest.raises(CorruptData):
            open_sim(damaged)


def test_a_full_disk_refuses_a_stage_and_leaves_nothing() -> None:
    disk = SimDisk(capacity_bytes=3 * MIB)
    with open_sim(disk) as log:
        with pytest.raises(DiskFull):
            log.stage([part(bytes(3 * MIB))])
        assert not stage_files(disk)
        assert log.publish(WRITER, 1, stage_all(log, LARGE[:1])) == Published(1, False)
        with pytest.raises(BatchTooLarge):
            log.stage([part(bytes(9 * MIB)), part(bytes(9 * MIB))])


def test_a_stage_that_is_refused_leaves_no_file(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        topic = log.engine.find_topic("default")
        stage_all(log, [b"kept"])
        refuse = patch.object(log.engine, "submit", side_effect=DiskFull("no room"))
        with refuse, pytest.raises(DiskFull):
            log.engine.staging.stage(topic, [part(b"refused")])
        assert len(stage_files(disk)) == 1


def publish_and_flush(log: Log, journal: Journal) -> None:
    stages = stage_all(log, chunks(3))
    log.discard(stage_all(log, [b"discarded"]))
    journal.attempted.append(3)
    log.publish(WRITER, 1, stages)
    journal.acknowledged.append(3)
    flush(log)


def test_every_crash_point_from_the_stage_to_the_segment_gives_exactly_once() -> None:
    """Files, their names, the frames that refer to them, and their end."""

    def prepare(vfs: SimVfs) -> None:
        CHANCE.begin("prepare")
        open_sim(SimDisk(), vfs=vfs).close()

    def run(vfs: SimVfs, journal: Journal) -> None:
        CHANCE.begin("run")
        publish_and_flush(open_sim(SimDisk(), vfs=vfs), journal)

    with (
        in_files(),
        in_small_appends(),
        repeatable(),
        at_one_time(),
    ):
        report = enumerate_crashes(run, check_after_crash, prepare=prepare, outcomes_max=8)
    assert report.points > 40


def test_files_of_one_log_have_different_numbers(disk: SimDisk) -> None:
    with open_sim(disk) as log:
        log.stage([part(b"first")])
        files: StageFiles = log.engine.node.stages
        numbers = [files.write([b"some", b"bytes"]) for _ in range(3)]
        assert len(set(numbers)) == 3
        assert files.read(numbers[0], 2, 5) == b"mebyt"
        files.release(numbers)
        assert len(stage_files(disk)) == 1
