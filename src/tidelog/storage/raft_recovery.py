"""Finds out what a Raft node's directory holds, and keeps it free of what is not needed.

  1  The log file with the highest number is the log.  If it is damaged, an older one is no
     substitute: it lacks votes and entries that were promised.
  2  Its base names the snapshot; without that very one there is no log.
  3  A directory without a log file is one that was never opened, or it is damaged.
No state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tidelog.core.raft.entries import NO_INDEX, HardState, Snapshot, Stored
from tidelog.core.raft.output import Write
from tidelog.errors import CorruptData, NotALog
from tidelog.formats.raft_log import (
    SNAPSHOT_FILE_BYTES_MAX,
    FileHeader,
    LogContent,
    SnapshotReference,
    decode_file,
    decode_file_header,
    decode_snapshot,
    encode_snapshot,
    refer_to,
)
from tidelog.limits import RAFT_LOG_FILE_BYTES_MAX
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX, read_file, replace_file
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import LOCK_NAME, parent_of, sync_parent
from tidelog.storage.raft_image import RaftImage
from tidelog.storage.raft_log_file import log_name
from tidelog.storage.vfs import FileKind
from tidelog.types import NodeId

_LOG_NAME: Final = re.compile(r"(\d{16,20})\.log")
_OWN_NAME: Final = re.compile(r"\d{16,20}\.(?:log|snapshot)(?:\.tmp)?")


def snapshot_name(index: int) -> str:
    return f"{index:016d}.snapshot"


@dataclass(frozen=True, slots=True)
class Found:
    """What a directory holds; ``number`` is that of the log file, 0 if there is none yet."""

    number: int
    image: RaftImage
    reference: SnapshotReference
    snapshot: Snapshot
    torn: bool = False
    """Whether the log ended in a torn frame."""

    def stored(self) -> Stored:
        """The same, as the node wants to have it."""
        return Stored(self.image.hard_state, self.snapshot, tuple(self.image.entries))


# -- reading -----------------------------------------------------------------------------------


def read_directory(vfs: FailStopVfs, directory: str, *, node: NodeId, group: bytes) -> Found | None:
    """What is in the directory; None if there is no log file."""
    numbers = _log_numbers(vfs, directory)
    if not numbers:
        return None
    path = f"{directory}/{log_name(numbers[-1])}"
    data = read_file(vfs, path, RAFT_LOG_FILE_BYTES_MAX) or b""
    try:
        header = decode_file_header(data)
        _check_owner(directory, header, node, group)
        if header.number != numbers[-1]:
            raise CorruptData(f"it says that it is file {header.number}")
        content = decode_file(data, header)
        image = replayed(content)
    except CorruptData as error:
        raise type(error)(f"{path}: {error}") from error
    reference = content.base.snapshot
    snapshot = _read_snapshot(vfs, directory, reference)
    return Found(header.number, image, reference, snapshot, content.torn)


def _log_numbers(vfs: FailStopVfs, directory: str) -> list[int]:
    matches = map(_LOG_NAME.fullmatch, vfs.list_dir(directory))
    return sorted(int(match.group(1)) for match in matches if match is not None)


def _check_owner(directory: str, header: FileHeader, node: NodeId, group: bytes) -> None:
    if (header.node, header.group) != (node, group):
        raise NotALog(
            f"{directory} belongs to node {header.node} of group {header.group.hex()}, "
            f"not to node {node} of group {group.hex()}"
        )


def replayed(content: LogContent) -> RaftImage:
    """The image after all frames of a file."""
    base = content.base
    image = RaftImage(base.hard_state, base.snapshot.head, list(base.entries))
    flaw = image.flaw()
    for number, change in enumerate(content.changes, 1):
        write = Write(number, hard_state=change.hard_state, entries=change.entries)
        flaw = flaw or image.flaw_in(write)
        if flaw:
            break
        image.apply(write)
    if flaw:
        raise CorruptData(flaw)
    return image


def _read_snapshot(vfs: FailStopVfs, directory: str, reference: SnapshotReference) -> Snapshot:
    path = f"{directory}/{snapshot_name(reference.head.index)}"
    data = read_file(vfs, path, SNAPSHOT_FILE_BYTES_MAX)
    if data is None:
        raise CorruptData(f"{path} is missing, and the log builds on it")
    try:
        return decode_snapshot(data, reference)
    except CorruptData as error:
        raise type(error)(f"{path}: {error}") from error


# -- writing -----------------------------------------------------------------------------------


def check_directory(vfs: FailStopVfs, directory: str, *, create: bool) -> None:
    """See to it that there is a directory, and a log in it unless one may be made."""
    found = vfs.stat(directory)
    if found is not None and found.kind is FileKind.FILE:
        raise NotALog(f"{directory} is a file, not the directory of a Raft log")
    if not create and (found is None or not _log_numbers(vfs, directory)):
        raise NotALog(f"{directory} holds no Raft log")
    if found is None:
        if vfs.stat(parent_of(directory)) is None:
            raise NotALog(f"there is no directory {parent_of(directory)} to make a Raft log in")
        vfs.make_dir(directory)


def begin_directory(vfs: FailStopVfs, directory: str, first: Snapshot | None) -> Found:
    """The beginning of a new store; nothing in the directory names it yet."""
    _check_only_leftovers(vfs, directory)
    if first is None:
        raise NotALog(f"{directory} holds no Raft log")
    # Before there is a log: whoever finds one, after a kill too, may rely on the directory.
    sync_parent(vfs, directory)
    reference = write_snapshot(vfs, directory, first)
    return Found(0, RaftImage(HardState(), first.head, []), reference, first)


def _check_only_leftovers(vfs: FailStopVfs, directory: str) -> None:
    """Refuse to make a store where something else lies, be it one that lost its log."""
    for name in vfs.list_dir(directory):
        if name in (LOCK_NAME, snapshot_name(NO_INDEX)) or name.endswith(TEMPORARY_SUFFIX):
            continue
        if _OWN_NAME.fullmatch(name):
            raise CorruptData(f"{directory} holds {name}, but its log file is missing: restore it")
        raise NotALog(f"{directory} holds {name!r} and no Raft log: give a new directory")


def write_snapshot(vfs: FailStopVfs, directory: str, snapshot: Snapshot) -> SnapshotReference:
    """Make a snapshot durable under its name, for a log file to name it."""
    data = encode_snapshot(snapshot)
    replace_file(vfs, directory, snapshot_name(snapshot.head.index), data)
    return refer_to(snapshot.head, data)


def delete_leftovers(
    vfs: FailStopVfs, directory: str, number: int, reference: SnapshotReference
) -> None:
    """Delete all log files and snapshots but these two."""
    kept = (log_name(number), snapshot_name(reference.head.index))
    for name in vfs.list_dir(directory):
        if name not in kept and _OWN_NAME.fullmatch(name):
            vfs.unlink(f"{directory}/{name}")
