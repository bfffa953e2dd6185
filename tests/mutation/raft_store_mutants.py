"""Safeguards of a Raft node's store, each with a way to switch it off and the hunt that notices."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from unittest.mock import patch

from msgspec.structs import replace

from tests.crash import raft_scenarios
from tests.crash.nested import first_stops
from tests.crash.raft_scenarios import check_recovery, check_start, second_run
from tests.mutation.left_out import Change, replaced, sync_dir_left_out, sync_left_out
from tests.storage.raft_stores import (
    DIRECTORY,
    EMPTY,
    FIRST,
    entries,
    numbered,
    open_store,
    snapshot,
    states,
    voted,
)
from tidelog.core.raft.output import Write
from tidelog.errors import CorruptData, LogError, NotALog, StorageFailed
from tidelog.formats import raft_log
from tidelog.formats.raft_log import (
    FILE_HEADER_BYTES,
    Body,
    Frame,
    decode_frame,
    encode_frame,
    encode_snapshot,
)
from tidelog.invariants import InvariantViolation
from tidelog.storage import (
    raft_image,
    raft_log_file,
    raft_recovery,
    raft_spare,
    raft_store,
)
from tidelog.storage.fail_stop import FailStopFile, FailStopVfs
from tidelog.storage.raft_log_file import RaftLogFile, log_name
from tidelog.storage.raft_recovery import delete_leftovers
from tidelog.storage.raft_spare import SpareLogFile
from tidelog.storage.raft_store import RaftStore
from tidelog.storage.vfs import File, Vfs
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import Choice, Op, SimDisk, SimVfs
from tidelog.types import NodeId

Hunt: TypeAlias = Callable[[Change], None]
"""Gets what to put in place before anything is checked, after the state was prepared."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    hunt: Hunt


# -- hunts -------------------------------------------------------------------------------------


def crashes_of(name: str) -> Hunt:
    """Every crash point of a scenario."""

    def hunt(change: Change) -> None:
        scenario = raft_scenarios.scenario(name)
        disk, begin = scenario.prepared()
        with change():
            enumerate_crashes(
                scenario.run,
                check_recovery(begin),
                disk=disk,
                outcomes_max=raft_scenarios.OUTCOMES_MAX,
            )

    return hunt


def kills_of(name: str) -> Hunt:
    """A power loss soon after every kill in a scenario."""

    def hunt(change: Change) -> None:
        scenario = raft_scenarios.scenario(name)
        disk, begin = scenario.prepared()

        def check(vfs: SimVfs, journal: Journal) -> None:
            check_start(vfs, journal, begin)

        with change():
            for _, how, left, journal in first_stops(disk, scenario.run, range(1, 99), 1):
                if how == "kill":
                    enumerate_crashes(second_run(journal, begin), check, disk=left, outcomes_max=8)

    return hunt


WRITES: Final = numbered(
    [
        Write(0, voted(1, 2), entries=entries(1, 3)),
        Write(0, voted(2, 3)),
        Write(0, entries=entries(3, 4, term=2)),
    ]
)


def synced_store(disk: SimDisk) -> RaftStore:
    """A store with three writes, a sync after each."""
    store, _ = open_store(disk.vfs(), phase="prepare")
    for write in WRITES:
        store.write(write)
        store.sync()
    return store


def _log_file(disk: SimDisk) -> tuple[str, bytes]:
    (found,) = [item for item in disk.files().items() if item[0].endswith(".log")]
    return found


def _check_damage_is_found(disk: SimDisk) -> None:
    try:
        open_store(disk.vfs(), first=None, phase="check")
    except CorruptData:
        return
    raise AssertionError("damage was not noticed")


def bit_rot_in_a_synced_frame(change: Change) -> None:
    """The vote of the second write rots; the third one was written after its sync."""
    disk = SimDisk()
    with change():
        synced_store(disk)
        path, data = _log_file(disk)
        place = data.index(b"TLE\x01", data.index(b"entry 2"))
        disk.flip_bit(path, place + 41, 0)
        _check_damage_is_found(disk.copy())


def bit_rot_after_a_close(change: Change) -> None:
    """The last entry rots while the node is down."""
    disk = SimDisk()
    with change():
        synced_store(disk).close()
        path, data = _log_file(disk)
        disk.flip_bit(path, data.index(b"entry 3"), 0)
        _check_damage_is_found(disk)


