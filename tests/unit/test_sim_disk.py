"""What the simulated disk promises beyond ``Vfs``: S1 to S6 of its docstring, faults, outcomes.

That it answers like a real disk while nothing goes wrong is tested in ``test_os_vfs``.
"""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable

import pytest

from tidelog.testing.disk import (
    Choice,
    Choices,
    Effect,
    Op,
    SimDisk,
    SimulatedCrash,
    SimVfs,
    crash_outcomes,
    outcome_count,
)
from tidelog.testing.disk_effects import torn_length

LOST, KEPT, TORN, TORN_TAIL = Choice.LOST, Choice.KEPT, Choice.TORN, Choice.TORN_TAIL


def write(vfs: SimVfs, path: str, data: bytes, *, sync: bool = False) -> None:
    """Create a file (or open it) and write from its beginning."""
    file = vfs.open(path, write=True) if vfs.stat(path) else vfs.create(path)
    file.write_at(0, [data])
    if sync:
        file.sync()
    file.close()


def disk_with(**files: bytes) -> SimDisk:
    """A disk with these files in its root, all durable."""
    disk = SimDisk()
    for name, data in files.items():
        write(disk.vfs(), name, data, sync=True)
    disk.vfs().sync_dir("/")
    assert disk.pending_effects() == []
    return disk


def raises(code: int) -> pytest.RaisesExc[OSError]:
    return pytest.RaisesExc(OSError, check=lambda error: error.errno == code)


