"""``archive`` without Spark: what is in the archive, and what is left in the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipeline.archives import (
    ALL,
    DIRECTORY,
    Figures,
    MemoryTopic,
    Rows,
    archive_rows,
    archived,
    plain_rows,
    writing_here,
)
from tidelog.errors import BadOption, CorruptData, LogLocked, OutOfRange, Trimmed, WrongLog
from tidelog.formats.archive_manifest import ArchivedFile, ArchiveManifest, archived_name
from tidelog.pipeline import archive
from tidelog.pipeline.archiving import file_writing, running
from tidelog.pipeline.archiving.home import locked_home
from tidelog.pipeline.archiving.running import GlsnSpan
from tidelog.spark import archive_files
from tidelog.spark.archive_directory import MANIFEST, read_manifest
from tidelog.spark.archive_files import archived_batches, last_older
from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import SimDisk, SimVfs


@pytest.fixture
def vfs() -> SimVfs:
    return SimDisk().vfs()


def manifest_of(vfs: Vfs) -> ArchiveManifest:
    found = read_manifest(vfs, DIRECTORY)
    assert found is not None
    return found


# -- what is archived --------------------------------------------------------------------------


def test_the_archive_holds_the_rows_of_the_log_with_all_columns(vfs: SimVfs) -> None:
    topic = MemoryTopic(21)
    summary = archived(vfs, topic)
    assert archive_rows(vfs) == topic.rows(1, 22)
    assert (summary.glsn_begin, summary.glsn_end, summary.rows, summary.files) == (1, 22, 21, 6)
    assert [file.glsn_begin for file in manifest_of(vfs).files] == [1, 5, 9, 13, 17, 21]


def test_a_run_goes_on_where_the_last_one_ended(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10))
    files = manifest_of(vfs).files
    topic = MemoryTopic(30)
    summary = archived(vfs, topic)
    assert (summary.glsn_begin, summary.rows, summary.archive_rows) == (11, 20, 30)
    assert manifest_of(vfs).files[: len(files)] == files
    assert archive_rows(vfs) == topic.rows(1, 31)
    assert archived(vfs, topic).files == 0


def test_more_than_one_step_is_one_run(vfs: SimVfs) -> None:
    topic = MemoryTopic(75)
    summary = archived(vfs, topic, range_entries=2)
    assert (summary.files, summary.rows) == (38, 75)
    assert archive_rows(vfs) == topic.rows(1, 76)


def test_a_run_ends_where_it_was_told_to(vfs: SimVfs) -> None:
    topic = MemoryTopic(30)
    assert archived(vfs, topic, up_to=8).glsn_end == 8
    # In this topic entries are as old as their GLSN is small.
    assert archived(vfs, topic, older_than=10e-6, now_us=25).glsn_end == 15
    assert archived(vfs, topic, up_to=5).glsn_end == 15
    assert archive_rows(vfs) == topic.rows(1, 15)
    with pytest.raises(OutOfRange, match="has not reached GLSN 32"):
        archived(vfs, topic, up_to=32)


def test_a_file_that_grows_too_large_is_continued_in_another_one(
    vfs: SimVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writing, "GROUP_ROWS", 5)
    topic = MemoryTopic(40, removed=frozenset((6, 7, 8)))
    write = writing_here(vfs, topic, file_bytes=10)
    archived(vfs, topic, range_entries=30, write=write)
    files = manifest_of(vfs).files
    assert [file.rows for file in files] == [6, 6, 6, 6, 3, 6, 4]
    assert [file.glsn_begin for file in files] == [1, 10, 16, 22, 28, 31, 37]
    assert archive_rows(vfs) == topic.rows(1, 41)


def test_what_compaction_removed_before_is_counted(vfs: SimVfs) -> None:
    topic = MemoryTopic(20, removed=frozenset((3, 5, 6, 7, 8, 20)))
    summary = archived(vfs, topic)
    assert (summary.rows, summary.missing) == (14, 6)
    assert [file.rows for file in manifest_of(vfs).files] == [3, 0, 4, 4, 3]
    assert archive_rows(vfs) == topic.rows(1, 21)


def test_the_archive_of_a_trimmed_log_begins_where_the_log_does(vfs: SimVfs) -> None:
    topic = MemoryTopic(20, figures=Figures(first_available=9))
    assert archived(vfs, topic).archive_begin == 9
    assert archive_rows(vfs) == topic.rows(9, 21)


def test_an_empty_topic_makes_an_empty_archive(vfs: SimVfs) -> None:
    assert archived(vfs, MemoryTopic(0)).glsn_end == 1
    topic = MemoryTopic(3)
    archived(vfs, topic)
    assert archive_rows(vfs) == topic.rows(1, 4)


def test_what_was_trimmed_before_it_was_archived_is_an_error(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10))
    topic = MemoryTopic(30, figures=Figures(first_available=15))
    with pytest.raises(Trimmed, match=r"GLSN 11 .* comes next") as raised:
        archived(vfs, topic)
    assert raised.value.first_available == 15
    assert archive_rows(vfs) == topic.rows(1, 11)


@pytest.mark.parametrize("told", [[1, 2, 3, 4], [0, 1, 2, 3], [0, 2, 4], [0, 0, 1, 2, 3, 4], []])
def test_tasks_that_left_something_out_are_not_believed(vfs: SimVfs, told: list[int]) -> None:
    topic = MemoryTopic(20)
    write = writing_here(vfs, topic)

    def wrong(ranges: Sequence[GlsnSpan]) -> Sequence[ArchivedFile]:
        files = write(ranges)
        return [files[number] for number in told if number < len(files)]

    with pytest.raises(CorruptData, match="once and as a whole"):
        archived(vfs, topic, write=wrong)
    assert archive_rows(vfs) == []


# -- what is read back -------------------------------------------------------------------------


def test_every_range_of_a_file_is_read_as_it_was(
    vfs: SimVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writing, "GROUP_ROWS", 4)
    topic = MemoryTopic(16, removed=frozenset((1, 6, 7, 16)))
    archived(vfs, topic, range_entries=16)
    (file,) = manifest_of(vfs).files
    for begin in range(1, 18):
        for end in range(begin, 18):
            assert rows_of(vfs, file, begin, end) == topic.rows(begin, end)
    for stream in (1, 2):
        wanted = [row for row in topic.rows(3, 12) if row["stream"] == stream]
        assert rows_of(vfs, file, 3, 12, (stream,)) == wanted
        assert rows_of(vfs, file, 3, 12, (stream, 99)) == wanted
    assert rows_of(vfs, file, 3, 12, (99,)) == []


def test_row_groups_outside_of_a_range_are_not_read(
    vfs: SimVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writing, "GROUP_ROWS", 6)
    archived(vfs, MemoryTopic(24), range_entries=24)
    (file,) = manifest_of(vfs).files
    with archive_files.OpenedFile(vfs, DIRECTORY, file) as opened:
        assert opened.groups_between(1, 25) == [0, 1, 2, 3]
        assert opened.groups_between(7, 13) == [1]
        assert opened.groups_between(6, 8) == [0, 1]
        assert opened.groups_between(12, 12) == []


def rows_of(
    vfs: SimVfs, file: ArchivedFile, begin: int, end: int, streams: tuple[int, ...] = ()
) -> Rows:
    batches = archived_batches(vfs, DIRECTORY, file, begin, end, ALL, streams)
    return [row for batch in batches for row in plain_rows(batch)]


# -- deletes -----------------------------------------------------------------------------------


def test_deletes_that_were_dropped_before_they_were_archived_are_noted(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10, figures=Figures(1, 4, 2)))
    assert manifest_of(vfs).missed_before == 1, "nothing was left that these could delete"
    topic = MemoryTopic(20, figures=Figures(1, 18, 3))
    assert archived(vfs, topic).missed_before == 18
    assert archived(vfs, MemoryTopic(30, figures=Figures(1, 18, 3))).missed_before == 18
    assert archived(vfs, MemoryTopic(40, figures=Figures(1, 33, 4))).missed_before == 33


def test_a_delete_that_was_archived_before_it_was_dropped_is_not_missed(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10))
    assert archived(vfs, MemoryTopic(20, figures=Figures(1, 11, 1))).missed_before == 1


def test_a_delete_that_is_dropped_while_it_is_being_archived_is_noted(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10))
    topic = MemoryTopic(20)
    write = writing_here(vfs, topic)

    def compacted_meanwhile(ranges: Sequence[GlsnSpan]) -> Sequence[ArchivedFile]:
        files = write(ranges)
        topic.figures = Figures(1, 15, 1)
        return files

    assert archived(vfs, topic, write=compacted_meanwhile).missed_before == 15


# -- trimming ----------------------------------------------------------------------------------


def test_the_log_is_trimmed_to_the_end_of_the_archive(vfs: SimVfs) -> None:
    topic = MemoryTopic(20)
    assert archived(vfs, topic, up_to=15).first_available == 1
    assert archived(vfs, topic, up_to=15, trim=True, keep=4).first_available == 11
    assert archived(vfs, topic, trim=True).first_available == 21
    assert archived(vfs, topic, trim=True, keep=20).first_available == 21


def test_nothing_is_trimmed_that_cannot_be_read_from_the_archive(vfs: SimVfs) -> None:
    topic = MemoryTopic(20)
    archived(vfs, topic)
    files = manifest_of(vfs).files
    file = vfs.open(f"{DIRECTORY}/{files[2].name}", write=True)
    before = file.read_at(100, 1)
    file.write_at(100, (bytes((before[0] ^ 1,)),))
    with pytest.raises(CorruptData, match=files[2].name):
        archived(vfs, topic, trim=True)
    assert topic.first_available == 1
    file.write_at(100, (before,))
    vfs.unlink(f"{DIRECTORY}/{files[0].name}")
    with pytest.raises(CorruptData, match=f"{files[0].name} is missing"):
        archived(vfs, topic, trim=True)
    assert topic.first_available == 1


def test_entries_with_keys_are_not_trimmed(vfs: SimVfs) -> None:
    topic = MemoryTopic(30, keyed=frozenset((13, 14, 27)))
    summary = archived(vfs, topic, trim=True)
    assert (summary.first_available, summary.kept_for_keys) == (13, True)
    # Compaction has removed some of them since.
    topic.removed = frozenset((13, 14))
    summary = archived(vfs, topic, trim=True, keep=2)
    assert (summary.first_available, summary.kept_for_keys) == (27, True)
    topic.removed = frozenset((13, 14, 27))
    summary = archived(vfs, topic, trim=True, keep=2)
    assert (summary.first_available, summary.kept_for_keys) == (29, False)


# -- crashes -----------------------------------------------------------------------------------


def test_a_crash_at_any_call_loses_and_doubles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps and a trim: whatever is left, all is in the archive or still in the log."""
    monkeypatch.setattr(running, "STEP_RANGES", 2)

    def topic_of(journal: Journal) -> MemoryTopic:
        first = max((1, *journal.acknowledged))
        figures = Figures(first_available=first)
        return MemoryTopic(9, figures=figures, on_trim=journal.acknowledged.append)

    def work(vfs: SimVfs, journal: Journal) -> None:
        archived(vfs, topic_of(journal), range_entries=2, trim=True, keep=3)

    def check(vfs: SimVfs, journal: Journal) -> None:
        topic = topic_of(journal)
        rows = archive_rows(vfs)
        manifest = read_manifest(vfs, DIRECTORY) if vfs.stat(DIRECTORY) else None
        end = 1 if manifest is None else manifest.glsn_end
        assert rows == topic.rows(1, end)
        assert topic.first_available <= end
        work(vfs, journal)
        assert archive_rows(vfs) == topic.rows(1, 10)
        assert max(journal.acknowledged) == 7
        named = {file.name for file in manifest_of(vfs).files}
        found = {name for name in vfs.list_dir(DIRECTORY) if not name.startswith("_")}
        assert found == named, "nothing is left behind"

    report = enumerate_crashes(work, check, outcomes_max=200)
    assert report.points >= 39


