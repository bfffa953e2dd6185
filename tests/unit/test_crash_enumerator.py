"""The crash enumerator finds the classic mistakes of writing a file, and only those."""

from __future__ import annotations

import pytest

from tidelog.storage.vfs import Vfs
from tidelog.testing.crash import (
    CrashFailure,
    CrashReport,
    Journal,
    Prepare,
    Run,
    Variant,
    enumerate_crashes,
    replay,
)
from tidelog.testing.disk import Choice, SimDisk, SimVfs

OLD, NEW, NEWER = b"old " * 300, b"new! " * 300, b"newer" * 300


def replace_file(vfs: Vfs, data: bytes, steps: str) -> None:
    """A writer of a whole file.  Letters are its steps: write, sync, rename, directory sync."""
    if vfs.stat("/d/new") is not None:
        vfs.unlink("/d/new")
    file = vfs.create("/d/new")
    for step in steps:
        if step == "w":
            file.write_at(0, [data])
        elif step == "s":
            file.sync()
        elif step == "r":
            vfs.rename("/d/new", "/d/file")
        else:
            vfs.sync_dir("/d")
    file.close()


def prepare(vfs: SimVfs) -> None:
    vfs.make_dir("/d")
    vfs.sync_dir("/")
    replace_file(vfs, OLD, "wsrd")


def writer(steps: str) -> Run:
    def run(vfs: SimVfs, journal: Journal) -> None:
        for data in (NEW, NEWER):
            journal.attempted.append(data)
            replace_file(vfs, data, steps)
            journal.acknowledged.append(data)

    return run


def check_file(vfs: SimVfs, journal: Journal) -> None:
    """The last acknowledged content is there, or one that was attempted after it."""
    data = vfs.open("/d/file").read_at(0, 1 << 20)
    history = [OLD, *journal.attempted]
    allowed = history[len(journal.acknowledged) :]
    assert data in allowed, f"read {data[:10]!r}"


def try_all(steps: str, outcomes_max: int = 1000, first: Prepare = prepare) -> CrashReport:
    return enumerate_crashes(writer(steps), check_file, prepare=first, outcomes_max=outcomes_max)


def test_the_right_order_of_steps_survives_every_crash() -> None:
    report = try_all("wsrd")
    # Each of two rounds: no temporary file, an empty, two torn and a whole one, and the new file;
    # at the end the second content, acknowledged.
    assert report == CrashReport(points=10, outcomes=13, bounded_points=0)


@pytest.mark.parametrize(
    ("steps", "mistake"),
    [
        ("wrd", "the file is never synced"),
        ("wsr", "the directory is never synced"),
        ("wrsd", "renamed before the file is synced"),
        ("wsdr", "the directory is synced before the rename"),
        ("swrd", "synced before it was written"),
    ],
)
@pytest.mark.parametrize("outcomes_max", [1, 1000])
def test_each_mistake_is_found(steps: str, mistake: str, outcomes_max: int) -> None:
    with pytest.raises(CrashFailure):
        try_all(steps, outcomes_max)


def test_ignored_syncs_are_found_like_missing_ones() -> None:
    right = writer("wsrd")

    def without_sync(vfs: SimVfs, journal: Journal) -> None:
        vfs.disk.ignore_sync(lambda path: path.endswith("/new"))
        right(vfs, journal)

    def without_sync_dir(vfs: SimVfs, journal: Journal) -> None:
        vfs.disk.ignore_sync_dir(lambda path: path == "/d")
        right(vfs, journal)

    for run in (without_sync, without_sync_dir):
        with pytest.raises(CrashFailure):
            enumerate_crashes(run, check_file, prepare=prepare, outcomes_max=1000)


def test_what_prepare_did_not_sync_can_be_lost() -> None:
    def careless(vfs: SimVfs) -> None:
        vfs.make_dir("/d")
        replace_file(vfs, OLD, "wsrd")

    with pytest.raises(CrashFailure, match="FileNotFoundError"):
        try_all("wsrd", first=careless)


def test_a_failure_names_the_crash_and_can_be_replayed() -> None:
    run = writer("wrsd")
    with pytest.raises(CrashFailure) as caught:
        enumerate_crashes(run, check_file, prepare=prepare, outcomes_max=1000)
    failure = caught.value
    letters = "".join(choice.value for choice in failure.choices)
    lines = str(failure).splitlines()
    assert "crash point 3, after: rename /d/new" in lines
    assert "  LOST      write /d/new [0, 1500)" in lines
    assert "  KEPT      rename /d/new -> /d/file" in lines
    assert lines[-1] == f"replay(point=3, variant=Variant.AFTER, choices={letters!r})"

    for choices in (letters, failure.choices):
        with pytest.raises(CrashFailure) as again:
            replay(
                run,
                check_file,
                prepare=prepare,
                point=failure.point,
                variant=failure.variant,
                choices=choices,
            )
        assert str(again.value) == str(failure)
    kept = [Choice.KEPT] * len(failure.choices)
    replay(run, check_file, prepare=prepare, point=3, variant=Variant.AFTER, choices=kept)