class TestDurability:
    def test_nothing_unsynced_survives_when_all_is_lost(self) -> None:
        disk = disk_with(a=b"old")
        write(disk.vfs(), "a", b"new!")
        write(disk.vfs(), "b", b"b")
        disk.vfs().make_dir("d")
        assert disk.files() == {"/a": b"new!", "/b": b"b"}
        assert disk.after_crash().files() == {"/a": b"old"}
        assert disk.after_crash(KEPT).files() == disk.files()
        assert disk.after_crash(KEPT).vfs().list_dir("/") == ["a", "b", "d"]

    def test_sync_keeps_bytes_and_length_but_not_the_name(self) -> None:
        disk = SimDisk()
        write(disk.vfs(), "a", b"x", sync=True)
        assert disk.after_crash().files() == {}
        assert [str(effect) for effect in disk.pending_effects()] == ["create /a"]
        assert disk.after_crash([KEPT]).files() == {"/a": b"x"}

    def test_sync_of_a_directory_keeps_names_but_not_bytes(self) -> None:
        disk = SimDisk()
        write(disk.vfs(), "a", b"x")
        disk.vfs().sync_dir("/")
        assert disk.after_crash().files() == {"/a": b""}

    def test_sync_of_a_directory_keeps_only_its_own_names(self) -> None:
        disk = SimDisk()
        vfs = disk.vfs()
        vfs.make_dir("d")
        write(vfs, "d/a", b"x", sync=True)
        vfs.sync_dir("d")
        assert disk.after_crash().files() == {}
        vfs.sync_dir("/")
        assert disk.after_crash().files() == {"/d/a": b"x"}

    def test_any_handle_syncs_the_whole_inode(self) -> None:
        disk = disk_with(a=b"old")
        writer = disk.vfs().open("a", write=True)
        writer.write_at(0, [b"new"])
        disk.vfs().open("a").sync()
        assert disk.after_crash().files() == {"/a": b"new"}

    def test_writes_survive_one_by_one_in_order(self) -> None:
        disk = disk_with(a=b"........")
        file = disk.vfs().open("a", write=True)
        for offset, data in ((0, b"11"), (1, b"22"), (6, b"3333")):
            file.write_at(offset, [data])
        assert disk.after_crash([KEPT, LOST, LOST]).files()["/a"] == b"11......"
        assert disk.after_crash([LOST, KEPT, LOST]).files()["/a"] == b".22....."
        assert disk.after_crash([KEPT, KEPT, LOST]).files()["/a"] == b"122....."
        assert disk.after_crash([LOST, LOST, KEPT]).files()["/a"] == b"......3333"

    def test_a_lost_write_before_a_kept_one_reads_as_zeros(self) -> None:
        disk = disk_with(a=b"")
        file = disk.vfs().open("a", write=True)
        file.write_at(0, [b"11"])
        file.write_at(2, [b"22"])
        assert disk.after_crash([LOST, KEPT]).files()["/a"] == b"\0\x0022"

    def test_a_torn_write_keeps_whole_sectors_of_either_end(self) -> None:
        disk = disk_with(a=b"." * 2048)
        disk.vfs().open("a", write=True).write_at(500, [b"x" * 1036])
        torn = disk.after_crash([TORN]).files()["/a"]
        tail = disk.after_crash([TORN_TAIL]).files()["/a"]
        assert torn == b"." * 500 + b"x" * 12 + b"." * 1536
        assert tail == b"." * 512 + b"x" * 1024 + b"." * 512

    def test_a_torn_short_write_keeps_one_half(self) -> None:
        disk = disk_with(a=b"")
        disk.vfs().open("a", write=True).write_at(0, [b"abcd"])
        assert disk.after_crash([TORN]).files()["/a"] == b"ab"
        assert disk.after_crash([TORN_TAIL]).files()["/a"] == b"\0\0cd"

    @pytest.mark.parametrize("offset", [0, 1, 64, 511, 512, 513, 5000])
    @pytest.mark.parametrize("length", [1, 2, 3, 511, 512, 513, 1024, 1025, 4096, 70_000])
    def test_the_place_of_a_tear_is_a_border_inside_the_write(
        self, offset: int, length: int
    ) -> None:
        cut = torn_length(offset, length)
        assert 0 <= cut < length
        crosses_a_border = offset // 512 != (offset + length - 1) // 512
        assert ((offset + cut) % 512 == 0 and cut > 0) == crosses_a_border or cut == length // 2

    def test_a_crashed_disk_is_independent_of_the_old_one(self) -> None:
        disk = disk_with(a=b"1")
        handle = disk.vfs().open("a", write=True)
        after = disk.after_crash()
        handle.write_at(0, [b"2"])
        write(after.vfs(), "a", b"3")
        assert disk.files()["/a"] == b"2"
        assert after.files()["/a"] == b"3"
        assert disk.after_crash().files()["/a"] == b"1"

    def test_many_small_synced_writes_are_all_durable(self) -> None:
        disk = disk_with(a=bytes(4096))
        file = disk.vfs().open("a", write=True)
        for i in range(3000):
            file.write_at(i, [b"x"])
            file.sync()
        file.write_at(0, [b"lost"])
        assert disk.after_crash().files()["/a"] == b"x" * 3000 + bytes(1096)


