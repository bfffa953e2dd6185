"""Entries of a log channel as a batch: made by the master, checked by the replica.  No state.

The same bytes travel, lie in the WAL and lie in segments.  Log channel ``n`` is log stream
``n + 1``, and the term of a batch is the epoch of its entries.

  H1  a batch is dense, of one channel and one epoch, of no producer, and no copy of an older one
  H2  its entries are PUT, DELETE or DELETE_STORAGE, each with a write version of its own; the
      first two have keys, the last has none
  H3  batches that travel together follow one another without gap
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tidelog.core.session.output import ChannelBatch
from tidelog.errors import BadEntry, CorruptData
from tidelog.formats.batch import Batch, Column, decode_batch, encode_entries, seal_batch
from tidelog.formats.entry import Entry, Kind
from tidelog.invariants import check
from tidelog.limits import STORAGE_ID_END

STAMP_STORAGE: Final = STORAGE_ID_END - 1
"""The storage of the datastore itself: applications neither write nor see it."""
STAMP_KEY: Final = b"master"
"""Where each life of a master leaves its stamp, in its first epoch."""
CHANNEL_KINDS: Final = frozenset({int(Kind.PUT), int(Kind.DELETE), int(Kind.DELETE_STORAGE)})
_MANY: Final = 64
"""From so many entries on a batch is worth a call of numpy."""


def stream_of(channel: int) -> int:
    """The log stream that holds a log channel."""
    return channel + 1


def encode_channel_batch(
    channel: int, epoch: int, llsn_begin: int, entries: Sequence[Entry]
) -> ChannelBatch:
    """Entries as the batch at ``llsn_begin``; BadEntry if one does not belong into a channel."""
    for entry in entries:
        _check_entry(entry)
    body = encode_entries(entries)
    header = seal_batch(body, stream=stream_of(channel), term=epoch, first_llsn=llsn_begin)
    blobs = {blob for entry in entries for blob in entry.blobs}
    return ChannelBatch(
        llsn_begin, llsn_begin + len(entries), header + body.data, tuple(sorted(blobs))
    )


def decode_channel_batches(
    channel: int, epoch: int, attachment: bytes | memoryview
) -> tuple[ChannelBatch, ...]:
    """The batches that fill ``attachment``; CorruptData unless H1 to H3 hold.

    Their data are views of it: nothing is copied.
    """
    view = memoryview(attachment)
    found: list[ChannelBatch] = []
    offset = 0
    while offset < len(view):
        batch = decode_batch(view, offset)
        fault = _fault(batch, channel, epoch)
        if fault is None and found and batch.first_llsn != found[-1].llsn_end:
            fault = f"H3: LLSN {batch.first_llsn} after {found[-1].llsn_end - 1}"
        if fault is not None:
            raise CorruptData(f"batch at {offset} for log channel {channel}: {fault}")
        found.append(ChannelBatch(batch.first_llsn, batch.end_llsn, batch.data, _blobs_of(batch)))
        offset += batch.length
    return tuple(found)


def version_min(batch: Batch) -> int:
    """The smallest write version in a batch of a log channel."""
    low, high = batch.column(Column.VERSIONS_LOW), batch.column(Column.VERSIONS_HIGH)
    if low is None or high is None:
        check(False, "H2: entries of a log channel have write versions")
        return 0
    if batch.count < _MANY:
        return min([b << 64 | a for a, b in zip(low.tolist(), high.tolist(), strict=True)])
    lows, highs = np.frombuffer(low, dtype=np.uint64), np.frombuffer(high, dtype=np.uint64)
    smallest = highs.min()
    return int(smallest) << 64 | int(lows[highs == smallest].min())


def _check_entry(entry: Entry) -> None:
    if entry.kind not in CHANNEL_KINDS:
        raise BadEntry(
            f"a log channel takes no {Kind(entry.kind).name} entries: put or delete keys"
        )
    if entry.write_version is None:
        raise BadEntry("an entry of a log channel needs a write version")


def _fault(batch: Batch, channel: int, epoch: int) -> str | None:
    if batch.stream != stream_of(channel):
        return f"H1: it is of log stream {batch.stream}"
    if batch.term != epoch:
        return f"H1: it is of epoch {batch.term}, not {epoch}"
    if not batch.dense or batch.rewritten or batch.producer or batch.sequence:
        return "H1: it is sparse, a copy, or of a producer"
    if batch.column(Column.VERSIONS_LOW) is None:
        return "H2: its entries have no write versions"
    if not CHANNEL_KINDS.issuperset(batch.kinds()):
        return "H2: an entry of another kind is in it"
    if not _keys_fit(batch):
        return "H2: a write without a key, or a delete of a storage with one"
    return None


def _keys_fit(batch: Batch) -> bool:
    """Whether exactly the PUTs and DELETEs have keys."""
    kinds = np.frombuffer(batch.kinds(), dtype=np.uint8)
    wanted = kinds != int(Kind.DELETE_STORAGE)
    column = batch.column(Column.KEY_OFFSETS)
    if column is None:
        return not bool(wanted.any())
    offsets = np.frombuffer(column, dtype=np.uint32)
    return bool(((offsets[1:] > offsets[:-1]) == wanted).all())


def _blobs_of(batch: Batch) -> tuple[int, ...]:
    ids = batch.column(Column.BLOB_IDS)
    return tuple(sorted(set(ids.tolist()))) if ids is not None else ()