def test_points_can_be_chosen() -> None:
    run = writer("wrsd")
    report = enumerate_crashes(
        run, check_file, prepare=prepare, outcomes_max=1000, points=range(1, 3)
    )
    assert report.points == 2
    with pytest.raises(CrashFailure):
        enumerate_crashes(run, check_file, prepare=prepare, outcomes_max=1000, points=range(3, 99))
    report = enumerate_crashes(
        run, check_file, prepare=prepare, outcomes_max=1000, points=range(50, 99)
    )
    assert report == CrashReport(0, 0, 0)


def test_points_beyond_the_bound_are_counted() -> None:
    def run(vfs: SimVfs, journal: Journal) -> None:
        file = vfs.create("/a")
        for i in range(5):
            file.write_at(2 * i, [b"xy"])

    # After the i-th call there are 2 * 4 ** (i - 1) mixtures: 2, 8, 32, 128, ...
    report = enumerate_crashes(run, lambda vfs, journal: None, outcomes_max=32)
    assert (report.points, report.bounded_points) == (6, 3)


def test_equal_disks_with_equal_journals_are_checked_once() -> None:
    seen: list[tuple[int, tuple[int, ...]]] = []

    def run(vfs: SimVfs, journal: Journal) -> None:
        for i in range(3):
            vfs.make_dir("/d")
            vfs.sync_dir("/")
            journal.acknowledged.append(i)

    def check(vfs: SimVfs, journal: Journal) -> None:
        seen.append((vfs.disk.fingerprint(), tuple(journal.acknowledged)))

    report = enumerate_crashes(run, check, outcomes_max=100)
    assert len(seen) == len(set(seen)) == report.outcomes
    # Without the directory and with it, nothing acknowledged; with it, one, two and three.
    assert report.outcomes == 5


def test_the_journal_is_kept_up_to_the_crash() -> None:
    longest = 0

    def run(vfs: SimVfs, journal: Journal) -> None:
        file = vfs.create("/a")
        vfs.sync_dir("/")
        for i in range(4):
            file.write_at(i, [b"%d" % i])
            file.sync()
            journal.acknowledged.append(i)

    def check(vfs: SimVfs, journal: Journal) -> None:
        nonlocal longest
        longest = max(longest, len(journal.acknowledged))
        data = vfs.open("/a").read_at(0, 10) if vfs.stat("/a") else b""
        assert data[: len(journal.acknowledged)] == b"0123"[: len(journal.acknowledged)]
        journal.acknowledged.clear()  # What a check does to its journal is its own affair.

    enumerate_crashes(run, check, outcomes_max=100)
    assert longest == 4


def test_a_check_may_recover_and_crash_the_recovery_too() -> None:
    nested = 0

    def recover(vfs: SimVfs, journal: Journal) -> None:
        if vfs.stat("/d/new") is not None:
            vfs.unlink("/d/new")
        vfs.sync_dir("/d")

    def check(vfs: SimVfs, journal: Journal) -> None:
        nonlocal nested
        outer = journal.copy()
        report = enumerate_crashes(
            recover, lambda left, _: check_file(left, outer), outcomes_max=100, disk=vfs.disk
        )
        nested += report.outcomes

    enumerate_crashes(writer("wsrd"), check, prepare=prepare, outcomes_max=1000)
    assert nested > 0


def test_errors_of_the_workload_itself_are_not_taken_for_crashes() -> None:
    def run(vfs: SimVfs, journal: Journal) -> None:
        vfs.create("/a")
        vfs.open("/missing")

    with pytest.raises(FileNotFoundError):
        enumerate_crashes(run, lambda vfs, journal: None, outcomes_max=10)


def test_a_product_may_report_the_crash_in_its_own_words() -> None:
    def run(vfs: SimVfs, journal: Journal) -> None:
        try:
            vfs.create("/a")
            vfs.create("/b")
        except BaseException as error:
            raise RuntimeError("the store failed") from error

    report = enumerate_crashes(run, lambda vfs, journal: None, outcomes_max=10)
    assert report.points == 2


def test_a_workload_that_does_other_things_each_time_is_refused() -> None:
    runs = 0

    def run(vfs: SimVfs, journal: Journal) -> None:
        nonlocal runs
        runs += 1
        for i in range(3 if runs == 1 else 1):
            vfs.create(f"/{i}")

    with pytest.raises(AssertionError, match="other calls than before"):
        enumerate_crashes(run, lambda vfs, journal: None, outcomes_max=10)


def test_the_starting_disk_is_left_as_it_was() -> None:
    disk = SimDisk()
    prepare(disk.vfs())
    before, operations = disk.files(), disk.operations
    enumerate_crashes(writer("wsrd"), check_file, outcomes_max=100, disk=disk)
    assert (disk.files(), disk.operations) == (before, operations)