class TestNames:
    def test_a_rename_is_one_effect(self) -> None:
        disk = disk_with(a=b"new", b=b"old")
        disk.vfs().rename("a", "b")
        assert [str(effect) for effect in disk.pending_effects()] == ["rename /a -> /b"]
        assert disk.after_crash([LOST]).files() == {"/a": b"new", "/b": b"old"}
        assert disk.after_crash([KEPT]).files() == {"/b": b"new"}

    def test_a_kept_rename_works_without_the_creation_of_its_source(self) -> None:
        disk = SimDisk()
        write(disk.vfs(), "new", b"x", sync=True)
        disk.vfs().rename("new", "a")
        assert disk.after_crash([LOST, KEPT]).files() == {"/a": b"x"}
        assert disk.after_crash([KEPT, LOST]).files() == {"/new": b"x"}

    def test_a_kept_unlink_of_a_lost_name_is_nothing(self) -> None:
        disk = SimDisk()
        write(disk.vfs(), "a", b"x", sync=True)
        disk.vfs().unlink("a")
        assert disk.after_crash([LOST, KEPT]).files() == {}
        assert disk.after_crash([KEPT, LOST]).files() == {"/a": b"x"}

    def test_an_unlinked_file_comes_back_unless_the_directory_was_synced(self) -> None:
        disk = disk_with(a=b"x")
        disk.vfs().unlink("a")
        assert disk.after_crash().files() == {"/a": b"x"}
        disk.vfs().sync_dir("/")
        assert disk.after_crash(LOST).files() == {}
        assert disk.pending_effects() == []

    def test_writes_to_a_file_without_any_name_are_no_effects(self) -> None:
        disk = disk_with(a=b"x")
        file = disk.vfs().open("a", write=True)
        disk.vfs().unlink("a")
        file.write_at(0, [b"y"])
        assert [effect.kind for effect in disk.pending_effects()] == [Op.UNLINK, Op.WRITE]
        disk.vfs().sync_dir("/")
        assert disk.pending_effects() == []
        assert file.read_at(0, 1) == b"y"

    def test_a_link_and_its_source_stay_one_inode(self) -> None:
        disk = disk_with(a=b"x")
        disk.vfs().link("a", "b")
        after = disk.after_crash([KEPT]).vfs()
        assert after.stat("a") == after.stat("b")
        found = disk.after_crash([LOST]).vfs().stat("a")
        assert found is not None
        assert found.links == 1

    def test_a_symbolic_link_is_a_name_like_any_other(self) -> None:
        disk = disk_with(a=b"x")
        disk.vfs().symlink("a", "s")
        assert disk.after_crash([LOST]).vfs().list_dir("/") == ["a"]
        assert disk.after_crash([KEPT]).vfs().open("s").read_at(0, 1) == b"x"

    def test_files_in_a_lost_directory_are_gone(self) -> None:
        disk = SimDisk()
        disk.vfs().make_dir("d")
        write(disk.vfs(), "d/a", b"x", sync=True)
        disk.vfs().sync_dir("d")
        assert disk.after_crash([LOST]).vfs().list_dir("/") == []
        assert disk.after_crash([KEPT]).files() == {"/d/a": b"x"}

    @pytest.mark.parametrize("synced", ["d", "e"])
    def test_a_rename_between_directories_is_durable_by_either(self, synced: str) -> None:
        disk = SimDisk()
        vfs = disk.vfs()
        for name in ("d", "e"):
            vfs.make_dir(name)
        vfs.sync_dir("/")
        write(vfs, "d/a", b"new", sync=True)
        write(vfs, "e/a", b"old", sync=True)
        vfs.rename("d/a", "e/a")
        vfs.sync_dir(synced)
        for choices in crash_outcomes(disk.pending_effects(), 100):
            assert disk.after_crash(choices).files() == {"/e/a": b"new"}