def a_file_that_was_cut(change: Change) -> None:
    """At the end of a frame, so that nothing in the file looks wrong."""
    disk = SimDisk()
    synced_store(disk).close()
    path, data = _log_file(disk)
    disk.truncate(path, data.index(b"TLE\x01", data.index(b"entry 2")))
    with change():
        _check_damage_is_found(disk)


def another_snapshot(change: Change) -> None:
    """A sound snapshot of the same index, but not the one that the log was built on."""
    disk = SimDisk()
    synced_store(disk).close()
    path = f"{DIRECTORY}/{0:016d}.snapshot"
    disk.vfs().unlink(path)
    other = encode_snapshot(replace(FIRST, data=b"other"))
    disk.vfs().create(path).write_at(0, (other,))
    with change():
        _check_damage_is_found(disk)


def another_node(change: Change) -> None:
    """A directory that was put into the hands of another node, which would vote with it."""
    disk = SimDisk()
    synced_store(disk).close()
    with change():
        try:
            open_store(disk.vfs(), node=NodeId(7), phase="check")
        except NotALog:
            return
        raise AssertionError("the store of another node was opened")


def a_second_vote(change: Change) -> None:
    """A node that votes twice in a term is stopped before the second vote is stored."""
    store = synced_store(SimDisk())
    with change():
        try:
            store.write(Write(9, voted(2, 1)))
        except InvariantViolation:
            return
        raise AssertionError("a second vote was stored")


def a_failed_fsync(change: Change) -> None:
    """A write whose sync failed is not acknowledged, or it is there after a crash."""
    disk = SimDisk()
    store = synced_store(disk)
    write = Write(9, voted(5, 1))
    disk.fail(Op.SYNC, ".log", errno.EIO)
    with change():
        store.write(write)
        try:
            store.sync()
        except StorageFailed:
            return
        _, found = open_store(disk.after_crash(Choice.LOST).vfs(), phase="check")
        assert found == states(EMPTY, [*WRITES, write])[-1]


def a_full_disk_behind_the_rename(change: Change) -> None:
    """Whatever a store acknowledges after an error is there after a crash."""
    disk = SimDisk()
    store = synced_store(disk)
    disk.fail(Op.UNLINK, ".log", errno.ENOSPC)
    with change():
        try:
            store.write(Write(8, snapshot=snapshot(2)))
        except LogError:
            pass
        try:
            store.write(Write(9, voted(5, 1)))
            store.sync()
        except StorageFailed:
            return
        _, found = open_store(disk.after_crash(Choice.LOST).vfs(), phase="check")
        assert found.hard_state == voted(5, 1)


def a_frame_behind_a_torn_one(change: Change) -> None:
    """A crash keeps the second of two frames; the next start writes one as long as the first."""
    disk = SimDisk()
    store = synced_store(disk)
    store.write(Write(8, voted(5, 1)))
    store.write(Write(9, entries=entries(4, 5, term=5)))
    left = disk.after_crash([Choice.LOST, Choice.KEPT])
    with change():
        store, _ = open_store(left.vfs(), first=None, phase="resume")
        store.write(Write(1, voted(6, 3)))
        store.sync()
        _, found = open_store(left.after_crash(Choice.LOST).vfs(), first=None, phase="check")
        assert found == states(EMPTY, [*WRITES, Write(9, voted(6, 3))])[-1]


def a_file_that_was_half_prepared(change: Change) -> None:
    """A snapshot comes while the next log file has one piece of several."""
    disk = SimDisk()
    store = synced_store(disk)
    write = Write(9, snapshot=snapshot(2))
    with patch.object(raft_spare, "PIECE_BYTES", 1024), change():
        store.prepare()
        store.write(write)
        _, found = open_store(disk.after_crash(Choice.LOST).vfs(), phase="check")
        assert found == states(EMPTY, [*WRITES, write])[-1]


DIRECTED: Final = (
    a_frame_behind_a_torn_one,
    bit_rot_in_a_synced_frame,
    bit_rot_after_a_close,
    a_file_that_was_cut,
    another_snapshot,
    another_node,
    a_second_vote,
    a_failed_fsync,
    a_full_disk_behind_the_rename,
    a_file_that_was_half_prepared,
)


# -- wrong code --------------------------------------------------------------------------------


def does_nothing(right: Any) -> Any:
    return lambda *args, **options: None


def says_yes(right: Any) -> Any:
    return lambda *args: True


def again(right: Any) -> Any:
    def wrong(self: FailStopFile) -> None:
        try:
            self.inner.sync()
        except OSError:
            right(self)

    return wrong


