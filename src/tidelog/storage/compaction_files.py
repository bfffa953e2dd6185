"""Replaces a group of segment files by one, so that a crash anywhere loses nothing.

For the group a < b < c:
  1  write ``a-b-c.compacting``, sync it, sync the directory;
  2  for b and c make ``b.link`` and ``c.link``, symbolic links to ``a.segment``, then hard-link the
     file as ``a.link``: whatever needs room on the disk comes before the point of no return;
  3  rename ``a.link`` over ``a.segment``: the point of no return; sync the directory;
  4  rename the symbolic links over their members, so that readers which know an old name still
     find the entries; sync the directory;
  5  unlink ``a-b-c.compacting``; sync the directory.

Recovery reads the link count of a ``.compacting`` file: 1 means that step 2 was not reached
and the sources are whole; 2 or more means that the file is complete, and the steps from 2 on
are done again.  Every step may be repeated.  The count alone does not prove that ``a.segment``
was replaced (a left-over ``a.link`` counts too), so inodes are compared.

No other segment may lie between the first of a group and its last, not even one that is dead and
waits to be deleted: had it survived a crash, the file with the lower number, which reaches over its
place now, would be cut off there (S1).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.invariants import check
from tidelog.limits import COMPACTION_GROUP_MAX
from tidelog.storage.segments import SEGMENT_SUFFIX, segment_name
from tidelog.storage.vfs import FileKind, Vfs

COMPACTING_SUFFIX = ".compacting"
LINK_SUFFIX = ".link"


def compacting_name(numbers: Sequence[int]) -> str:
    check(0 < len(numbers) <= COMPACTION_GROUP_MAX, "a compaction group has 1 to 8 segments")
    return "-".join(f"{number:016d}" for number in numbers) + COMPACTING_SUFFIX


def remove_stale(vfs: Vfs, directory: str, first: int) -> None:
    """Delete what a failed run on this group left, so that the new run starts from nothing."""
    prefix = f"{first:016d}"
    for name in vfs.list_dir(directory):
        is_own = name.startswith(prefix) and name.endswith(COMPACTING_SUFFIX)
        if is_own or name.endswith(LINK_SUFFIX):
            vfs.unlink(f"{directory}/{name}")


def install_group(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
    """Steps 1 (last sync) to 5 for a group whose ``.compacting`` file is written and synced.

    On a full disk nothing has changed yet, unless ``is_installed``.
    """
    vfs.sync_dir(directory)
    _make_links(vfs, directory, numbers)
    _replace_first(vfs, directory, numbers)
    _replace_others(vfs, directory, numbers)
    vfs.unlink(f"{directory}/{compacting_name(numbers)}")
    vfs.sync_dir(directory)


def is_installed(vfs: Vfs, directory: str, numbers: Sequence[int]) -> bool:
    """Whether the point of no return lies behind a group that is not finished."""
    compacting = f"{directory}/{compacting_name(numbers)}"
    return _same_inode(vfs, compacting, f"{directory}/{segment_name(numbers[0])}")


def _make_links(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
    links = [_link(directory, number) for number in numbers]
    for link in links:
        if vfs.stat(link) is not None:
            vfs.unlink(link)
    for link in links[1:]:
        vfs.symlink(segment_name(numbers[0]), link)
    # The last one: from two links on recovery goes forward, even if this run was given up.
    if not is_installed(vfs, directory, numbers):
        vfs.link(f"{directory}/{compacting_name(numbers)}", links[0])


def _replace_first(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
    if not is_installed(vfs, directory, numbers):
        target = f"{directory}/{segment_name(numbers[0])}"
        vfs.rename(_link(directory, numbers[0]), target)
    vfs.sync_dir(directory)


def _replace_others(vfs: Vfs, directory: str, numbers: Sequence[int]) -> None:
    for number in numbers[1:]:
        vfs.rename(_link(directory, number), f"{directory}/{segment_name(number)}")
    if len(numbers) > 1:
        vfs.sync_dir(directory)


def _link(directory: str, number: int) -> str:
    return f"{directory}/{number:016d}{LINK_SUFFIX}"


def _same_inode(vfs: Vfs, path: str, other: str) -> bool:
    first, second = vfs.stat(path), vfs.stat(other)
    return first is not None and second is not None and first.inode == second.inode


def recover_groups(vfs: Vfs, directory: str) -> int:
    """Finish or undo whatever compaction a crash interrupted; returns how many were found."""
    found = [name for name in vfs.list_dir(directory) if name.endswith(COMPACTING_SUFFIX)]
    for name in found:
        path = f"{directory}/{name}"
        status = vfs.stat(path)
        if status is not None and status.links >= 2:
            numbers = [int(part) for part in name.removesuffix(COMPACTING_SUFFIX).split("-")]
            install_group(vfs, directory, numbers)
        else:
            vfs.unlink(path)
    leftovers = [name for name in vfs.list_dir(directory) if name.endswith(LINK_SUFFIX)]
    for name in leftovers:
        vfs.unlink(f"{directory}/{name}")
    if found or leftovers:
        vfs.sync_dir(directory)
    return len(found)


def remove_symlinks(vfs: Vfs, directory: str) -> int:
    """Delete the links that stand for merged segments; nobody may be reading through them."""
    count = 0
    for name in vfs.list_dir(directory):
        path = f"{directory}/{name}"
        if not name.endswith(SEGMENT_SUFFIX):
            continue
        status = vfs.stat(path)
        if status is not None and status.kind is FileKind.SYMLINK:
            vfs.unlink(path)
            count += 1
    return count