class TestCrashPoints:
    def workload(self, vfs: SimVfs) -> None:
        vfs.make_dir("d")
        file = vfs.create("d/tmp")
        file.write_at(0, [b"x"])
        file.sync()
        vfs.rename("d/tmp", "d/a")
        vfs.link("d/a", "d/b")
        vfs.symlink("a", "d/s")
        vfs.unlink("d/b")
        vfs.sync_dir("d")

    def test_each_call_that_changes_something_counts(self) -> None:
        disk = SimDisk()
        self.workload(disk.vfs())
        assert disk.operations == 9
        vfs = disk.vfs()
        vfs.open("d/a").read_at(0, 1)
        vfs.stat("d")
        vfs.list_dir("d")
        vfs.lock("d/lock").release()
        vfs.free_bytes("d")
        assert disk.operations == 9
        assert disk.last_call == (Op.SYNC_DIR, "/d")

    @pytest.mark.parametrize("point", range(1, 10))
    @pytest.mark.parametrize("cut", [False, True])
    def test_a_crash_stops_the_workload_at_its_point(self, point: int, cut: bool) -> None:
        disk = SimDisk()
        disk.crash_after(point, cut=cut)
        if point < 9 or cut:
            with pytest.raises(SimulatedCrash):
                self.workload(disk.vfs())
            assert disk.crashed
        else:
            self.workload(disk.vfs())
            assert not disk.crashed
        assert disk.operations == point

    def test_crash_points_count_from_arming(self) -> None:
        disk = disk_with(a=b"x")
        disk.crash_after(1)
        disk.vfs().create("b")
        with pytest.raises(SimulatedCrash, match="create /b"):
            disk.vfs().create("c")
        assert sorted(disk.files()) == ["/a", "/b"]

    def test_after_a_crash_every_call_raises_but_close_and_release(self) -> None:
        disk = disk_with(a=b"x")
        vfs = disk.vfs()
        file, lock = vfs.open("a", write=True), vfs.lock("lock")
        disk.crash_after(1)
        vfs.create("b").close()
        calls: list[Callable[[], object]] = [
            lambda: file.read_at(0, 1),
            lambda: file.write_at(0, [b"y"]),
            file.sync,
            file.size,
            lambda: vfs.create("c"),
            lambda: vfs.open("a"),
            lambda: vfs.stat("a"),
            lambda: vfs.list_dir("/"),
            lambda: vfs.make_dir("d"),
            lambda: vfs.rename("a", "c"),
            lambda: vfs.link("a", "c"),
            lambda: vfs.symlink("a", "c"),
            lambda: vfs.unlink("a"),
            lambda: vfs.sync_dir("/"),
            lambda: vfs.lock("lock2"),
            lambda: vfs.free_bytes("/"),
        ]
        for call in calls:
            with pytest.raises(SimulatedCrash):
                call()
        file.close()
        lock.release()
        assert disk.operations == 4 + 1

    def test_no_handler_of_exceptions_swallows_a_crash(self) -> None:
        assert not issubclass(SimulatedCrash, Exception)

    def test_a_cut_write_is_pending_and_a_cut_sync_did_not_happen(self) -> None:
        disk = disk_with(a=b"")
        file = disk.vfs().open("a", write=True)
        disk.crash_after(1, cut=True)
        with pytest.raises(SimulatedCrash):
            file.write_at(0, [b"xy"])
        assert [str(effect) for effect in disk.pending_effects()] == ["write /a [0, 2)"]

        disk = disk_with(a=b"")
        file = disk.vfs().open("a", write=True)
        disk.crash_after(2, cut=True)
        file.write_at(0, [b"xy"])
        with pytest.raises(SimulatedCrash):
            file.sync()
        assert len(disk.pending_effects()) == 1

        disk = SimDisk()
        disk.vfs().create("a")
        disk.crash_after(1, cut=True)
        with pytest.raises(SimulatedCrash):
            disk.vfs().sync_dir("/")
        assert len(disk.pending_effects()) == 1

    def test_locks_end_with_a_crash_and_lock_files_stay(self) -> None:
        disk = SimDisk()
        disk.vfs().lock("lock")
        for other in (disk.after_crash(), disk.copy()):
            assert other.vfs().list_dir("/") == ["lock"]
            other.vfs().lock("lock").release()
        with pytest.raises(BlockingIOError):
            disk.vfs().lock("lock")


