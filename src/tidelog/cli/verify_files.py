"""Checks a log's directory file by file, then as a whole; changes nothing.

What a file says of itself is checked file by file, so that one that is damaged hides no other.
What the files say of one another (gaps in the WAL, entries that no file holds) shows when the log
is opened, by the rules of recovery itself.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final, Self

from tidelog.cli.file_finding import FileFinding
from tidelog.cli.session import opened_for_reading
from tidelog.cli.verify_whole import check_deeply, check_replicas
from tidelog.errors import CorruptData, LogError, LogLocked, NotALog
from tidelog.formats.batch import decode_batch
from tidelog.formats.live_index import decode_live_index
from tidelog.formats.manifest import Manifest, decode_manifest
from tidelog.formats.replica_records import (
    decode_carry,
    decode_filled,
    decode_hard_state,
    decode_order,
    decode_reset,
)
from tidelog.formats.snapshot import decode_snapshot
from tidelog.formats.wal import Frame, RecordType, Verdict, decode_file_header, scan_file
from tidelog.formats.wal_payloads import (
    decode_boundary,
    decode_cut,
    decode_staged_batch,
    decode_trim,
    decode_truncate,
)
from tidelog.invariants import InvariantViolation
from tidelog.storage.log_directory import LOCK_NAME
from tidelog.storage.node_store import MANIFEST_NAME, STREAMS_DIRECTORY, WAL_DIRECTORY
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.segment_file import SegmentReader
from tidelog.storage.stage_files import STAGES_DIRECTORY
from tidelog.storage.vfs import Lock
from tidelog.storage.wal_recovery import holds_any_frame

_POLL_SECONDS: Final = 0.05
_REPLICA_RECORDS: Final[dict[RecordType, Callable[[memoryview], object]]] = {
    RecordType.HARD_STATE: decode_hard_state,
    RecordType.RESET: decode_reset,
    RecordType.ORDER: decode_order,
    RecordType.FILLED: decode_filled,
    RecordType.CARRY: decode_carry,
}
_UNNEEDED_STAGE: Final = "nothing refers to it; the next opening removes it"
_LEFTOVERS: Final = {
    ".tmp": "left by an interrupted write; the next opening removes it",
    ".compacting": "left by an interrupted compaction; the next opening finishes or removes it",
    ".link": "left by an interrupted compaction; the next opening removes it",
    ".spare": "a WAL file to be used again",
}


class Verification:
    """Holds the log's lock where it can, so that nobody changes files meanwhile."""

    def __init__(self, data: str, wait: float) -> None:
        self._root = Path(data).absolute()
        self.path = str(self._root)
        self._wait = wait
        self._vfs = OsVfs()
        self._lock: Lock | None = None
        self._manifest: Manifest | None = None

    def __enter__(self) -> Self:
        known = (MANIFEST_NAME, WAL_DIRECTORY, STREAMS_DIRECTORY)
        if not any((self._root / name).exists() for name in known):
            raise NotALog(f"there is no log at {self.path}")
        if (self._root / LOCK_NAME).exists():
            self._lock = self._take_lock()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()

    def _take_lock(self) -> Lock | None:
        deadline = monotonic() + self._wait
        while True:
            try:
                return self._vfs.lock(str(self._root / LOCK_NAME))
            except BlockingIOError as error:
                if monotonic() >= deadline:
                    raise LogLocked(
                        f"{self.path} is open in another process ({error}): close it there first"
                    ) from error
            except OSError:
                return None  # It cannot be written to, so nobody has it open for writing.
            Event().wait(_POLL_SECONDS)

    def run(self, *, deep: bool) -> Iterator[FileFinding]:
        yield self._check(self._root / MANIFEST_NAME, "manifest", self._read_manifest)
        yield from self._check_wal()
        yield from self._check_streams()
        yield from self._check_whole(deep)

    # -- file by file ---------------------------------------------------------------------------

    def _check(
        self, path: Path, kind: str, read: Callable[[Path], tuple[int | None, str]]
    ) -> FileFinding:
        """``read`` returns the number of entries and a note, or raises what is wrong."""
        name = str(path.relative_to(self._root))
        size = 0
        try:
            size = path.lstat().st_size
            entries, note = read(path)
        except FileNotFoundError:
            return FileFinding(kind, name, problem="it is missing")
        except (LogError, OSError) as error:
            text = str(error).removeprefix(f"{path}: ")
            return FileFinding(kind, name, bytes=size, problem=text)
        return FileFinding(kind, name, entries, size, note=note)

    def _read_manifest(self, path: Path) -> tuple[int | None, str]:
        manifest = self._manifest = decode_manifest(path.read_bytes())
        return None, f"{len(manifest.topics)} topics, {len(manifest.streams)} streams"

    def _check_wal(self) -> Iterator[FileFinding]:
        directory = self._root / WAL_DIRECTORY
        if not directory.is_dir():
            yield FileFinding("wal", WAL_DIRECTORY, problem="the directory is missing")
            return
        files = sorted(directory.iterdir())
        numbered = [path for path in files if path.suffix == ".wal" and _is_number(path.stem)]
        for path in files:
            if path in numbered:
                read = self._read_last_wal if path == numbered[-1] else self._read_wal
                yield self._check(path, "wal", read)
            else:
                yield self._other(path)

    def _read_last_wal(self, path: Path) -> tuple[int | None, str]:
        try:
            decode_file_header(path.read_bytes())
        except CorruptData:
            if holds_any_frame(self._vfs, str(path)):
                raise
            return 0, "it never held a frame; the next opening removes it"
        return self._read_wal(path)

    def _read_wal(self, path: Path) -> tuple[int | None, str]:
        data = path.read_bytes()
        header = decode_file_header(data)
        if self._manifest is not None and header.log_id != self._manifest.log_id:
            raise CorruptData(f"it belongs to another log ({header.log_id.hex()})")
        if header.number != int(path.stem):
            raise CorruptData(f"it says that it is file {header.number}")
        scan = scan_file(data, header)
        entries = sum(entries_in(frame) for frame in scan.frames)
        if scan.verdict is Verdict.CORRUPT:
            raise CorruptData(f"{scan.detail}; {len(scan.frames)} frames before it are sound")
        if self._manifest is not None and header.number < self._manifest.wal_file:
            return entries, "no longer needed"
        torn = scan.verdict is Verdict.TORN
        return entries, "ends in a write that was cut short" if torn else ""

    def _check_stages(self, needed: Container[str] | None) -> Iterator[FileFinding]:
        """``needed``: the files that the log knows; None if it does not open."""
        directory = self._root / STAGES_DIRECTORY
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            if needed is None or str(path) in needed:
                yield self._check(path, "stage", self._read_stage)
            else:
                yield self._check(path, "other", lambda _: (None, _UNNEEDED_STAGE))

    def _read_stage(self, path: Path) -> tuple[int | None, str]:
        data = memoryview(path.read_bytes())
        offset = entries = 0
        while offset < len(data):
            batch = decode_batch(data, offset)
            offset += batch.length
            entries += batch.count
        return entries, ""

    def _check_streams(self) -> Iterator[FileFinding]:
        directory = self._root / STREAMS_DIRECTORY
        known = {stream.stream for stream in self._manifest.streams} if self._manifest else set()
        present = sorted(directory.iterdir()) if directory.is_dir() else []
        for stream in sorted(known - {int(p.name) for p in present if _is_number(p.name)}):
            name = f"{STREAMS_DIRECTORY}/{stream:016d}"
            yield FileFinding("stream", name, problem="the directory is missing")
        for place in present:
            if not place.is_dir():
                yield self._other(place)
                continue
            for path in sorted(place.iterdir()):
                yield self._check_stream_file(path)

    def _check_stream_file(self, path: Path) -> FileFinding:
        if path.suffix == ".segment" and path.is_symlink():
            name = str(path.relative_to(self._root))
            return FileFinding("other", name, note="stands for a segment that was merged")
        readers = {
            ".segment": self._read_segment,
            ".snapshot": self._read_snapshot,
            ".live": self._read_live,
        }
        if path.suffix in readers:
            return self._check(path, path.suffix[1:], readers[path.suffix])
        return self._other(path)

    def _other(self, path: Path) -> FileFinding:
        note = _LEFTOVERS.get(path.suffix, "not a file of the log")
        return self._check(path, "other", lambda _: (None, note))

    def _read_segment(self, path: Path) -> tuple[int | None, str]:
        reader = SegmentReader.open(self._vfs, str(path))
        try:
            if self._manifest is not None and reader.log_id != self._manifest.log_id:
                raise CorruptData(f"it belongs to another log ({reader.log_id.hex()})")
            stream = path.parent.name.partition(".")[0]
            if f"{reader.stream:016d}/{reader.number:016d}" != f"{stream}/{path.stem}":
                text = f"it says that it is segment {reader.number} of stream {reader.stream}"
                raise CorruptData(text)
            checked = reader.verify(self._manifest.hash_seed if self._manifest else None)
        finally:
            reader.close()
        return checked.entries, ""

    def _read_snapshot(self, path: Path) -> tuple[int | None, str]:
        snapshot = decode_snapshot(path.read_bytes())
        _check_stem(path, snapshot.term, snapshot.index)
        return snapshot.live_count, ""

    def _read_live(self, path: Path) -> tuple[int | None, str]:
        found = decode_live_index(path.read_bytes())
        _check_stem(path, found.term, found.index)
        return len(found.live), ""

    # -- as a whole -------------------------------------------------------------------------------

    def _check_whole(self, deep: bool) -> Iterator[FileFinding]:
        needed: set[str] | None = None
        try:
            if self._manifest is not None and any(s.replica for s in self._manifest.streams):
                yield from check_replicas(self.path, deep)
                return
            with opened_for_reading(self.path) as engine:
                yield FileFinding("log", ".", note="it can be opened")
                needed = set(engine.node.stages.paths())
                if deep:
                    yield from check_deeply(engine)
        except LogError as error:
            yield FileFinding("log", ".", problem=f"it cannot be opened: {error}")
        except InvariantViolation as error:
            yield FileFinding("log", ".", problem=f"it contradicts itself: {error}")
        yield from self._check_stages(needed)


def entries_in(frame: Frame) -> int:
    """How many entries a frame holds; raises CorruptData if a record in it is not sound."""
    entries = 0
    for record in frame.records:
        match record.type:
            case RecordType.BATCH:
                entries += decode_batch(record.payload).count
            case RecordType.STAGED:
                entries += decode_staged_batch(record.payload).count
            case RecordType.CUT:
                decode_cut(record.payload)
            case RecordType.TRIM:
                decode_trim(record.payload)
            case RecordType.TRUNCATE:
                decode_truncate(record.payload)
            case RecordType.BOUNDARY:
                decode_boundary(record.payload)
            case _:
                _REPLICA_RECORDS[record.type](record.payload)
    return entries


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def _check_stem(path: Path, term: int, index: int) -> None:
    if path.stem != f"{term:016x}_{index:016x}":
        raise CorruptData(f"it says that it is of term {term}, index {index}")
