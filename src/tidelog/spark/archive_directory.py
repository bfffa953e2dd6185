"""Where an archive lies: the names of its files, and its manifest read from disk.  No state.

_manifest                          what the archive holds
<begin>-<token>.parquet            entries of a range of GLSNs
_lock                              held by the job that writes
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tidelog.errors import CorruptData, WrongLog
from tidelog.formats.archive_manifest import ArchiveManifest, decode_archive_manifest
from tidelog.limits import ARCHIVE_MANIFEST_BYTES_MAX, KIB
from tidelog.storage.atomic_file import read_file
from tidelog.storage.vfs import Vfs

MANIFEST: Final = "_manifest"
LOCK: Final = "_lock"
_ENVELOPE_BYTES_MAX: Final = KIB


def read_manifest(vfs: Vfs, directory: str) -> ArchiveManifest | None:
    """What the archive in a directory holds now; None if there is none."""
    path = f"{directory}/{MANIFEST}"
    data = read_file(vfs, path, ARCHIVE_MANIFEST_BYTES_MAX + _ENVELOPE_BYTES_MAX)
    if data is None:
        return None
    try:
        return _decoded(data)
    except CorruptData as error:
        raise type(error)(
            f"{path}: {error}; put the manifest back from a backup of the archive"
        ) from error


@lru_cache(maxsize=4)
def _decoded(data: bytes) -> ArchiveManifest:
    """A query asks twice a second, and the same bytes mean the same."""
    return decode_archive_manifest(data)


def check_origin(manifest: ArchiveManifest, directory: str, log_id: str, topic: str) -> None:
    """Raise unless the archive was made from this topic of this log."""
    if (manifest.log_id, manifest.topic) != (log_id, topic):
        raise WrongLog(
            f"the archive in {directory} was made from topic {manifest.topic!r} of log "
            f"{manifest.log_id}, not from topic {topic!r} of log {log_id}: use another directory"
        )