class TestOutcomes:
    def effects(self, writes: int, names: int) -> list[Effect]:
        kinds = [Op.WRITE] * writes + [Op.CREATE] * names
        return [Effect(i, kind, f"/{i}", length=8) for i, kind in enumerate(kinds)]

    def test_all_mixtures_are_tried_within_the_bound(self) -> None:
        effects = self.effects(2, 2)
        outcomes = list(crash_outcomes(effects, 64))
        assert outcome_count(effects) == len(set(outcomes)) == len(outcomes) == 64
        assert outcomes[0] == (LOST,) * 4
        assert set(outcomes) == set(
            itertools.product(Choice, Choice, (LOST, KEPT), (LOST, KEPT)),
        )

    def test_beyond_the_bound_the_stated_ones_are_tried_once_each(self) -> None:
        effects = self.effects(3, 3)
        outcomes = list(crash_outcomes(effects, 511))
        assert len(outcomes) == len(set(outcomes)) < 60
        stated: list[Choices] = [(LOST,) * 6, (KEPT,) * 6]
        for i in range(6):
            stated.append((KEPT,) * i + (LOST,) * (6 - i))
            for one, rest in ((KEPT, LOST), (LOST, KEPT)):
                stated.append((*(rest,) * i, one, *(rest,) * (5 - i)))
        for i, torn in itertools.product(range(3), (TORN, TORN_TAIL)):
            stated.append((*(KEPT,) * i, torn, *(LOST,) * (5 - i)))
            for rest in (KEPT, LOST):
                stated.append((*(rest,) * i, torn, *(rest,) * (5 - i)))
        assert set(outcomes) == set(stated)

    def test_the_bounded_set_grows_with_the_effects_not_beyond(self) -> None:
        assert len(list(crash_outcomes(self.effects(100, 100), 1000))) < 200 * 9

    def test_no_effects_leave_one_outcome(self) -> None:
        assert list(crash_outcomes([], 1)) == [()]

    def test_a_single_byte_cannot_be_torn(self) -> None:
        assert Effect(0, Op.WRITE, "/a", length=1).options == (LOST, KEPT)

    def test_every_outcome_of_a_real_workload_can_be_applied(self) -> None:
        disk = SimDisk()
        TestCrashPoints().workload(disk.vfs())
        write(disk.vfs(), "d/a", b"yz")
        disk.vfs().unlink("d/s")
        outcomes = list(crash_outcomes(disk.pending_effects(), 1 << 12))
        prints = {disk.after_crash(choices).fingerprint() for choices in outcomes}
        assert 1 < len(prints) <= len(outcomes)

    def test_equal_disks_have_equal_fingerprints(self) -> None:
        one, two = disk_with(a=b"x", b=b"y"), disk_with(a=b"x", b=b"y")
        assert one.fingerprint() == two.fingerprint()
        write(two.vfs(), "a", b"z")
        assert one.fingerprint() == two.after_crash(LOST).fingerprint()
        assert one.fingerprint() != two.after_crash(KEPT).fingerprint()