# -- what is wrong is said ---------------------------------------------------------------------


def test_two_jobs_do_not_write_to_one_archive(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(3))
    with locked_home(vfs, DIRECTORY), pytest.raises(LogLocked, match="another job"):
        archived(vfs, MemoryTopic(6))
    assert archived(vfs, MemoryTopic(6)).rows == 3


def test_an_archive_is_of_one_topic(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(3))
    with pytest.raises(WrongLog, match="was made from topic 'orders'"):
        archived(vfs, MemoryTopic(6, name="others"))


def test_a_log_that_took_another_way_is_told_from_the_archived_one(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(12))
    with pytest.raises(WrongLog, match="at GLSN 12 topic 'orders' has another entry"):
        archived(vfs, MemoryTopic(20, streams=3))
    assert manifest_of(vfs).glsn_end == 13
    # What compaction has removed, or a trim, cannot be compared.
    archived(vfs, MemoryTopic(20, streams=3, removed=frozenset((12,))))


@pytest.mark.parametrize("begin_us", [-1 << 62, 1 << 62])
def test_a_run_goes_on_behind_an_entry_of_any_time(vfs: SimVfs, begin_us: int) -> None:
    """Python has no such times, so nothing may become one of its moments."""
    archived(vfs, MemoryTopic(12, begin_us=begin_us))
    assert archived(vfs, MemoryTopic(20, begin_us=begin_us)).rows == 8
    with pytest.raises(WrongLog, match="at GLSN 20 topic 'orders' has another entry"):
        archived(vfs, MemoryTopic(20, begin_us=begin_us + 1))


