"""Which BLOBs the entries of a datastore refer to.  No state."""

from __future__ import annotations

from pyroaring import BitMap64

from tidelog.formats.batch import Column
from tidelog.formats.manifest import TopicManifest
from tidelog.storage.node_store import NodeStore
from tidelog.storage.shared_keys import held_topic


def referred_blobs(node: NodeStore, topic: TopicManifest) -> BitMap64:
    """The BLOBs of all entries that are there, dead and unrecorded ones among them."""
    found = BitMap64()
    with held_topic(node, topic) as seen:
        for stream in seen.streams:
            for piece in stream.store.read_view(stream.view, 1, stream.store.end_llsn):
                ids = piece.batch.column(Column.BLOB_IDS)
                if ids is not None:
                    found.update(ids.tolist())
    return found
