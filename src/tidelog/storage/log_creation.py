"""Makes a new log in a directory that holds nothing else.

The manifest is written last: without it there is no log, only leftovers of a creation, and those
may be made a log of again.
"""

from __future__ import annotations

import secrets

from tidelog.errors import CorruptData, NotALog
from tidelog.formats.manifest import LOG_ID_BYTES, Manifest, encode_manifest
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.blob_store import BLOBS_DIRECTORY
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import LOCK_NAME, sync_parent
from tidelog.storage.node_store import MANIFEST_NAME, STREAMS_DIRECTORY, WAL_DIRECTORY, NodeStore
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.stage_files import STAGES_DIRECTORY
from tidelog.storage.vfs import Lock
from tidelog.storage.wal import Wal, wal_numbers, wal_path
from tidelog.storage.wal_recovery import holds_any_frame

_OWN_NAMES = {
    LOCK_NAME,
    MANIFEST_NAME,
    WAL_DIRECTORY,
    STREAMS_DIRECTORY,
    BLOBS_DIRECTORY,
    STAGES_DIRECTORY,
    f"{MANIFEST_NAME}.tmp",
}


def create_log(
    disk: FailStopVfs, path: str, lock: Lock, *, wal_file_bytes: int, log_id: bytes | None
) -> NodeStore:
    """Make an empty log at ``path``, whose lock the caller holds; it is durable on return."""
    check_only_leftovers(disk, path)
    wal_directory = f"{path}/{WAL_DIRECTORY}"
    for directory in (wal_directory, f"{path}/{STREAMS_DIRECTORY}"):
        disk.make_dir(directory)
    for name in disk.list_dir(wal_directory):
        disk.unlink(f"{wal_directory}/{name}")
    manifest = Manifest(
        log_id=log_id or secrets.token_bytes(LOG_ID_BYTES),
        hash_seed=secrets.randbits(64),
        wal_file=1,
        wal_sequence=1,
    )
    wal = Wal(disk, wal_directory, log_id=manifest.log_id, file_bytes=wal_file_bytes)
    wal.start()
    try:
        # All names first: whoever finds a manifest, after a kill too, may rely on the rest.
        disk.sync_dir(path)
        sync_parent(disk, path)
        replace_file(disk, path, MANIFEST_NAME, encode_manifest(manifest))
    except BaseException:
        wal.close()
        raise
    return NodeStore(disk, path, manifest, wal, OpenSegments(disk), lock)


def check_only_leftovers(disk: FailStopVfs, path: str) -> None:
    """Refuse to make a log where something else lies, be it a log that lost its manifest."""
    foreign = [name for name in disk.list_dir(path) if name not in _OWN_NAMES]
    if foreign:
        raise NotALog(f"{path} holds {foreign[0]!r} and no log: give an empty or a new directory")
    streams, wal = f"{path}/{STREAMS_DIRECTORY}", f"{path}/{WAL_DIRECTORY}"
    has_streams = disk.stat(streams) is not None and bool(disk.list_dir(streams))
    has_frames = disk.stat(wal) is not None and any(
        holds_any_frame(disk, wal_path(wal, number)) for number in wal_numbers(disk, wal)
    )
    if has_streams or has_frames:
        raise CorruptData(f"{path} holds entries, but its manifest is missing: restore it")