def test_a_log_that_is_shorter_than_its_archive_is_refused(vfs: SimVfs) -> None:
    """What it is going to append will have GLSNs that the archive has given to others."""
    archived(vfs, MemoryTopic(12))
    topic = MemoryTopic(9)
    with pytest.raises(WrongLog, match="ends at GLSN 9, but the archive in /archive goes to 12"):
        archived(vfs, topic, trim=True, keep=6)
    assert topic.first_available == 1
    assert archived(vfs, MemoryTopic(12)).files == 0


def test_a_directory_with_other_things_in_it_is_refused(vfs: SimVfs) -> None:
    vfs.make_dir(DIRECTORY)
    vfs.create(f"{DIRECTORY}/precious.parquet").close()
    with pytest.raises(BadOption, match=r"something else than an archive, precious\.parquet"):
        archived(vfs, MemoryTopic(3))
    assert vfs.stat(f"{DIRECTORY}/precious.parquet") is not None


def test_files_of_others_are_not_taken_for_leftovers(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(3))
    vfs.create(f"{DIRECTORY}/precious.parquet").close()
    vfs.create(f"{DIRECTORY}/{archived_name(1, 'lost')}").close()
    assert archived(vfs, MemoryTopic(6)).leftovers == 1
    assert vfs.stat(f"{DIRECTORY}/precious.parquet") is not None


