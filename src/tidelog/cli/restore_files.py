"""Copies a datastore into a new directory, and checks the copy before it gets its name.

C1  the source is locked, and nothing else in it is changed
C2  all work is done beside the target; the target's name appears last, on a copy that is durable,
    checked, and holds nothing of an epoch that was not group-committed
C3  whatever goes wrong, nothing is left that could be mistaken for a datastore
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.cli.verify_files import Verification
from tidelog.datastore.epoch_store import DATASTORE_TOPIC, EpochStore
from tidelog.embedded.options import Options
from tidelog.errors import BadOption, CorruptData, LogLocked, NotALog
from tidelog.formats.manifest import decode_manifest
from tidelog.limits import MIB
from tidelog.storage.atomic_file import TEMPORARY_SUFFIX
from tidelog.storage.log_directory import LOCK_NAME
from tidelog.storage.node_store import MANIFEST_NAME
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.vfs import File, FileKind, FileStat

_WORK_SUFFIX: Final = ".restoring"
_COPY_BYTES: Final = MIB
_PROBLEMS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Restored:
    """What is in the new directory."""

    configuration_id: str
    epoch: int
    boundary: int
    channels: int
    entries: int
    """The newest write of each key that was not deleted."""
    blobs: int
    """That these entries refer to."""
    files: int
    bytes: int


def restore(source: str, target: str, on_bytes: Callable[[int], None]) -> Restored:
    """Copy the datastore at ``source`` to ``target``; ``on_bytes`` is told how much is copied."""
    origin, goal = Path(source).resolve(), Path(target).absolute()
    _check_source(origin)
    _check_target(origin, goal)
    with _locked(origin), _work_place(goal) as work:
        copying = Copying(on_bytes)
        copying.copy_directory(str(origin), str(work))
        _verify(work)
        restored = _open(work, copying)
        vfs = OsVfs()
        vfs.sync_dir(str(work))
        vfs.rename(str(work), str(goal))
        vfs.sync_dir(str(goal.parent))
    return restored


def _check_source(origin: Path) -> None:
    manifest = origin / MANIFEST_NAME
    if not manifest.is_file():
        raise NotALog(f"there is no datastore at {origin}")
    topics = [topic.name for topic in decode_manifest(manifest.read_bytes()).topics]
    if DATASTORE_TOPIC not in topics:
        raise NotALog(f"{origin} holds a log, but no datastore: copy it with `cp -a`")


def _check_target(origin: Path, goal: Path) -> None:
    if goal.is_symlink() or (goal.exists() and not goal.is_dir()):
        raise BadOption(f"{goal} is not a directory: name a new one")
    if goal.is_dir() and any(goal.iterdir()):
        raise BadOption(f"{goal} is not empty: name a new directory, or an empty one")
    if goal.is_mount():  # Nothing can be renamed to it, which would show after the copy only.
        raise BadOption(f"{goal} is a mount point: name a new directory in it")
    if goal.resolve().is_relative_to(origin):
        raise BadOption(f"{goal} lies inside {origin}: name a directory elsewhere")
    if not goal.parent.is_dir():
        raise BadOption(f"there is no directory {goal.parent}: make it first")


@contextmanager
def _locked(origin: Path) -> Iterator[None]:
    """Keep everybody else from changing the source (C1)."""
    lock = None
    if (origin / LOCK_NAME).exists():
        try:
            lock = OsVfs().lock(str(origin / LOCK_NAME))
        except BlockingIOError as error:
            raise LogLocked(
                f"{origin} is open in another process ({error}): close it there first"
            ) from error
        except OSError:
            pass  # It cannot be written to, so nobody has it open for writing.
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


@contextmanager
def _work_place(goal: Path) -> Iterator[Path]:
    """A new directory beside the target, which is gone afterwards if it was not renamed (C3)."""
    work = goal.with_name(f".{goal.name}{_WORK_SUFFIX}")
    try:
        work.mkdir(0o700)
    except FileExistsError:
        raise BadOption(
            f"{work} is there: if no other restore is under way, delete it and try again"
        ) from None
    try:
        yield work
    finally:
        if work.is_dir():
            _remove(work)


def _remove(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    directory.rmdir()


class Copying:
    """Copies files and links, each durable with its name."""

    def __init__(self, on_bytes: Callable[[int], None]) -> None:
        self._vfs = OsVfs()
        self._on_bytes = on_bytes
        self._copied: dict[int, str] = {}
        """Inode of a file with several names → its first copy: names of one file stay so."""
        self.files = 0
        self.bytes = 0

    def copy_directory(self, source: str, target: str) -> None:
        """All that belongs to the store, and all below it; ``target`` exists."""
        for name in self._vfs.list_dir(source):
            found = self._vfs.stat(f"{source}/{name}")
            if found is None or name == LOCK_NAME or name.endswith(TEMPORARY_SUFFIX):
                continue
            self._copy(f"{source}/{name}", f"{target}/{name}", found)
        self._vfs.sync_dir(target)

    def _copy(self, source: str, target: str, found: FileStat) -> None:
        match found.kind:
            case FileKind.DIRECTORY:
                self._vfs.make_dir(target)
                self.copy_directory(source, target)
            case FileKind.SYMLINK:
                self._vfs.symlink(_neighbour(source), target)
            case FileKind.FILE if found.inode in self._copied:
                self._vfs.link(self._copied[found.inode], target)
            case FileKind.FILE:
                self._copy_file(source, target)
                if found.links > 1:
                    self._copied[found.inode] = target

    def _copy_file(self, source: str, target: str) -> None:
        reader = self._vfs.open(source)
        try:
            writer = self._vfs.create(target)
            try:
                self._copy_bytes(reader, writer, source)
                writer.sync()
            finally:
                writer.close()
        finally:
            reader.close()
        self.files += 1

    def _copy_bytes(self, reader: File, writer: File, source: str) -> None:
        size, offset = reader.size(), 0
        while data := reader.read_at(offset, _COPY_BYTES):
            writer.write_at(offset, (data,))
            offset += len(data)
            self.bytes += len(data)
            self._on_bytes(self.bytes)
        if offset != size or writer.size() != size:
            raise CorruptData(f"{source} changed while it was copied")


def _neighbour(link: str) -> str:
    """What a merged segment's name stands for; any other link would tie the copy to the source."""
    name = str(Path(link).readlink())
    if "/" in name or name == "..":
        raise BadOption(
            f"{link} leads to {name}, out of its directory: copy the datastore with `cp -aL` first"
        )
    return name


