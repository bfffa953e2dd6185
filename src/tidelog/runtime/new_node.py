"""Makes the directory of a node: who it is, and a Raft log in which it has voted for nobody.

No state.  The Raft log is made here and never again: a node that lost it has forgotten its votes,
and could vote twice if it began anew under the same number.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import NO_INDEX, NO_TERM, Membership, Snapshot, SnapshotHead
from tidelog.runtime.identity import Identity, create_identity
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.raft_store import RaftStore
from tidelog.storage.vfs import Vfs

METADATA_NAME: Final = "metadata"
"""The Raft log, in a node's directory."""
STORAGE_NAME: Final = "storage"
"""The replicas."""


def make_node(vfs: Vfs, directory: str, identity: Identity) -> None:
    """Make a directory that of a node; NotALog unless it is empty, or not there yet."""
    create_identity(FailStopVfs(vfs), directory, identity)
    first = Snapshot(SnapshotHead(NO_INDEX, NO_TERM, Membership(identity.members)), b"")
    store, _ = RaftStore.open(
        vfs,
        f"{directory}/{METADATA_NAME}",
        node=identity.node,
        group=identity.cluster_id,
        first=first,
    )
    store.close()
