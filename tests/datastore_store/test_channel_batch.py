"""Batches of log channels: what the master sealed is what the replica takes, and nothing else."""

from __future__ import annotations

import pytest

from tests.datastore_store.stores import delete, delete_storage, put
from tidelog.errors import BadEntry, CorruptData
from tidelog.formats.batch import decode_batch, encode_entries, seal_batch
from tidelog.formats.channel_batch import (
    decode_channel_batches,
    encode_channel_batch,
    version_min,
)
from tidelog.formats.entry import Entry, Kind

ENTRIES = [put("a", "1", 7, blobs=(9, 3)), delete("b", 1 << 100), delete_storage(5, storage=2)]


def test_batches_come_out_as_they_went_in() -> None:
    first = encode_channel_batch(4, 11, 1, ENTRIES)
    second = encode_channel_batch(4, 11, 4, [put("c", "", 8, blobs=(3,))])
    attachment = bytes(first.data) + bytes(second.data)
    found = decode_channel_batches(4, 11, memoryview(attachment))
    assert [(b.llsn_begin, b.llsn_end, b.blobs) for b in found] == [(1, 4, (3, 9)), (4, 5, (3,))]
    assert [bytes(batch.data) for batch in found] == [first.data, second.data]
    assert decode_batch(found[0].data).entries() == ENTRIES
    assert decode_channel_batches(4, 11, b"") == ()


@pytest.mark.parametrize("count", [1, 3, 200])
def test_the_smallest_version_is_found(count: int) -> None:
    entries = [put("a", "", (count - number) << 70 | number) for number in range(count)]
    batch = decode_batch(encode_channel_batch(0, 1, 1, entries).data)
    assert version_min(batch) == min(entry.write_version or 0 for entry in entries)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Entry(Kind.APPEND, b"x", b"", 0, 1), "no APPEND entries"),
        (Entry(Kind.CONTROL, b"x", b"", 0, 1), "no CONTROL entries"),
        (Entry(Kind.PUT, b"x", b"k"), "needs a write version"),
        (Entry(Kind.PUT, b"x", b"", 0, 1), "needs a key"),
    ],
)
def test_entries_that_no_channel_takes_are_refused(entry: Entry, message: str) -> None:
    with pytest.raises(BadEntry, match=message):
        encode_channel_batch(0, 1, 1, [entry])


def sealed(
    *entries: Entry, stream: int = 1, term: int = 1, producer: int = 0, rewritten: bool = False
) -> bytes:
    body = encode_entries(entries, rewritten=rewritten)
    header = seal_batch(
        body, stream=stream, term=term, first_llsn=1, producer=producer, sequence=producer
    )
    return header + bytes(body.data)


GOOD = put("a", "1", 1)


@pytest.mark.parametrize(
    ("attachment", "message"),
    [
        (sealed(GOOD, stream=2), "H1: it is of log stream 2"),
        (sealed(GOOD, term=2), "H1: it is of epoch 2"),
        (sealed(GOOD, producer=5), "H1"),
        (sealed(GOOD, rewritten=True), "H1"),
        (sealed(Entry(Kind.PUT, b"x", b"k")), "H2: its entries have no write versions"),
        (sealed(Entry(Kind.APPEND, b"x", b"", 0, 1)), "H2: an entry of another kind"),
        (sealed(GOOD) * 2, "H3: LLSN 1 after 1"),
        (sealed(GOOD) + b"TLB", "too few"),
        (sealed(GOOD)[:-1], "cut"),
        (bytes(200), "batch at 0"),
    ],
)
def test_what_is_no_batch_of_the_channel_and_epoch_is_corrupt(
    attachment: bytes, message: str
) -> None:
    with pytest.raises(CorruptData, match=message):
        decode_channel_batches(0, 1, attachment)


def test_every_flipped_bit_is_found() -> None:
    data = bytes(encode_channel_batch(0, 1, 1, ENTRIES).data)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptData):
            decode_channel_batches(0, 1, bytes(damaged))
