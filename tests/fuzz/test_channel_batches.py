"""Any attachment of a write: sound batches of its channel and epoch, or CorruptData.

Checksums alone would find most damage, so here a hostile master computes them anew.
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.channel_attachments import (
    BEGIN,
    CHANNEL,
    EPOCH,
    attachment,
    reseal,
    sound_or_refused,
)
from tests.fuzz.shapes import damaged
from tidelog.core.session.output import ChannelBatch
from tidelog.errors import CorruptData
from tidelog.formats.batch import HEADER_BYTES
from tidelog.formats.batch_encode import encode_entries, seal_batch
from tidelog.formats.channel_batch import decode_channel_batches, encode_channel_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.limits import BATCH_ENTRIES_MAX, MIB

write_versions = st.integers(0, (1 << 128) - 1)
blob_ids = st.lists(st.integers(1, (1 << 64) - 1), max_size=3).map(tuple)
puts = st.builds(
    lambda key, value, storage, version, blobs: Entry(
        Kind.PUT, value, key, storage, version, 0, blobs
    ),
    st.binary(min_size=1, max_size=10),
    st.binary(max_size=20),
    st.integers(0, (1 << 64) - 1),
    write_versions,
    blob_ids,
)
deletes = st.builds(
    lambda key, version: Entry(Kind.DELETE, b"", key, 3, version),
    st.binary(min_size=1, max_size=10),
    write_versions,
)
storage_deletes = st.builds(
    lambda version: Entry(Kind.DELETE_STORAGE, b"", b"", 3, version), write_versions
)
entries = st.lists(st.one_of(puts, deletes, storage_deletes), min_size=1, max_size=6)


sound = entries.map(lambda some: bytes(encode_channel_batch(CHANNEL, EPOCH, BEGIN, some).data))


@given(st.one_of(st.binary(max_size=300), damaged(sound)))
def test_damaged_batches_are_refused(data: bytes) -> None:
    sound_or_refused(data)


@given(damaged(sound).map(reseal))
def test_batches_with_sound_checksums_are_sound_or_refused(data: bytes) -> None:
    sound_or_refused(data)


@given(sound, st.integers(16, HEADER_BYTES - 1), st.integers(0, 255))
def test_a_changed_header_is_that_of_a_sound_batch_or_refused(
    data: bytes, place: int, byte: int
) -> None:
    sound_or_refused(reseal(data[:place] + bytes((byte,)) + data[place + 1 :]))


@given(st.lists(entries, min_size=1, max_size=4), st.integers(-1, 1))
def test_batches_travel_together_only_without_a_gap(several: list[list[Entry]], gap: int) -> None:
    batches: list[ChannelBatch] = []
    begin = BEGIN
    for some in several:
        batches.append(encode_channel_batch(CHANNEL, EPOCH, begin, some))
        begin = batches[-1].llsn_end + gap
    data = attachment(batches)
    if gap == 0 or len(batches) == 1:
        assert list(decode_channel_batches(CHANNEL, EPOCH, data)) == batches
    else:
        with pytest.raises(CorruptData):
            decode_channel_batches(CHANNEL, EPOCH, data)


@given(sound, st.integers(0, 3), st.integers(0, 12))
def test_batches_of_another_channel_or_epoch_are_refused(
    data: bytes, channel: int, epoch: int
) -> None:
    if (channel, epoch) == (CHANNEL, EPOCH):
        assert decode_channel_batches(channel, epoch, data)
    else:
        with pytest.raises(CorruptData):
            decode_channel_batches(channel, epoch, data)


KEYLESS = [
    [Entry(Kind.APPEND, b"v", write_version=1)],
    [Entry(Kind.CONTROL, b"", write_version=1)],
    [Entry(Kind.PUT, b"v", b"k")],
]


@pytest.mark.parametrize("some", KEYLESS, ids=["append", "control", "no version"])
def test_entries_that_do_not_belong_into_a_channel_are_refused(some: list[Entry]) -> None:
    body = encode_entries(some)
    header = seal_batch(body, stream=CHANNEL + 1, term=EPOCH, first_llsn=BEGIN)
    with pytest.raises(CorruptData):
        decode_channel_batches(CHANNEL, EPOCH, header + body.data)


def test_keys_fit_to_the_kinds_of_their_entries() -> None:
    """Also where kinds are mixed: no PUT without a key, no DELETE_STORAGE with one."""
    some = [Entry(Kind.PUT, b"v", b"k", 3, 7), Entry(Kind.DELETE_STORAGE, b"", b"", 3, 8)]
    data = bytearray(encode_channel_batch(CHANNEL, EPOCH, BEGIN, some).data)
    kinds = slice(HEADER_BYTES, HEADER_BYTES + 2)
    assert data[kinds] == bytes((Kind.PUT, Kind.DELETE_STORAGE))
    for first, second in (
        (Kind.DELETE_STORAGE, Kind.PUT),
        (Kind.PUT, Kind.DELETE),
        (Kind.DELETE_STORAGE, Kind.DELETE_STORAGE),
    ):
        data[kinds] = bytes((first, second))
        with pytest.raises(CorruptData):
            decode_channel_batches(CHANNEL, EPOCH, reseal(bytes(data)))


def test_a_million_empty_entries_are_bounded() -> None:
    """As many as a batch may have are taken, without an object for each; one more is refused."""
    count = BATCH_ENTRIES_MAX
    some = [Entry(Kind.DELETE_STORAGE, b"", b"", 3, 7)] * count
    data = bytes(encode_channel_batch(CHANNEL, EPOCH, BEGIN, some).data)
    tracemalloc.start()
    try:
        [batch] = decode_channel_batches(CHANNEL, EPOCH, memoryview(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert batch.llsn_end - batch.llsn_begin == count
    assert peak < 2 * len(data) + MIB
    more = bytearray(data)
    more[16:20] = (count + 1).to_bytes(4, "little")
    with pytest.raises(CorruptData):
        decode_channel_batches(CHANNEL, EPOCH, memoryview(reseal(bytes(more))))
