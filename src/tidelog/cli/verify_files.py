"""Checks a log's directory file by file, then as a whole; changes nothing.

What a file says of itself is checked file by file, so that one that is damaged hides no other.
What the files say of one another (gaps in the WAL, entries that no file holds) shows when the log
is opened, by the rules of recovery itself.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from pyroaring import BitMap64

from tidelog.cli.read_only_disk import ReadOnlyDisk
from tidelog.cli.session import opened_for_reading
from tidelog.datastore.blob_garbage import referred_blobs
from tidelog.embedded.engine import DATASTORE_TOPIC, Engine
from tidelog.embedded.topic import Topic
from tidelog.errors import CorruptData, LogError, LogLocked, NotALog
from tidelog.formats.batch import decode_batch
from tidelog.formats.live_index import decode_live_index
from tidelog.formats.manifest import Manifest, TopicManifest, decode_manifest
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
from tidelog.limits import WAL_FILE_BYTES_DEFAULT
from tidelog.storage.blob_store import BLOBS_DIRECTORY, BlobStore
from tidelog.storage.log_directory import LOCK_NAME
from tidelog.storage.node_store import MANIFEST_NAME, STREAMS_DIRECTORY, WAL_DIRECTORY
from tidelog.storage.os_vfs import OsVfs
from tidelog.storage.recovery import StoreOptions, open_node_store
from tidelog.storage.scrub import scrub
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


@dataclass(frozen=True, slots=True)
class FileFinding:
    """What was found in one file, or about the log as a whole."""

    kind: str
    name: str
    entries: int | None = None
    bytes: int = 0
    problem: str = ""
    note: str = ""

    @property
    def is_file(self) -> bool:
        return self.kind not in ("log", "topic", "stream")

    def fields(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "entries": self.entries,
            "bytes": self.bytes,
            "problem": self.problem or None,
            "note": self.note or None,
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        numbered = [path for path in files if path.suffix == ".wal" and path.stem.isdigit()]
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
        for stream in sorted(known - {int(p.name) for p in present if p.name.isdigit()}):
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


def check_replicas(path: str, deep: bool) -> Iterator[FileFinding]:
    """The replicas of a storage node: whether each can be trusted."""
    options = StoreOptions(WAL_FILE_BYTES_DEFAULT, create=False, replicas=True)
    node = open_node_store(ReadOnlyDisk(OsVfs()), path, options)
    try:
        for stream, store in sorted(node.streams.items()):
            damage = store.replica.damage if store.replica is not None else ""
            yield FileFinding("stream", f"{stream}", store.end_llsn - 1, problem=damage)
        for finding in scrub(node) if deep else ():
            if finding.problem:
                name = str(Path(finding.path).relative_to(path))
                yield FileFinding("segment", name, problem=finding.problem)
    finally:
        node.close()


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


def _check_stem(path: Path, term: int, index: int) -> None:
    if path.stem != f"{term:016x}_{index:016x}":
        raise CorruptData(f"it says that it is of term {term}, index {index}")


# -- deeply -------------------------------------------------------------------------------------


def check_deeply(engine: Engine) -> Iterator[FileFinding]:
    """Whether live entries are all there, live indexes are right, and topics read in order."""
    for finding in scrub(engine.node):
        if finding.problem:
            name = str(Path(finding.path).relative_to(engine.path))
            yield FileFinding("segment", name, problem=finding.problem)
    for stream in sorted(engine.node.streams):
        yield _check_live(engine, stream)
    for topic in engine.node.topics.values():
        yield _check_order(engine, topic.name)
        if topic.name == DATASTORE_TOPIC:
            yield _check_blobs(engine, topic)


def _check_blobs(engine: Engine, topic: TopicManifest) -> FileFinding:
    """Every BLOB that an entry refers to must be there, and all that are there be whole."""
    try:
        blobs = BlobStore(engine.node.vfs, engine.path)
        referred = referred_blobs(engine.node, topic)
        missing = referred - BitMap64(blobs.ids())
        for blob in blobs.ids():
            with blobs.open(blob) as reader:
                reader.check()
    except LogError as error:
        return FileFinding("blobs", BLOBS_DIRECTORY, problem=str(error))
    if missing:
        text = f"BLOB {missing.min()} is missing, and {len(missing) - 1} others"
        return FileFinding("blobs", BLOBS_DIRECTORY, len(referred), problem=text)
    return FileFinding("blobs", BLOBS_DIRECTORY, len(referred), note="all that are needed")


def _check_live(engine: Engine, stream: int) -> FileFinding:
    """Every entry that is live by the entries themselves must be live by the stored indexes.

    The stored ones may hold more: what hid an older entry stays until the next snapshot.  After
    a trim they may hold less, for what was dead stays dead; and where streams share their keys,
    for what hides an entry may be in another one.
    """
    store = engine.node.streams[stream]
    name = f"{STREAMS_DIRECTORY}/{stream:016d}"
    live = len(store.snapshot.live)
    if not store.snapshot.index or store.trim_llsn_end > 1 or store.shared_keys:
        return FileFinding("stream", name, live, note="live indexes not compared")
    stem = f"{store.snapshot.term:016x}_{store.snapshot.index:016x}"
    try:
        data = Path(engine.path, name, f"{stem}.snapshot").read_bytes()
        missing = store.rebuild(decode_snapshot(data))[1] - store.snapshot.live
    except (LogError, OSError) as error:
        return FileFinding("stream", name, live, problem=str(error))
    if missing:
        text = f"LLSN {missing.min()} is live, but the live indexes lack it"
        return FileFinding("stream", name, live, problem=text)
    return FileFinding("stream", name, live, note="live indexes agree with the entries")


def _check_order(engine: Engine, name: str) -> FileFinding:
    """Read a whole topic; its GLSNs must ascend."""
    entries = last = 0
    try:
        for record in Topic(engine, name).read():
            if record.glsn <= last:
                text = f"GLSN {record.glsn} comes after {last}"
                return FileFinding("topic", name, entries, problem=text)
            last = record.glsn
            entries += 1
    except LogError as error:
        return FileFinding("topic", name, entries, problem=f"after GLSN {last}: {error}")
    return FileFinding("topic", name, entries, note="read in order")
