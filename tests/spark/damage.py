"""Damage in the files of a node that is down, and in the write-ahead log of one that is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog.formats.batch import Batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.formats.manifest import decode_manifest
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.segment_content import SegmentContent, write_segment_file
from tidelog.storage.segment_file import SegmentReader

Change = Callable[[list[tuple[int, Entry]]], list[tuple[int, Entry]]]
"""Of the entries of a batch, with their LLSNs."""


def segments_of(directory: Path, stream: int) -> list[Path]:
    """The segments of a replica, the oldest first."""
    return sorted((directory / "streams").glob(f"{stream:016d}*/*.segment"))


def flip_byte(path: Path, place: int) -> None:
    """Change one bit where a file holds something."""
    with path.open("r+b") as file:
        file.seek(place)
        [byte] = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 8]))


def rewrite_segment(
    directory: Path,
    path: Path,
    *,
    change: Change = lambda entries: entries,
    shift_glsns: int = 0,
) -> tuple[int, int]:
    """Write a segment anew, with other entries or GLSNs and sound checksums; returns its LLSNs."""
    reader = SegmentReader.open(OsVfs(), str(path))
    try:
        footer, log_id = reader.footer, reader.log_id
        batches = [_changed(one, change) for one in reader.read_blocks(1, 1 << 62)]
        runs = footer.runs.slices(1, 1 << 62)
    finally:
        reader.close()
    path.unlink()
    content = SegmentContent(
        number=footer.number,
        stream=footer.stream,
        log_id=log_id,
        batches=[batch for batch in batches if batch],
        runs=GlsnRuns([(llsn, glsn + shift_glsns, length) for llsn, glsn, length in runs]),
        hash_seed=decode_manifest((directory / "manifest").read_bytes()).hash_seed,
    )
    write_segment_file(OsVfs(), str(path), content)
    return footer.first_llsn, footer.end_llsn


def _changed(batch: Batch, change: Change) -> bytes:
    entries = change(list(zip(batch.llsns(), batch.entries(), strict=True)))
    if not entries:
        return b""
    llsns: Sequence[int] = [llsn for llsn, _ in entries]
    dense = llsns[-1] - llsns[0] + 1 == len(llsns)
    body = encode_entries(
        [entry for _, entry in entries],
        rewritten=batch.rewritten,
        llsns=None if dense else llsns,
    )
    header = seal_batch(body, stream=batch.stream, term=batch.term, first_llsn=llsns[0])
    return header + bytes(body.data)
