"""How far the log may be trimmed behind an archive.

T1  nothing is trimmed that is not in the manifest on disk, or whose file does not match it
T2  no entry with a key is trimmed: it may be the value of its key, or a delete that an older
    write with an explicit version still needs (L5).  Compaction removes what is dead among
    them, and ``rewrite`` moves the rest out of the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pyarrow import compute

from tidelog.formats.archive_manifest import ArchivedFile, ArchiveManifest
from tidelog.pipeline.archiving.topic import ArchivableTopic

_COLUMNS: Final = ("glsn", "kind")
_UNKEYED: Final = "APPEND"


@dataclass(frozen=True, slots=True)
class Trimming:
    """What became of a trim."""

    first_available: int
    kept_for_keys: bool = False


def trim_behind(
    topic: ArchivableTopic,
    manifest: ArchiveManifest,
    keep: int,
    check_files: Callable[[Sequence[ArchivedFile]], None],
) -> Trimming:
    """Forget what is archived, but for the last ``keep`` positions and all from the first key on.

    ``manifest`` was read from disk, and ``check_files`` reads its files back.
    """
    first = topic.first_available
    wanted = max(manifest.glsn_end - keep, first)
    end = _first_keyed(topic, manifest, first, wanted)
    if end > first:
        check_files(manifest.between(first, end))
        first = topic.trim(end)
    return Trimming(first, kept_for_keys=end < wanted)


def _first_keyed(topic: ArchivableTopic, manifest: ArchiveManifest, begin: int, end: int) -> int:
    """The first GLSN in ``[begin, end)`` of an entry with a key that the log has; else ``end``.

    The log has nothing that the archive has not: only files with keys have to be looked for.
    """
    for file in manifest.between(begin, end):
        if not file.first_keyed:
            continue
        first, last = max(begin, file.first_keyed), min(end, file.glsn_end)
        if first < last:
            found = _search(topic, first, last)
            if found is not None:
                return found
    return end


def _search(topic: ArchivableTopic, begin: int, end: int) -> int | None:
    for batch in topic.read_arrow(begin, end, columns=_COLUMNS):
        keyed = batch.filter(compute.not_equal(batch.column("kind"), _UNKEYED))
        if keyed.num_rows:
            return int(keyed.column("glsn")[0].as_py())
    return None
