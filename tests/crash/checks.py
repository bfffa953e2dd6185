"""The one check of what a crash left: open the log on it and hold it against the journals.

1  Everything acknowledged is readable with equal bytes at its place, unless it is dead by the
   rules of compaction or trimmed; ``get`` gives the newest write of each key.
2  Beyond that there is at most the one attempt that was under way, as a whole.
3  Each stream's commit context ends where its entries end, and every entry has its GLSN.
4  The live indexes of each snapshot are those that its entries give; only deletes may be
   called live longer than they must.
5  A reader that had read all before a delete which is gone now, and that the delete horizon lets
   read on there, ends with exactly the keys of the log.
6  A second recovery changes no byte.
7  The log goes on: an append gets the next GLSN and survives the next crash.
"""

from __future__ import annotations

from tests.crash.known import Known, known_of
from tests.crash.repeatable import CHANCE
from tests.crash.scribe import (
    Attempt,
    BoundaryAttempt,
    FrameAttempt,
    Scribe,
    TopicAttempt,
    TrimAttempt,
    Written,
    open_log,
    record_of,
    written_in,
)
from tests.pipeline.model import state_of
from tidelog import Kind, Log
from tidelog.errors import Trimmed
from tidelog.formats.snapshot import Snapshot, decode_snapshot
from tidelog.limits import SNAPSHOT_BYTES_MAX
from tidelog.storage.atomic_file import read_file
from tidelog.storage.stream_store import StreamStore
from tidelog.testing.crash import Journal
from tidelog.testing.disk import SimVfs


def check_recovery(
    vfs: SimVfs, base: Journal, journal: Journal, *, streams: int, versions: str
) -> None:
    """All of the above, for a disk that a crash left after ``base`` and ``journal``."""
    known = check_first_start(vfs, base, journal, streams=streams, versions=versions)
    files = vfs.disk.files()
    log = open_log(vfs)
    _check_unchanged(files, vfs.disk.files(), "opened")
    log.close()
    _check_unchanged(files, vfs.disk.files(), "closed")
    _check_goes_on(vfs, known, journal)


def check_first_start(
    vfs: SimVfs, base: Journal, journal: Journal, *, streams: int, versions: str
) -> Known:
    """Points 1 to 5 at the first start after a crash; returns what is in the log."""
    CHANCE.begin("check")
    known, pending = known_of(base, journal, versions=versions)
    log = open_log(vfs, streams=streams, versions=versions)
    try:
        return check_log(log, known, pending)
    finally:
        log.close()


def check_log(log: Log, known: Known, pending: Attempt | None) -> Known:
    """Points 1 to 5; returns what turned out to be in the log."""
    if pending is not None and took_effect(log, known, pending):
        known = known.after(pending)
    assert log.high_watermark == known.high_watermark, "entries were lost, or came from nowhere"
    assert log.first_available == known.trim_glsn_end
    for name, count in known.topics.items():
        assert len(log.topic(name).streams) == count
    records = written_in(log)
    _check_records(records, known)
    _check_keys(log, known)
    _check_lagging_readers(log, known, records)
    if known.trim_glsn_end > 1:
        _check_trimmed(log)
    for store in (log.engine.node.streams[stream] for stream in log.streams):
        _check_context(store, known)
        _check_live(store)
    problems = [finding.problem for finding in log.verify() if finding.problem]
    assert not problems
    return known


def took_effect(log: Log, known: Known, pending: Attempt) -> bool:
    """Whether the open attempt is to be seen; that it is seen whole is checked by the caller."""
    match pending:
        case FrameAttempt():
            return log.high_watermark > known.high_watermark
        case TrimAttempt():
            return log.first_available > known.trim_glsn_end
        case BoundaryAttempt():
            boundaries = {log.engine.node.streams[stream].boundary for stream in log.streams}
            assert len(boundaries) == 1, "half of a frame was applied"
            return boundaries == {pending.version}
        case TopicAttempt():
            names = log.topics()
            return pending.name in names and len(log.topic(pending.name).streams) == pending.streams


def _check_records(records: list[Written], known: Known) -> None:
    glsns = [record.glsn for record in records]
    assert glsns == sorted(set(glsns)), "GLSNs are not unique and ascending"
    for record in records:
        assert record == known.entries[record.glsn], f"GLSN {record.glsn} holds something else"
    present = set(glsns)
    for glsn, entry in known.entries.items():
        if glsn not in present:
            assert known.may_be_missing(entry, records), f"{entry} was lost"


def _check_keys(log: Log, known: Known) -> None:
    places = {
        (entry.storage_id, entry.key)
        for entry in known.entries.values()
        if entry.kind in (Kind.PUT, Kind.DELETE)
    }
    for storage_id, key in sorted(places):
        expected = known.newest(storage_id, key)
        found = log.get(key, storage_id=storage_id)
        got = None if found is None else (found.glsn, found.value)
        assert got == (None if expected is None else (expected.glsn, expected.value)), key