def rename_first(right: Any) -> Any:
    def wrong(vfs: Vfs, directory: str, name: str, data: bytes) -> None:
        temporary = f"{directory}/{name}.tmp"
        if vfs.stat(temporary) is not None:
            vfs.unlink(temporary)
        file = vfs.create(temporary)
        file.write_at(0, (data,))
        vfs.rename(temporary, f"{directory}/{name}")
        file.sync()
        file.close()
        vfs.sync_dir(directory)

    return wrong


def put_in_place_unsynced(right: Any) -> Any:
    def wrong(vfs: Vfs, directory: str, name: str, file: File, data: bytes) -> None:
        file.write_at(0, (data,))
        vfs.rename(f"{directory}/{name}.tmp", f"{directory}/{name}")
        file.sync()
        file.close()
        vfs.sync_dir(directory)

    return wrong


def delete_first(right: Any) -> Any:
    def wrong(vfs: FailStopVfs, directory: str, base: Any, blank: Any, **options: Any) -> Any:
        delete_leftovers(vfs, directory, blank.number, base.snapshot)
        return right(vfs, directory, base, blank, **options)

    return wrong


def snapshot_then_the_rest(right: Any) -> Any:
    def wrong(self: RaftStore, write: Write) -> None:
        if write.snapshot is None:
            right(self, write)
            return
        right(self, replace(write, hard_state=None, entries=()))
        assert self._log is not None
        self._log.append(raft_log.Change(write.hard_state, write.entries))
        self._image.apply(replace(write, snapshot=None))

    return wrong


def go_on_in_the_old_file(right: Any) -> Any:
    """A start appends to the file that it finds, as far as that can be read."""

    def wrong(self: RaftStore, image: Any, reference: Any) -> None:
        if self._log is not None or not self._number:
            right(self, image, reference)
            return
        file = self._vfs.open(f"{self._directory}/{log_name(self._number)}")
        data = file.read_at(0, file.size())
        header, offset, count = raft_log.decode_file_header(data), FILE_HEADER_BYTES, 0
        while isinstance(frame := decode_frame(data, offset, header.salt), Frame):
            offset, count = frame.end_offset, count + 1
        delete_leftovers(self._vfs, self._directory, self._number, reference)
        self._log = RaftLogFile(self._vfs, self._directory, header, offset)
        self._log._sequence = self._log._durable_end = count

    return wrong


def counting_durable(count: Callable[[RaftLogFile], int]) -> Callable[[Any], Any]:
    def make(right: Any) -> Any:
        def wrong(self: RaftLogFile, body: Body) -> bytes:
            end = count(self)
            return encode_frame(
                body, sequence=self._sequence, durable_end=end, salt=self.header.salt
            )

        return wrong

    return make


def any_later_frame_is_damage(right: Any) -> Any:
    return lambda data, salt, offset, sequence, reason: right(data, salt, offset, -1, reason)


def oldest_last(right: Any) -> Any:
    return lambda *args: right(*args)[::-1]


def not_final(right: Any) -> Any:
    def wrong(self: FailStopVfs, reason: str) -> StorageFailed:
        error: StorageFailed = right(self, reason)
        self.failed = None
        return error

    return wrong


# -- the mutants -------------------------------------------------------------------------------

WITHOUT_SYNC: Final = (
    Mutant(
        "a write is acknowledged without a sync",
        sync_left_out(RaftLogFile, "sync"),
        crashes_of("appends"),
    ),
    Mutant(
        "a vote is acknowledged without a sync",
        sync_left_out(RaftLogFile, "sync"),
        crashes_of("hard state"),
    ),
    Mutant(
        "a new log file is not synced before it gets its name",
        sync_left_out(raft_store, "make_log_file"),
        crashes_of("a full file"),
    ),
    Mutant(
        "the name of a new log file is not synced before the old one goes",
        sync_dir_left_out(raft_store, "make_log_file"),
        crashes_of("a full file"),
    ),
    Mutant(
        "a prepared log file is not synced again before it gets its name",
        sync_left_out(raft_store, "make_log_file"),
        crashes_of("a snapshot, and the next file was prepared"),
    ),
    Mutant(
        "the name of a prepared log file is not synced before the old one goes",
        sync_dir_left_out(raft_store, "make_log_file"),
        crashes_of("a snapshot, and the next file was prepared"),
    ),
    Mutant(
        "a snapshot is not synced before a log names it",
        sync_left_out(raft_store, "write_snapshot"),
        crashes_of("a snapshot of our own"),
    ),
    Mutant(
        "the name of a snapshot is not synced before a log names it",
        sync_dir_left_out(raft_store, "write_snapshot"),
        crashes_of("a snapshot of the leader"),
    ),
    Mutant(
        "the directory of a new store is not synced",
        replaced(raft_recovery, "sync_parent", does_nothing),
        crashes_of("making a store"),
    ),
    Mutant(
        "closing does not sync",
        replaced(RaftLogFile, "end", does_nothing),
        crashes_of("closing"),
    ),
    Mutant(
        "a failed sync is tried again",
        replaced(FailStopFile, "sync", again),
        a_failed_fsync,
    ),
)