def test_a_damaged_manifest_is_never_taken_for_an_archive_that_begins(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10))
    path = f"{DIRECTORY}/{MANIFEST}"
    file = vfs.open(path, write=True)
    for offset in (0, 5, 30, file.size() - 1):
        before = file.read_at(offset, 1)
        file.write_at(offset, (bytes((before[0] ^ 1,)),))
        with pytest.raises(CorruptData, match="backup of the archive"):
            archived(vfs, MemoryTopic(20))
        file.write_at(offset, (before,))
    assert archived(vfs, MemoryTopic(20)).rows == 10


def test_a_damaged_file_is_found_before_a_row_of_it_is_shown(vfs: SimVfs) -> None:
    archived(vfs, MemoryTopic(10), range_entries=10)
    named = manifest_of(vfs).files[0]
    path = f"{DIRECTORY}/{named.name}"
    file = vfs.open(path, write=True)
    for offset in range(0, named.size, 97):
        before = file.read_at(offset, 1)
        file.write_at(offset, (bytes((before[0] ^ 0x10,)),))
        with pytest.raises(CorruptData, match="do not match the manifest"):
            list(archived_batches(vfs, DIRECTORY, named, 4, 6, ("value",)))
        with pytest.raises(CorruptData, match="do not match the manifest"):
            last_older(vfs, DIRECTORY, named, 5)
        file.write_at(offset, (before,))
    file.write_at(named.size, (b"!",))
    with pytest.raises(CorruptData, match="do not match the manifest"):
        archive_rows(vfs)
    vfs.unlink(path)
    with pytest.raises(CorruptData, match="is missing"):
        archive_rows(vfs)


def test_wrong_arguments_are_refused_before_spark_starts(tmp_path: Path) -> None:
    url = "tidelog://127.0.0.1:1/orders"
    with pytest.raises(BadOption, match="up_to is 0"):
        archive(url, tmp_path, up_to=0)
    for strange in (float("nan"), float("inf")):
        with pytest.raises(BadOption, match=f"older_than is {strange}"):
            archive(url, tmp_path, older_than=strange)
    with pytest.raises(BadOption, match="range_entries is 0"):
        archive(url, tmp_path, range_entries=0)
    with pytest.raises(BadOption, match="keep is -1"):
        archive(url, tmp_path, keep=-1)


def test_an_archive_needs_a_directory_of_this_machine(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="directories of this machine"):
        archive("tidelog://127.0.0.1:1/orders", "s3://bucket/archive")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BadOption, match="no directory"):
        archive("tidelog://127.0.0.1:1/orders", tmp_path / "file")