class TestFaults:
    def test_a_failed_sync_drops_the_writes_and_the_next_one_succeeds(self) -> None:
        disk = disk_with(a=b"old")
        file = disk.vfs().open("a", write=True)
        file.write_at(0, [b"new"])
        disk.fail(Op.SYNC, "a", errno.EIO)
        with raises(errno.EIO):
            file.sync()
        file.sync()
        assert file.read_at(0, 3) == b"new"
        assert disk.pending_effects() == []
        assert disk.after_crash(KEPT).files()["/a"] == b"old"
        assert disk.copy().files()["/a"] == b"new"

    def test_writes_after_a_failed_sync_are_durable_without_the_dropped_ones(self) -> None:
        disk = disk_with(a=b"....")
        file = disk.vfs().open("a", write=True)
        file.write_at(0, [b"1"])
        disk.fail(Op.SYNC, "a", errno.EIO)
        with raises(errno.EIO):
            file.sync()
        file.write_at(1, [b"2"])
        file.sync()
        assert disk.files()["/a"] == b"12.."
        assert disk.after_crash().files()["/a"] == b".2.."

    def test_a_failed_directory_sync_is_not_made_good_by_the_next_one(self) -> None:
        disk = disk_with(a=b"a")
        vfs = disk.vfs()
        vfs.rename("a", "b")
        disk.fail(Op.SYNC_DIR, "/", errno.EIO)
        with raises(errno.EIO):
            vfs.sync_dir("/")
        vfs.sync_dir("/")
        assert disk.after_crash(LOST).files() == {"/a": b"a"}
        assert disk.after_crash(KEPT).files() == {"/b": b"a"}

    def test_a_later_durable_name_wins_over_one_whose_sync_failed(self) -> None:
        disk = disk_with(a=b"a", b=b"b", c=b"c")
        vfs = disk.vfs()
        vfs.rename("a", "c")
        disk.fail(Op.SYNC_DIR, "/", errno.EIO)
        with raises(errno.EIO):
            vfs.sync_dir("/")
        vfs.rename("b", "c")
        vfs.sync_dir("/")
        for choice in (LOST, KEPT):
            assert disk.after_crash(choice).files()["/c"] == b"b"

    @pytest.mark.parametrize(
        ("operation", "code"),
        [
            (Op.CREATE, errno.ENOSPC),
            (Op.WRITE, errno.EIO),
            (Op.RENAME, errno.EIO),
            (Op.LINK, errno.EMLINK),
            (Op.SYMLINK, errno.ENOSPC),
            (Op.UNLINK, errno.EROFS),
            (Op.MAKE_DIR, errno.EACCES),
            (Op.READ, errno.EIO),
            (Op.OPEN, errno.EMFILE),
            (Op.LIST_DIR, errno.EIO),
            (Op.STAT, errno.EIO),
            (Op.LOCK, errno.EACCES),
        ],
    )
    def test_a_failed_call_changes_nothing(self, operation: Op, code: int) -> None:
        disk = disk_with(a=b"x")
        vfs = disk.vfs()
        file = vfs.open("a", write=True)
        calls: dict[Op, Callable[[], object]] = {
            Op.CREATE: lambda: vfs.create("n"),
            Op.WRITE: lambda: file.write_at(0, [b"yy"]),
            Op.RENAME: lambda: vfs.rename("a", "n"),
            Op.LINK: lambda: vfs.link("a", "n"),
            Op.SYMLINK: lambda: vfs.symlink("a", "n"),
            Op.UNLINK: lambda: vfs.unlink("a"),
            Op.MAKE_DIR: lambda: vfs.make_dir("n"),
            Op.READ: lambda: file.read_at(0, 1),
            Op.OPEN: lambda: vfs.open("a"),
            Op.LIST_DIR: lambda: vfs.list_dir("/"),
            Op.STAT: lambda: vfs.stat("a"),
            Op.LOCK: lambda: vfs.lock("n"),
        }
        disk.fail(operation, "", code)
        with raises(code):
            calls[operation]()
        assert disk.files() == {"/a": b"x"}
        assert disk.pending_effects() == []
        calls[operation]()

    def test_faults_wait_repeat_and_look_at_the_path(self) -> None:
        disk = disk_with(a=b"", b=b"")
        a, b = (disk.vfs().open(name, write=True) for name in ("a", "b"))
        disk.fail(Op.WRITE, "/a", errno.EIO, times=2, after=1)
        a.write_at(0, [b"1"])
        for _ in range(2):
            b.write_at(0, [b"x"])
            with raises(errno.EIO):
                a.write_at(0, [b"2"])
        a.write_at(0, [b"3"])
        assert disk.files() == {"/a": b"3", "/b": b"x"}

    def test_a_rename_fails_by_either_name(self) -> None:
        disk = disk_with(a=b"")
        disk.fail(Op.RENAME, "/b", errno.EIO)
        with raises(errno.EIO):
            disk.vfs().rename("a", "b")

    def test_a_failed_write_may_leave_a_part(self) -> None:
        disk = disk_with(a=b"")
        disk.fail(Op.WRITE, "/a", errno.EIO, partial=True)
        with raises(errno.EIO):
            disk.vfs().open("a", write=True).write_at(0, [b"abcd"])
        assert disk.files()["/a"] == b"ab"

    def test_a_full_disk_takes_what_fits_and_then_refuses(self) -> None:
        disk = disk_with(a=b"1234")
        disk.capacity_bytes = 10
        vfs = disk.vfs()
        assert vfs.free_bytes("/") == 6
        file = vfs.open("a", write=True)
        with raises(errno.ENOSPC):
            file.write_at(2, [b"abcdefghijkl"])
        assert disk.files()["/a"] == b"12abcdefgh"
        file.write_at(0, [b"AB"])
        for call in (vfs.create, vfs.make_dir):
            with raises(errno.ENOSPC):
                call("b")
        vfs.unlink("a")
        vfs.create("b").write_at(0, [b"x"])
        assert disk.after_crash().capacity_bytes == 10

    def test_a_flipped_bit_is_flipped_wherever_the_byte_is(self) -> None:
        disk = disk_with(a=b"\0\0")
        disk.flip_bit("a", 1, 3)
        assert disk.files()["/a"] == disk.after_crash().files()["/a"] == b"\0\x08"
        disk.vfs().open("a", write=True).write_at(1, [b"\xff\xff"])
        disk.flip_bit("a", 2, 0)
        disk.flip_bit("a", 0, 0)
        assert disk.files()["/a"] == disk.after_crash(KEPT).files()["/a"] == b"\1\xff\xfe"
        assert disk.after_crash(LOST).files()["/a"] == b"\1\x08"
        with pytest.raises(IndexError):
            disk.flip_bit("a", 3, 0)
        with pytest.raises(FileNotFoundError):
            disk.flip_bit("b", 0, 0)

    def test_a_truncated_file_is_short_whatever_survives(self) -> None:
        disk = disk_with(a=b"0123456789")
        disk.vfs().open("a", write=True).write_at(2, [b"abcd"])
        disk.truncate("a", 4)
        assert disk.files()["/a"] == disk.after_crash(KEPT).files()["/a"] == b"01ab"
        assert disk.after_crash(LOST).files()["/a"] == b"0123"

    def test_ignored_syncs_return_and_make_nothing_durable(self) -> None:
        disk = SimDisk()
        disk.ignore_sync(lambda path: path.endswith(".wal"))
        disk.ignore_sync_dir(lambda path: path == "/d")
        for vfs in (disk.vfs(), disk.copy().vfs()):
            vfs.make_dir("d")
            write(vfs, "a.wal", b"x", sync=True)
            write(vfs, "b", b"x", sync=True)
            write(vfs, "d/c", b"x", sync=True)
            vfs.sync_dir("d")
            vfs.sync_dir("/")
            assert vfs.disk.after_crash().files() == {"/a.wal": b"", "/b": b"x"}


