"""What scenarios do to a log, before the crashes and during them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.crash.scribe import Scribe, written_in
from tidelog import Entry, Kind

Steps: TypeAlias = Callable[[Scribe], None]

FILL = b"f" * 60_000
"""With this in it a WAL file has no room for another one."""


def append_some(scribe: Scribe) -> None:
    scribe.append(b"one", b"two")
    scribe.put((b"a", b"1"), (b"b", b"1"))


def append_two(scribe: Scribe) -> None:
    scribe.append(b"three")
    scribe.append(b"four" * 400)


def append_more_than_a_file(scribe: Scribe) -> None:
    scribe.append(b"h" * 90_000)
    scribe.append(b"one more")


def append_by_producer(scribe: Scribe) -> None:
    """Appends that their producer will repeat after the crash."""
    scribe.append(b"once", b"only once", stream=2, producer="p", sequence=5)
    scribe.append(b"two" * 400, stream=2, producer="p", sequence=9)


def close(scribe: Scribe) -> None:
    scribe.put((b"a", b"2"))
    scribe.log.close()


def commit_groups(scribe: Scribe) -> None:
    keys = [b"key %d" % number for number in range(6)]
    scribe.commit(
        scribe.appending(b"x", stream=1),
        scribe.putting(*((key, b"1") for key in keys)),
        scribe.appending(b"y", b"z" * 600, stream=2),
    )
    scribe.commit(
        scribe.deleting(keys[0]),
        scribe.putting(*((key, b"2") for key in keys[:3])),
        scribe.deleting(keys[4]),
        scribe.appending(b"w", stream=2),
    )


def roll(scribe: Scribe) -> None:
    scribe.roll()
    scribe.append(b"in the new file")
    scribe.append(b"and one more")


def with_spare(scribe: Scribe) -> None:
    append_some(scribe)
    scribe.flush()
    scribe.append(b"three")
    assert scribe.log.engine.node.wal._spares()


def append_fill(scribe: Scribe) -> None:
    scribe.append(FILL)
    scribe.put((b"a", b"2"))


def fill_two_streams(scribe: Scribe) -> None:
    keys = [b"key %d" % number for number in range(6)]
    scribe.put(*((key, b"1") for key in keys))
    scribe.append(FILL, stream=1)
    scribe.put(*((key, b"2") for key in keys[:4]))


def three_segments(scribe: Scribe) -> None:
    """Keys that are set again and again, over three segments and the WAL."""
    for round_ in range(3):
        scribe.append(b"kept %d" % round_)
        scribe.put((b"a", b"%d" % round_), (b"b", b"%d" % round_), (b"c%d" % round_, b"once"))
        scribe.flush()
    scribe.put((b"a", b"9"))


def dead_segments(scribe: Scribe) -> None:
    """Two segments of which nothing is live, and one that is."""
    for round_ in range(3):
        scribe.put((b"a", b"%d" % round_), (b"b", b"%d" % round_))
        scribe.flush()


def snapshot_dead_segments(scribe: Scribe) -> None:
    dead_segments(scribe)
    scribe.snapshot()


def half_dead(rounds: int) -> Steps:
    def prepare(scribe: Scribe) -> None:
        for round_ in range(rounds):
            scribe.append(b"kept %d" % round_)
            scribe.put(*((b"k%d" % key, b"%d" % round_) for key in range(3)))
            scribe.flush()
        scribe.put((b"k0", b"new"), (b"k1", b"new"), (b"k2", b"new"))
        scribe.flush()
        scribe.snapshot()

    return prepare


def around_a_dead_one(scribe: Scribe) -> None:
    """Of three segments the one in the middle dies by the next snapshot."""
    scribe.append(b"kept 0")
    scribe.flush()
    scribe.put((b"k", b"old"))
    scribe.flush()
    scribe.append(b"kept 1")
    scribe.flush()
    scribe.put((b"k", b"new"))
    scribe.flush()


def compact_around_a_dead_one(scribe: Scribe) -> None:
    """First while somebody reads it, and so keeps its file."""
    reader = scribe.log.read()
    assert next(reader).glsn == 1
    scribe.snapshot()
    scribe.major(full=True)
    assert [record.glsn for record in reader] == [2, 3, 4]
    assert scribe.major(full=True) == 2
    scribe.append(b"after")


def one_mostly_dead(scribe: Scribe) -> None:
    scribe.append(b"kept")
    scribe.put(*((b"k%d" % key, b"old") for key in range(4)))
    scribe.flush()
    scribe.put(*((b"k%d" % key, b"new") for key in range(4)))
    scribe.flush()
    scribe.snapshot()


def compact(rewritten: int) -> Steps:
    def operate(scribe: Scribe) -> None:
        assert scribe.major(full=True) == rewritten

    return operate


def compact_and_append(scribe: Scribe) -> None:
    scribe.log.compact(full=True)
    scribe.put((b"a", b"after"))


def deleted_keys(scribe: Scribe) -> None:
    """Deletes whose victims lie in older segments."""
    scribe.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    scribe.flush()
    scribe.delete(b"a")
    scribe.delete(b"b")
    scribe.flush()
    scribe.put((b"d", b"1"))
    scribe.flush()
    scribe.put((b"e", b"1"))


def snapshot_of_deletes(scribe: Scribe) -> None:
    """A snapshot that knows what was deleted, all of which is still there."""
    deleted_keys(scribe)
    scribe.snapshot()
    scribe.put((b"f", b"1"))


def drop_deletes(scribe: Scribe) -> None:
    """First what was deleted goes, then the deletes."""
    scribe.log.compact(full=True)
    scribe.put((b"e", b"2"))
    scribe.log.compact(full=True)


def deleted_segment(scribe: Scribe) -> None:
    """A segment whose entries are all deleted by the next one."""
    scribe.put((b"a", b"1"), (b"b", b"1"))
    scribe.flush()
    scribe.delete(b"a")
    scribe.delete(b"b")
    scribe.flush()
    for number in range(2):
        scribe.put((b"c", b"%d" % number))
        scribe.flush()
    scribe.put((b"e", b"1"))


def snapshot_twice(scribe: Scribe) -> None:
    """With the first snapshot a deleted segment goes, with the second its deletes die."""
    scribe.log.snapshot()
    scribe.put((b"e", b"2"))
    scribe.log.snapshot()


def snapshot_once_more(scribe: Scribe) -> None:
    scribe.put((b"e", b"3"))
    scribe.log.snapshot()


def compact_under_a_reader(scribe: Scribe) -> None:
    """The reader holds the files of what compaction deletes."""
    reader = scribe.log.read()
    first = next(reader)
    snapshot_twice(scribe)
    snapshot_once_more(scribe)
    scribe.log.compact(full=True)
    scribe.put((b"e", b"4"))
    assert first.glsn == 1
    assert next(reader).glsn == 2


def delete_then_flush(scribe: Scribe) -> None:
    """The delete gets into a segment while its victim still lies in an older one."""
    scribe.delete(b"a")
    scribe.snapshot()
    scribe.flush()
    scribe.append(b"after the flush")


def entry(kind: Kind, key: bytes, version: int, storage_id: int = 0) -> Entry:
    value = b"" if kind is Kind.DELETE else b"version %d" % version
    return Entry(kind, value, key, storage_id, version)


def explicit_versions(scribe: Scribe) -> None:
    for version in (10, 20, 30):
        scribe.write(*(entry(Kind.PUT, key, version) for key in (b"a", b"b")))
        scribe.write(entry(Kind.PUT, b"s", version, storage_id=7))
        scribe.flush()
    scribe.write(entry(Kind.DELETE, b"b", 25))
    scribe.delete_storage(7, version=31)


def raise_boundary(scribe: Scribe) -> None:
    scribe.set_gc_boundary(24)
    scribe.log.compact(full=True)
    scribe.write(entry(Kind.PUT, b"a", 40))


def raise_boundary_over_deletes(scribe: Scribe) -> None:
    scribe.set_gc_boundary(31)
    scribe.log.compact(full=True)
    scribe.write(entry(Kind.PUT, b"a", 40))
    scribe.log.compact(full=True)


def trim(scribe: Scribe) -> None:
    scribe.trim(7)
    scribe.append(b"after the trim")
    scribe.trim(11)


def trim_everything(scribe: Scribe) -> None:
    """Nothing is left to flush."""
    scribe.trim(scribe.log.high_watermark + 1)
    scribe.flush()
    scribe.append(b"after the trim")


def trim_and_flush(scribe: Scribe) -> None:
    scribe.trim(7)
    scribe.flush()
    scribe.append(b"after the trim")


def rewrite(scribe: Scribe) -> None:
    scribe.log.compact(full=True)
    # These keys were set once, so they are the oldest live ones.
    scribe.rewrite([put for put in written_in(scribe.log) if put.key in (b"c0", b"c1")])
    scribe.log.compact(full=True)


def delete_two_segments(scribe: Scribe) -> None:
    scribe.snapshot()
    assert scribe.minor() == 2
