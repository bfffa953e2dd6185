"""Makes the directory of a node: who it is, and a Raft log in which it has voted for nobody.

No state.  The Raft log is made here and never again: a node that lost it has forgotten its votes,
and could vote twice if it began anew under the same number.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.raft.entries import NO_INDEX, NO_TERM, Membership, Snapshot, SnapshotHead
from tidelog.runtime.identity import BEGUN_NAME, Identity, create_identity, make_empty
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import take_lock
from tidelog.storage.raft_store import RaftStore
from tidelog.storage.vfs import Vfs

METADATA_NAME: Final = "metadata"
"""The Raft log, in a node's directory."""
STORAGE_NAME: Final = "storage"
"""The replicas."""


def make_node(vfs: Vfs, directory: str, identity: Identity) -> None:
    """Make a directory that of a node; NotALog unless it is empty, or not there yet.

    The Raft log comes first, under another name, and gets its own when the directory is a node's:
    killed before that, it is made anew; killed between the two, ``finish_node`` goes on.
    """
    disk = FailStopVfs(vfs)
    make_empty(disk, directory)
    lock = take_lock(disk, directory)
    try:
        _begin_log(vfs, f"{directory}/{BEGUN_NAME}", identity)
        create_identity(disk, directory, identity)
        finish_node(disk, directory)
    finally:
        lock.release()


def finish_node(disk: FailStopVfs, directory: str) -> None:
    """Do what is left of ``make_node``, if anything; the caller holds the directory's lock."""
    begun, made = f"{directory}/{BEGUN_NAME}", f"{directory}/{METADATA_NAME}"
    if disk.stat(begun) is not None and disk.stat(made) is None:
        disk.rename(begun, made)
        disk.sync_dir(directory)


def _begin_log(vfs: Vfs, directory: str, identity: Identity) -> None:
    if vfs.stat(directory) is not None:
        for name in vfs.list_dir(directory):
            vfs.unlink(f"{directory}/{name}")
    first = Snapshot(SnapshotHead(NO_INDEX, NO_TERM, Membership(identity.members)), b"")
    store, _ = RaftStore.open(
        vfs, directory, node=identity.node, group=identity.cluster_id, first=first
    )
    store.close()