class TestCopies:
    def test_a_copy_has_the_pending_effects_and_goes_its_own_way(self) -> None:
        disk = disk_with(a=b"old", c=b"c")
        write(disk.vfs(), "a", b"new")
        write(disk.vfs(), "b", b"b")
        copy = disk.copy()
        assert copy.files() == disk.files()
        assert copy.pending_effects() == disk.pending_effects()
        assert copy.operations == 0
        write(copy.vfs(), "a", b"own", sync=True)
        copy.vfs().unlink("c")
        assert disk.files() == {"/a": b"new", "/b": b"b", "/c": b"c"}
        assert disk.after_crash().files() == {"/a": b"old", "/c": b"c"}
        assert copy.after_crash().files() == {"/a": b"own", "/c": b"c"}

    def test_a_copy_of_fifty_files_costs_far_less_than_a_millisecond(self) -> None:
        disk = disk_with(**{f"f{i}": bytes(1000) for i in range(50)})
        best = min(_seconds(disk.copy) for _ in range(20))
        assert best < 0.001

    def test_small_writes_to_a_big_file_do_not_copy_it(self) -> None:
        disk = disk_with(a=bytes(1 << 24))
        file = disk.vfs().open("a", write=True)
        file.write_at(0, [b"x"])

        def write_and_sync() -> None:
            file.write_at(512, [b"x" * 100])
            file.sync()

        # A copy of 16 MiB takes milliseconds.
        assert min(_seconds(write_and_sync) for _ in range(20)) < 0.001


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
