"""Which BLOBs there are, and which may go."""

from __future__ import annotations

from itertools import count

from msgspec.structs import replace

from tidelog.formats.entry import Kind
from tidelog.formats.topic_blob import BlobDescription, BlobState, blob_key, encode_description
from tidelog.interface.blobs.census import BlobCensus
from tidelog.interface.records import Record

_GLSNS = count(1)
OLD, HORIZON, NEW = 50, 100, 150
UPLOADING = BlobDescription(7, 16)
COMPLETE = BlobDescription(7, 1, BlobState.COMPLETE, 3)
DELETING = replace(COMPLETE, state=BlobState.DELETING)


def record(found: BlobDescription | None, at: int = OLD, *, key: bytes = blob_key(7)) -> Record:
    """A description, or the delete of one."""
    glsn = next(_GLSNS)
    kind = Kind.DELETE if found is None else Kind.PUT
    value = b"" if found is None else encode_description(found)
    return Record(glsn, glsn, 1, kind, key, value, 0, glsn, at)


def census(*records: Record) -> BlobCensus:
    made = BlobCensus(HORIZON)
    for one in records:
        made.see(one)
    return made


def test_the_last_description_of_a_blob_counts() -> None:
    life = [record(UPLOADING), record(COMPLETE), record(DELETING), record(None)]
    seen = [census(*life[:end]) for end in range(1, 5)]
    assert [sorted(one.torn) for one in seen] == [[7], [], [7], []]
    assert [sorted(one.complete) for one in seen] == [[], [7], [], []]
    assert [sorted(one.there) for one in seen] == [[7], [7], [7], []]


def test_a_copy_of_an_old_description_does_not_bring_a_blob_back() -> None:
    first, second, gone = record(UPLOADING), record(COMPLETE), record(None)
    copy = replace(first, rewritten=True)
    assert sorted(census(first, second, copy).complete) == [7]
    assert not census(first, second, gone, replace(second, rewritten=True)).there
    assert sorted(census(copy).torn) == [7]


def test_a_blob_is_shown_once() -> None:
    first, second = record(UPLOADING), record(COMPLETE)
    life = [first, second, replace(second, rewritten=True)]
    one_census = census(*life)
    assert [one_census.show(one) is not None for one in life] == [False, True, False]
    assert [census(*life, record(None)).show(one) for one in life] == [None] * 3


def test_what_was_written_after_the_horizon_stays() -> None:
    assert not census(record(COMPLETE, NEW)).candidates()
    assert not census(record(UPLOADING, OLD), record(COMPLETE, NEW)).candidates()
    assert sorted(census(record(COMPLETE, HORIZON)).candidates()) == [7]


def test_a_blob_that_an_entry_refers_to_stays() -> None:
    one = census(record(COMPLETE))
    one.refer((6, 8))
    assert sorted(one.candidates()) == [7]
    one.refer((7,))
    assert not one.candidates()
    assert one.may_go(record(COMPLETE)) is None


def test_what_a_deletion_left_goes_whatever_refers_to_it() -> None:
    one = census(record(DELETING))
    one.refer((7,))
    assert one.may_go(record(DELETING)) == DELETING


def test_a_blob_that_changed_since_the_census_is_looked_at_again() -> None:
    one = census(record(UPLOADING))
    assert one.may_go(record(UPLOADING)) == UPLOADING
    assert one.may_go(record(UPLOADING, NEW)) is None, "the upload goes on"
    assert one.may_go(record(COMPLETE, NEW)) is None
    assert one.may_go(record(COMPLETE, OLD)) is None, "nobody looked for what refers to it"
    assert one.may_go(None) is None


def test_what_is_no_description_is_counted_and_left_alone() -> None:
    ours = record(COMPLETE)
    flipped = replace(ours, value=ours.value[:-1] + b"\xff")
    one = census(flipped, record(COMPLETE, key=b"user"), record(COMPLETE, key=blob_key(8)))
    assert (one.unreadable, len(one.there)) == (3, 0)
    assert one.may_go(flipped) is None
