"""Keys: what is found, what compaction leaves, what a rewrite moves, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

import tidelog
from tests.embedded.logs import INLINE, flush, open_sim, values
from tidelog import Entry, Kind, Log, Receipt, Record, Topic
from tidelog.embedded import rewrite
from tidelog.embedded.rewrite import encode_copies
from tidelog.errors import Busy
from tidelog.formats.batch import BatchBody
from tidelog.limits import VALUE_BYTES_MAX
from tidelog.testing.disk import SimDisk


def value_of(topic: Topic, key: bytes, storage_id: int = 0) -> bytes | None:
    found = topic.get(key, storage_id=storage_id)
    return None if found is None else found.value


def segment_files(disk: SimDisk) -> list[str]:
    return [path for path in disk.files() if path.endswith(".segment")]


def test_a_get_finds_the_newest_write_wherever_it_lies() -> None:
    with open_sim(SimDisk(), streams=3) as log:
        log.put(b"old", b"1")
        log.put(b"changed", b"1")
        flush(log)
        log.put(b"changed", b"2")
        log.put(b"new", b"1")
        assert [value_of(log, key) for key in (b"old", b"changed", b"new", b"none")] == [
            b"1",
            b"2",
            b"1",
            None,
        ]


def test_a_delete_hides_a_key_until_it_is_put_again() -> None:
    with open_sim(SimDisk()) as log:
        log.put(b"k", b"1")
        flush(log)
        log.delete(b"k")
        assert value_of(log, b"k") is None
        log.compact(full=True)
        assert value_of(log, b"k") is None
        log.put(b"k", b"2")
        assert value_of(log, b"k") == b"2"


def test_storages_have_keys_of_their_own() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        for storage in (0, 1, 2):
            log.put_batch([(b"%d" % n, b"%d" % storage) for n in range(9)], storage_id=storage)
        log.delete_storage(1)
        log.put(b"3", b"after", storage_id=1)
        assert [value_of(log, b"3", storage) for storage in (0, 1, 2)] == [b"0", b"after", b"2"]
        assert [value_of(log, b"4", storage) for storage in (0, 1, 2)] == [b"0", None, b"2"]
        flush(log)
        log.compact(full=True)
        assert [value_of(log, b"4", storage) for storage in (0, 1, 2)] == [b"0", None, b"2"]


def test_the_greatest_explicit_version_wins_not_the_last() -> None:
    with open_sim(SimDisk(), versions="explicit") as log:
        log.put(b"k", b"ten", write_version=10)
        log.put(b"k", b"five", write_version=5)
        assert value_of(log, b"k") == b"ten"
        log.delete(b"k", write_version=7)
        assert value_of(log, b"k") == b"ten"
        log.put(b"k", b"ten again", write_version=10)
        assert value_of(log, b"k") == b"ten again"


def test_a_batch_may_write_one_key_twice() -> None:
    with open_sim(SimDisk()) as log:
        log.write([Entry(Kind.PUT, b"1", b"k"), Entry(Kind.DELETE, b"", b"k")])
        assert value_of(log, b"k") is None
        log.put_batch([(b"k", b"2"), (b"k", b"3")])
        assert value_of(log, b"k") == b"3"


def test_an_append_with_a_key_is_no_write_of_that_key() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        receipts = [log.append(b"x", key=b"k") for _ in range(3)]
        assert len({receipt.stream for receipt in receipts}) == 1
        assert log.get(b"k") is None
        flush(log)
        log.compact(full=True)
        assert values(log) == [b"x"] * 3


def test_a_new_boundary_lets_older_versions_go_without_another_append() -> None:
    with open_sim(SimDisk(), versions="explicit") as log:
        for version in range(1, 6):
            log.put(b"k", b"%d" % version, write_version=version)
            flush(log)
        log.append(b"last")
        flush(log)
        log.compact(full=True)
        assert values(log) == [b"1", b"2", b"3", b"4", b"5", b"last"]
        log.set_gc_boundary(4)
        log.compact(full=True)
        assert values(log) == [b"4", b"5", b"last"]
        assert value_of(log, b"k") == b"5"


def test_a_boundary_holds_after_a_restart() -> None:
    disk = SimDisk()
    with open_sim(disk, versions="explicit") as log:
        log.set_gc_boundary(9)
    with open_sim(disk) as log:
        with pytest.raises(tidelog.LogError, match="boundary 9"):
            log.put(b"k", b"", write_version=9)
        log.set_gc_boundary(3)
        with pytest.raises(tidelog.LogError, match="boundary 9"):
            log.put(b"k", b"", write_version=9)


def test_deletes_go_when_nothing_older_is_left() -> None:
    with open_sim(SimDisk()) as log:
        log.put_batch([(b"%d" % n, b"v") for n in range(20)])
        flush(log)
        log.write([Entry(Kind.DELETE, b"", b"%d" % n) for n in range(20)])
        flush(log)
        log.append(b"last")
        flush(log)
        for _ in range(3):
            log.compact(full=True)
        assert [record.value for record in log.read()] == [b"last"]


def test_compaction_gives_the_bytes_of_dead_entries_back(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "log", options=INLINE) as log:
        for turn in range(8):
            log.put_batch([(b"%d" % n, b"%d" % turn + bytes(500)) for n in range(turn, turn + 40)])
            flush(log)
        before = log.stats()
        result = log.compact(full=True)
        after = log.stats()
        assert not result.failures
        assert result.reclaimed_bytes > 0
        assert after.segment_bytes < before.segment_bytes
        stats = log.log_stats()
        assert stats.major_compactions == 1
        assert stats.reclaimed_bytes >= result.reclaimed_bytes
        size = sum(path.stat().st_size for path in tmp_path.glob("log/streams/*/*.segment"))
        assert size == after.segment_bytes
        assert all(not finding.problem for finding in log.verify())
        assert [value_of(log, b"%d" % n) is not None for n in range(47)] == [True] * 47


def write_old_and_new(log: Log, old: int = 20) -> None:
    """Segments that a few old live entries keep, and newer ones."""
    for number in range(old):
        log.put(b"old %d" % number, b"value %d" % number)
        log.put(b"hot", b"%d" % number)
        flush(log)
    log.snapshot()


def test_a_rewrite_keeps_values_and_frees_the_old_segments() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        write_old_and_new(log)
        before = {number: log.get(b"old %d" % number) for number in range(20)}
        first = log.stats().streams[0]
        assert first.segments > 10
        copied = log.rewrite()
        assert copied == 21
        flush(log)
        log.compact(full=True)
        assert log.stats().streams[0].segments < first.segments // 2
        assert len(segment_files(disk)) <= log.stats().streams[0].segments + 1
        for number, record in before.items():
            copy = log.get(b"old %d" % number)
            assert copy is not None
            assert record is not None
            assert copy.rewritten
            assert copy.glsn > record.glsn
            assert (copy.value, copy.write_version, copy.timestamp_us) == (
                record.value,
                record.write_version,
                record.timestamp_us,
            )
    with open_sim(disk) as log:
        assert [value_of(log, b"old %d" % n) for n in range(20)] == [
            b"value %d" % n for n in range(20)
        ]


def test_a_newer_write_wins_over_a_copy_of_an_older_one() -> None:
    with open_sim(SimDisk()) as log:
        write_old_and_new(log, old=3)
        log.rewrite()
        log.put(b"old 1", b"new")
        assert value_of(log, b"old 1") == b"new"
        flush(log)
        log.compact(full=True)
        assert value_of(log, b"old 1") == b"new"
        assert log.rewrite() > 0
        assert value_of(log, b"old 1") == b"new"


def test_a_rewrite_does_not_bring_back_what_was_deleted_and_trimmed() -> None:
    """The delete came after the snapshot; a copy behind it would outlive it."""
    with open_sim(SimDisk()) as log:
        log.put(b"k", b"old")
        flush(log)
        log.snapshot()
        deleted = log.delete(b"k")
        log.rewrite()
        log.trim(deleted.glsn + 1)
        for _ in range(2):
            log.append(b"more")
            flush(log)
            log.compact(full=True)
        assert log.get(b"k") is None


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_rewrite_does_not_bring_back_an_explicit_version_that_was_replaced(
    is_deleted: bool,
) -> None:
    """The boundary moved after the snapshot, or has yet to: both times a newer write is there."""
    with open_sim(SimDisk(), versions="explicit") as log:
        log.put(b"k", b"old", write_version=2)
        flush(log)
        log.set_gc_boundary(3)
        log.snapshot()
        if is_deleted:
            newer = log.delete(b"k", write_version=4)
            log.set_gc_boundary(4)
        else:
            newer = log.put(b"k", b"new", write_version=4)
        flush(log)
        assert log.rewrite() == 0
        log.append(b"more")
        flush(log)
        log.trim(newer.glsn + 1)
        assert log.get(b"k") is None


@pytest.mark.parametrize("is_deleted", [True, False])
def test_no_copy_gets_behind_a_write_that_came_while_it_was_made(is_deleted: bool) -> None:
    with open_sim(SimDisk()) as log:
        log.put(b"k", b"old")
        flush(log)
        log.snapshot()
        newer: list[Receipt] = []

        def encode(records: Sequence[Record]) -> BatchBody:
            if not newer:
                newer.append(log.delete(b"k") if is_deleted else log.put(b"k", b"new"))
            return encode_copies(records)

        with patch.object(rewrite, "encode_copies", encode):
            assert log.rewrite() == 0
        flush(log)
        log.append(b"more")
        flush(log)
        log.trim(newer[0].glsn + 1)
        log.compact(full=True)
        assert log.get(b"k") is None


def test_a_log_that_does_not_come_to_rest_is_not_rewritten() -> None:
    with open_sim(SimDisk()) as log:
        log.put(b"k", b"old")
        flush(log)
        log.snapshot()

        def encode(records: Sequence[Record]) -> BatchBody:
            log.append(b"more")
            return encode_copies(records)

        with (
            patch.object(rewrite, "encode_copies", encode),
            patch.object(rewrite, "_REST_SECONDS", 0.0),
            pytest.raises(Busy, match="while others were being copied") as caught,
        ):
            log.rewrite()
        assert caught.value.definite
        assert log.rewrite() == 1


def test_a_rewrite_is_bounded_by_entries() -> None:
    with open_sim(SimDisk()) as log:
        write_old_and_new(log, old=10)
        assert log.rewrite(entries_max=4) == 4
        copies = [record for record in log.read() if record.rewritten]
        assert [copy.key for copy in copies] == [b"old %d" % n for n in range(4)]


def test_a_rewrite_of_large_values_fits_into_a_batch() -> None:
    """Two values that fill a batch to the last byte leave no room for its columns."""
    with open_sim(SimDisk()) as log:
        for key in (b"a", b"b"):
            log.put(key, bytes(VALUE_BYTES_MAX - 1))
        log.snapshot()
        assert log.rewrite() == 1


@pytest.mark.parametrize("streams", [1, 2])
def test_explanations_tell_why_each_write_is_kept(streams: int) -> None:
    with open_sim(SimDisk(), streams=streams) as log:
        log.put(b"k", b"1")
        flush(log)
        log.put(b"k", b"2")
        log.delete(b"other")
        sentences = log.explain(b"k")
        assert len(sentences) == 2
        assert "PUT at LLSN 1 (version 1) is dead: LLSN 2 (version 2) replaced it" in sentences[0]
        assert "PUT at LLSN 2 (version 2) is live: it is the newest write" in sentences[1]
        log.delete(b"k")
        assert "DELETE at LLSN" in log.explain(b"k")[2]
        assert "hides 2 older" in log.explain(b"k")[2]
        log.delete_storage(0)
        assert all("storage 0 was deleted" in sentence for sentence in log.explain(b"k"))
        assert log.explain(b"never written") == []


def test_explanations_know_boundaries_and_trims() -> None:
    with open_sim(SimDisk(), versions="explicit") as log:
        log.put(b"k", b"", write_version=3)
        log.put(b"k", b"", write_version=5)
        log.put(b"k", b"", write_version=8)
        log.set_gc_boundary(5)
        told = log.explain(b"k")
        assert ["live" in sentence.split(":")[0] for sentence in told] == [False, True, True]
        assert "above the GC boundary 5" in told[2]
        log.trim(2)
        assert "trimmed" in log.explain(b"k")[0]


def test_a_damaged_key_index_keeps_nobody_from_the_disk() -> None:
    """Its stream gets no snapshot, and so grows; all else goes on."""
    disk = SimDisk()
    options = replace(INLINE, snapshot_bytes=1)
    with open_sim(disk, options=options) as log:
        other = log.create_topic("other")
        log.put(b"k", b"1")
        log.append(b"kept")
        flush(log)
        [path] = segment_files(disk)
        with log.engine.node.opened.lease(path) as reader:
            page = reader.footer.pages.offset[0]
        disk.flip_bit(path, page + 40, 0)
        failures = log.log_stats().compaction_failures
        for number in range(200):
            log.put(b"k", b"%d" % number * 300)
            other.append(b"%d" % number)
        flush(log)
        assert log.log_stats().wal_backlog_files == 0
        assert log.log_stats().compaction_failures > failures
        assert "key page 0" in log.log_stats().last_compaction_failure
        assert value_of(log, b"k") == b"199" * 300
        assert len(values(other)) == 200
        assert b"kept" in values(log)