def _check_lagging_readers(log: Log, known: Known, records: list[Written]) -> None:
    begin = max(log.stats().delete_horizon, known.trim_glsn_end)
    present = {record.glsn for record in records}
    for position, entry in known.entries.items():
        is_delete = entry.kind in (Kind.DELETE, Kind.DELETE_STORAGE)
        if is_delete and position >= begin and position not in present:
            before = [entry for glsn, entry in known.entries.items() if glsn < position]
            behind = [record for record in records if record.glsn >= position]
            _check_table([*before, *behind], known, f"read on at GLSN {position}")


def _check_table(seen: list[Written], known: Known, how: str) -> None:
    rows = {(row[0], row[1]): row[4] for row in state_of(map(record_of, seen))}
    for storage_id, key in sorted({(e.storage_id, e.key) for e in seen if e.key}):
        expected = known.newest(storage_id, key)
        if expected is not None or not known.is_trimmed(storage_id, key):
            glsn = None if expected is None else expected.glsn
            assert rows.get((storage_id, key)) == glsn, f"{key!r}, {how}"


def _check_trimmed(log: Log) -> None:
    told = 0
    try:
        log.read(log.first_available - 1)
    except Trimmed as error:
        told = error.first_available
    assert told == log.first_available, "a trimmed position can be read"


def _check_context(store: StreamStore, known: Known) -> None:
    entries = [entry for entry in known.entries.values() if entry.stream == store.stream]
    context = store.context
    assert context.llsn_end == len(entries) + 1 == store.end_llsn
    if entries:
        last = entries[-1]
        assert context.glsn_end == last.glsn + 1
        assert context.high_watermark <= known.high_watermark
    for table in store.view.memtables:
        if table.batches:
            assert table.runs.llsn_end == table.end_llsn, "an ordered entry has no GLSN"


def _check_live(store: StreamStore) -> None:
    snapshot = stored_snapshot(store)
    if snapshot is None:
        assert store.snapshot.index == 0
        return
    assert (store.snapshot.term, store.snapshot.index) == (snapshot.term, snapshot.index)
    rebuilt = store.rebuild(snapshot)[1]
    assert not rebuilt - store.snapshot.live, "an entry is needed that the live indexes call dead"
    surplus = store.snapshot.live - rebuilt
    for piece in store.read(store.trim_llsn_end, snapshot.index + 1):
        entries = piece.batch.entries(piece.begin, piece.end)
        for llsn, entry in zip(piece.llsns(), entries, strict=True):
            if entry.kind in (Kind.DELETE, Kind.DELETE_STORAGE):
                surplus.discard(llsn)
    surplus.remove_range(0, store.trim_llsn_end)
    assert not surplus, f"called live, but dead or gone: {list(surplus)}"


def stored_snapshot(store: StreamStore) -> Snapshot | None:
    """The snapshot in the stream's directory; recovery leaves no more than one."""
    directory = store.place.directory
    names = [n for n in store.vfs.list_dir(directory) if n.endswith(".snapshot")]
    assert len(names) <= 1
    if not names:
        return None
    return decode_snapshot(
        read_file(store.vfs, f"{directory}/{names[0]}", SNAPSHOT_BYTES_MAX) or b""
    )


def _check_unchanged(before: dict[str, bytes], after: dict[str, bytes], when: str) -> None:
    assert before.keys() == after.keys(), f"files came or went when the log was {when} again"
    changed = [path for path, data in after.items() if before[path] != data]
    assert not changed, f"changed when the log was {when} again: {changed}"


def _check_goes_on(vfs: SimVfs, known: Known, before: Journal) -> None:
    log = open_log(vfs)
    for attempt in before.attempted:
        if isinstance(attempt, FrameAttempt) and attempt.producer:
            known = _check_retry(log, known, attempt)
    scribe = Scribe(log, Journal())
    scribe.append(b"goes on", stream=log.streams[-1])
    (written,) = scribe.written()
    assert written.glsn == known.high_watermark + 1
    known.entries[written.glsn] = written
    log = open_log(vfs.disk.after_crash().vfs())
    check_log(log, known, None)
    log.close()


def _check_retry(log: Log, known: Known, attempt: FrameAttempt) -> Known:
    """A producer repeats an append: it is answered if it is there, and made up for if not."""
    values = [wish.value for wish in attempt.wishes]
    places = [glsn for glsn, entry in known.entries.items() if entry.value == values[0]]
    receipt = log.append_batch(
        values,
        stream=attempt.wishes[0].stream,
        producer=attempt.producer,
        sequence=attempt.sequence,
    )
    assert receipt.duplicate == bool(places)
    assert receipt.glsn == (places[0] if places else known.high_watermark + 1)
    return known if places else known.after(attempt)
