"""The manifest of an archive: which Parquet files hold which part of a topic.  No state.

An archive is what its manifest says; a file that is not in it is no part of the archive.

  A1  the files lie one behind the other, from the archive's beginning on, without a gap
  A2  a file has at most one row for each GLSN of its range
  A3  names are those of ``archived_name``, each used once
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.formats.message_fields import Natural, Streams
from tidelog.invariants import check
from tidelog.limits import ARCHIVE_MANIFEST_BYTES_MAX

_MAGIC: Final = b"TLAM"
_VERSION: Final = 1
_NAME: Final = re.compile(r"\d{20}-[0-9a-z-]{1,64}\.parquet", re.ASCII)
_END: Final = attrgetter("glsn_end")

Glsn: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class ArchivedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A Parquet file with all entries of ``[glsn_begin, glsn_end)`` that the log had then."""

    name: str
    glsn_begin: Glsn
    glsn_end: Glsn
    rows: Natural
    size: Natural
    """Bytes of the file."""
    crc: Natural
    """CRC-32C of these bytes."""
    data_bytes: Natural
    """What its columns have in memory: the measure for reads that are bounded by bytes."""
    streams: Streams
    """The log streams that its entries are from."""
    first_keyed: Natural = 0
    """GLSN of its first entry that compaction looks at (PUT and deletes); 0 if it has none."""
    oldest_us: int = 0
    """The smallest timestamp of its entries, in microseconds."""


class ArchiveManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an archive holds: the entries of one topic in ``[glsn_begin, glsn_end)``."""

    log_id: str
    topic: str
    glsn_begin: Glsn
    dropped_deletes: Natural = 0
    """How many deletes the log had dropped, as far as that does not concern the archive (H5)."""
    missed_before: Glsn = 1
    """Deletes below this GLSN may be missing, which the log dropped before they were archived."""
    files: tuple[ArchivedFile, ...] = ()

    @property
    def glsn_end(self) -> int:
        """The first GLSN that is not archived."""
        return self.files[-1].glsn_end if self.files else self.glsn_begin

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def between(self, begin: int, end: int) -> Sequence[ArchivedFile]:
        """The files that have a part of ``[begin, end)``."""
        first = bisect_right(self.files, begin, key=_END)
        last = first
        while last < len(self.files) and self.files[last].glsn_begin < end:
            last += 1
        return self.files[first:last]

    def extended(self, files: Sequence[ArchivedFile], horizon: DeleteHorizon) -> ArchiveManifest:
        """The manifest with more files; ``horizon`` is the log's, asked after they were read."""
        missed = horizon.is_missed_by(self.glsn_end, self.dropped_deletes)
        return replace(
            self,
            files=(*self.files, *files),
            # Deletes that are known to be missing need not be noticed again.
            dropped_deletes=horizon.dropped if missed else self.dropped_deletes,
            missed_before=max(self.missed_before, horizon.glsn) if missed else self.missed_before,
        )


def archived_name(glsn_begin: int, token: str) -> str:
    """The name of a file; names sort as the files do, and the token makes it a new one."""
    return f"{glsn_begin:020d}-{token}.parquet"


def is_archived_name(name: str) -> bool:
    """Whether a file of an archive may be called so; any other file is somebody else's."""
    return _NAME.fullmatch(name) is not None


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(ArchiveManifest)


def encode_archive_manifest(manifest: ArchiveManifest) -> bytes:
    """The whole file: a sealed envelope around JSON."""
    fault = _fault(manifest)
    check(fault is None, fault or "")
    body = _ENCODER.encode(manifest)
    check(len(body) <= ARCHIVE_MANIFEST_BYTES_MAX, "the manifest is small enough to be read back")
    return seal(_MAGIC, _VERSION, body)


def decode_archive_manifest(data: bytes | memoryview) -> ArchiveManifest:
    """The manifest in exactly these bytes."""
    what = "archive manifest"
    body = unseal(_MAGIC, _VERSION, data, what=what, max_length=ARCHIVE_MANIFEST_BYTES_MAX)
    try:
        manifest = _DECODER.decode(body)
    except ValueError as error:
        raise CorruptData(f"{what}: {error}") from error
    fault = _fault(manifest)
    if fault is not None:
        raise CorruptData(f"{what}: {fault}")
    return manifest


def _fault(manifest: ArchiveManifest) -> str | None:
    """What is wrong with it; None if nothing is."""
    files = manifest.files
    if files and files[0].glsn_begin != manifest.glsn_begin:
        return f"A1: the first file begins at GLSN {files[0].glsn_begin}"
    for file, following in pairwise(files):
        if following.glsn_begin != file.glsn_end:
            return f"A1: {following.name} does not begin where {file.name} ends"
    for file in files:
        if not 0 < file.glsn_end - file.glsn_begin >= file.rows:
            return f"A2: {file.name} has {file.rows} rows"
        if not is_archived_name(file.name):
            return f"A3: {file.name!r} is no name of a file of an archive"
    if len({file.name for file in files}) < len(files):
        return "A3: a name is used twice"
    return None
