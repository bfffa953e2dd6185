"""Checks the files of an open node byte by byte, a few at a time.  No state.

What memory holds is not looked at: a write-ahead log that was damaged after it was written harms
nobody until the node starts again, and then it is too late to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from tidelog.errors import CorruptData
from tidelog.formats.audit_messages import CheckedFile, FilesChecked
from tidelog.formats.wal import FILE_HEADER_BYTES, Verdict, decode_file_header, scan_file
from tidelog.limits import CHECKED_FILES_MAX, MIB
from tidelog.storage.node_store import WAL_DIRECTORY, NodeStore
from tidelog.storage.scrub import scrub_segment
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.wal import wal_path

BYTES: Final = 64 * MIB
"""About how much is checked for one question, unless one file is larger."""
PROBLEM_CHARS_MAX: Final = 1_000


def check_wal(node: NodeStore, first: int) -> FilesChecked:
    """The files of the write-ahead log that are still needed, from number ``first`` on."""
    numbers = range(max(first, node.manifest.wal_file), node.wal.number + 1)
    return _checked(numbers, lambda number: _check_wal_file(node, number))


def check_segments(node: NodeStore, store: StreamStore, first: int) -> FilesChecked:
    """The segments of a replica from number ``first`` on, and that live entries are all there."""
    with store.pins.pinned():
        segments = {one.number: one for one in store.view.segments if one.number >= first}

        def check(number: int) -> CheckedFile:
            segment = segments[number]
            found = scrub_segment(store, segment)
            name = str(PurePath(segment.path).relative_to(node.path))
            problem = found.problem.removeprefix(f"{segment.path}: ")
            return CheckedFile(name, segment.size, problem[:PROBLEM_CHARS_MAX])

        return _checked(sorted(segments), check)


def _checked(numbers: Sequence[int], check: Callable[[int], CheckedFile | None]) -> FilesChecked:
    files: list[CheckedFile] = []
    size = 0
    for number in numbers:
        if size >= BYTES or len(files) >= CHECKED_FILES_MAX:
            return FilesChecked(tuple(files), number)
        found = check(number)
        if found is not None:
            files.append(found)
            size += found.bytes
    return FilesChecked(tuple(files), 0)


def _check_wal_file(node: NodeStore, number: int) -> CheckedFile | None:
    """None if the file was done with meanwhile: it may be written to again."""
    name = f"{WAL_DIRECTORY}/{PurePath(wal_path('', number)).name}"
    data, problem = b"", ""
    try:
        end = _end_of(node, number)  # First: all frames below it can be read from now on.
        data = _read(node, number)
        problem = flaw_in_wal(data, number, node.manifest.log_id, end)
    except CorruptData as error:
        problem = str(error)
    if number < node.manifest.wal_file:
        return None
    return CheckedFile(name, len(data), problem[:PROBLEM_CHARS_MAX])


def flaw_in_wal(data: bytes, number: int, log_id: bytes, end: int) -> str:
    """What is wrong with a file that must hold all frames below ``end``; empty if nothing is."""
    header = decode_file_header(data)
    if header.log_id != log_id or header.number != number:
        return f"it says that it is file {header.number} of log {header.log_id.hex()}"
    scan = scan_file(data, header)
    if scan.verdict is Verdict.CORRUPT:
        return scan.detail
    if scan.next_sequence < end:
        return f"{scan.detail}, but frames {scan.next_sequence} to {end - 1} were durable"
    return ""


def _end_of(node: NodeStore, number: int) -> int:
    """The sequence below which a file must hold all frames: where the next one begins, if any."""
    durable = node.wal.sequence  # Before the number: a roll may come in between.
    if number >= node.wal.number:
        return durable
    try:
        return decode_file_header(_read(node, number + 1, FILE_HEADER_BYTES)).first_sequence
    except CorruptData:
        return 0  # The check of the next file tells that.


def _read(node: NodeStore, number: int, length: int | None = None) -> bytes:
    file = node.vfs.open(wal_path(f"{node.path}/{WAL_DIRECTORY}", number))
    try:
        return file.read_at(0, file.size() if length is None else length)
    finally:
        file.close()
