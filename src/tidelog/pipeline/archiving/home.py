"""The directory of an archive, as the one job sees it that may write there.

D1  the manifest moves only when its files and their names are durable
D2  files that the manifest does not name are removed before anything is written
D3  one job at a time
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import BadOption, CorruptData, LogLocked
from tidelog.formats.archive_manifest import (
    ArchivedFile,
    ArchiveManifest,
    encode_archive_manifest,
    is_archived_name,
)
from tidelog.spark.archive_directory import LOCK, MANIFEST, check_origin, read_manifest
from tidelog.spark.archive_files import check_file, last_row
from tidelog.storage.atomic_file import remove_temporaries, replace_file
from tidelog.storage.vfs import Vfs


class ArchiveHome:
    """An archive that is being written; made by ``locked_home``."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self.directory = directory

    def open(self, new: ArchiveManifest) -> tuple[ArchiveManifest, int]:
        """What the archive holds, and how many leftovers were removed.

        ``new`` is the manifest of an archive that begins now, if there is none yet.
        """
        found = self.manifest()
        if found is None:
            self._check_unused()
            found = new
            self._replace(found)
        check_origin(found, self.directory, new.log_id, new.topic)
        return found, self._remove_leftovers(found)

    def manifest(self) -> ArchiveManifest | None:
        """What is on disk."""
        return read_manifest(self._vfs, self.directory)

    def last_row(self, manifest: ArchiveManifest, columns: Sequence[str]) -> Any:
        """Some columns of the last entry that is archived, as a table; None if none is."""
        for file in reversed(manifest.files):
            if file.rows:
                return last_row(self._vfs, self.directory, file, columns)
        return None

    def add(
        self, manifest: ArchiveManifest, files: Sequence[ArchivedFile], horizon: DeleteHorizon
    ) -> ArchiveManifest:
        """Make files, each of them durable, a part of the archive (D1)."""
        extended = manifest.extended(files, horizon)
        for file in files:
            found = self._vfs.stat(f"{self.directory}/{file.name}")
            if found is None or found.size != file.size:
                raise CorruptData(
                    f"{self.directory}/{file.name} is not what a task has written: all machines "
                    "of the job must see the same directory"
                )
        self._sync_names()
        self._replace(extended)
        return extended

    def check(self, files: Sequence[ArchivedFile]) -> None:
        """Read files back; CorruptData unless each is what the manifest says."""
        for file in files:
            check_file(self._vfs, self.directory, file)

    def _sync_names(self) -> None:
        self._vfs.sync_dir(self.directory)

    def _replace(self, manifest: ArchiveManifest) -> None:
        replace_file(self._vfs, self.directory, MANIFEST, encode_archive_manifest(manifest))

    def _check_unused(self) -> None:
        """A new archive begins in a directory of its own."""
        strange = [name for name in self._vfs.list_dir(self.directory) if name[0] not in "_."]
        if strange:
            raise BadOption(
                f"{self.directory} holds something else than an archive, {strange[0]} for one: "
                "use another directory"
            )

    def _remove_leftovers(self, manifest: ArchiveManifest) -> int:
        """D2: what a crash left, or a task that ran twice."""
        remove_temporaries(self._vfs, self.directory)
        named = {file.name for file in manifest.files}
        found = [
            name
            for name in self._vfs.list_dir(self.directory)
            if is_archived_name(name) and name not in named
        ]
        for name in found:
            self._vfs.unlink(f"{self.directory}/{name}")
        return len(found)


@contextmanager
def locked_home(vfs: Vfs, directory: str) -> Iterator[ArchiveHome]:
    """The archive in an existing directory, for one job alone (D3)."""
    try:
        lock = vfs.lock(f"{directory}/{LOCK}")
    except BlockingIOError as error:
        raise LogLocked(f"another job writes to the archive in {directory}") from error
    try:
        yield ArchiveHome(vfs, directory)
    finally:
        lock.release()