def _verify(work: Path) -> None:
    """Every checksum of every file of the copy."""
    with Verification(str(work), 0) as verification:
        problems = [found for found in verification.run(deep=False) if found.problem]
    if problems:
        shown = "; ".join(f"{found.name}: {found.problem}" for found in problems[:_PROBLEMS_SHOWN])
        raise CorruptData(f"nothing was restored, the datastore is damaged: {shown}")


def _open(work: Path, copying: Copying) -> Restored:
    """Drop what was not group-committed, as every opening does, and look at all that is left."""
    store = EpochStore(OsVfs(), str(work), Options(background=False), create=False)
    try:
        entries, blobs = 0, set[int]()
        for entry in store.entries():
            entries += 1
            blobs.update(entry.blobs)
        _check_blobs(store, sorted(blobs))
        return Restored(
            configuration_id=store.configuration_id,
            epoch=store.epoch,
            boundary=store.boundary,
            channels=store.channels,
            entries=entries,
            blobs=len(blobs),
            files=copying.files,
            bytes=copying.bytes,
        )
    finally:
        store.close()


def _check_blobs(store: EpochStore, blobs: Sequence[int]) -> None:
    """Every BLOB that an entry refers to must be there, and whole."""
    missing = [blob for blob in blobs if store.blobs.size(blob) is None]
    if missing:
        raise CorruptData(
            f"nothing was restored: {len(missing)} BLOBs are missing, BLOB {missing[0]} "
            "is the first"
        )
    for blob in blobs:
        try:
            with store.blobs.open(blob) as reader:
                reader.check()
        except CorruptData as error:
            raise CorruptData(f"nothing was restored: {error}") from error