OTHER_ORDER: Final = (
    Mutant(
        "a log file is renamed before it is synced",
        replaced(raft_log_file, "replace_file", rename_first),
        crashes_of("a full file"),
    ),
    Mutant(
        "a prepared log file is renamed before what it begins with is synced",
        replaced(raft_spare, "put_in_place", put_in_place_unsynced),
        crashes_of("a snapshot, and the next file was prepared"),
    ),
    Mutant(
        "a log file takes a prepared one that is not whole",
        replaced(SpareLogFile, "is_whole", lambda right: property(lambda spare: True)),
        a_file_that_was_half_prepared,
    ),
    Mutant(
        "the old log file is deleted before the new one is durable",
        replaced(raft_store, "make_log_file", delete_first),
        crashes_of("a full file"),
    ),
    Mutant(
        "a snapshot comes into force before the rest of its write",
        replaced(RaftStore, "_rewrite", snapshot_then_the_rest),
        crashes_of("a snapshot of our own"),
    ),
    Mutant(
        "a start goes on in the file of a process that was killed",
        replaced(RaftStore, "_begin_file", go_on_in_the_old_file),
        kills_of("appends"),
    ),
    Mutant(
        "a start writes over a torn tail",
        replaced(RaftStore, "_begin_file", go_on_in_the_old_file),
        a_frame_behind_a_torn_one,
    ),
    Mutant(
        "an error behind the rename of a log file is not final",
        replaced(FailStopVfs, "stop", not_final),
        a_full_disk_behind_the_rename,
    ),
)

UNCHECKED: Final = (
    Mutant(
        "the checksum of a frame is not verified",
        replaced(raft_log, "_checksum_holds", says_yes),
        crashes_of("several writes and one sync"),
    ),
    Mutant(
        "a bad frame is always taken for a torn tail",
        replaced(raft_log, "check_tail", does_nothing),
        bit_rot_in_a_synced_frame,
    ),
    Mutant(
        "a bad frame with a whole one behind it is always taken for damage",
        replaced(raft_log, "check_tail", any_later_frame_is_damage),
        crashes_of("several writes and one sync"),
    ),
    Mutant(
        "a frame counts frames as durable that are not",
        replaced(RaftLogFile, "_encoded", counting_durable(lambda log: log._sequence)),
        crashes_of("several writes and one sync"),
    ),
    Mutant(
        "a frame counts no frames as durable",
        replaced(RaftLogFile, "_encoded", counting_durable(lambda log: 1)),
        bit_rot_in_a_synced_frame,
    ),
    Mutant(
        "nothing says that a store was closed in good order",
        replaced(RaftLogFile, "end", lambda right: RaftLogFile.sync),
        bit_rot_after_a_close,
    ),
    Mutant(
        "a log file may be shorter than it was made",
        replaced(raft_log, "check_length", does_nothing),
        a_file_that_was_cut,
    ),
    Mutant(
        "any snapshot of the right index will do",
        replaced(raft_log, "check_meant", does_nothing),
        another_snapshot,
    ),
    Mutant(
        "an older log file is taken for the newest",
        replaced(raft_recovery, "_log_numbers", oldest_last),
        crashes_of("a full file"),
    ),
    Mutant(
        "any node may open a store",
        replaced(raft_recovery, "_check_owner", does_nothing),
        another_node,
    ),
    Mutant(
        "a node may vote twice in a term",
        replaced(raft_image, "may_follow", says_yes),
        a_second_vote,
    ),
)

MUTANTS: Final = (*WITHOUT_SYNC, *OTHER_ORDER, *UNCHECKED)

SURVIVORS: Final = (
    Mutant(
        "a snapshot is renamed before it is synced: no log names it before it is durable, and no "
        "start looks at a snapshot that its log does not name",
        replaced(raft_recovery, "replace_file", rename_first),
        crashes_of("a snapshot of our own"),
    ),
)
