"""Safeguards of the storage engine, each with a way to switch it off and the hunt that must notice.

A mutant that something else makes up for is in ``SURVIVORS``, with what does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.mutation import broken
from tests.mutation.hunts import (
    Hunt,
    a_failed_directory_sync,
    a_failed_fsync,
    a_wal_that_was_cut,
    bit_rot_in_a_segment,
    crashes_of,
    deletes_through_compaction,
    kills_of,
)
from tests.mutation.left_out import Change, replaced, sync_dir_left_out, sync_left_out, together
from tidelog.formats import wal as wal_format
from tidelog.storage import compaction, recovery, segment_file, stream_store
from tidelog.storage import liveness as liveness_module
from tidelog.storage import node_store as node_store_module
from tidelog.storage.fail_stop import FailStopFile, FailStopVfs
from tidelog.storage.node_store import NodeStore
from tidelog.storage.snapshot_store import SnapshotStore
from tidelog.storage.stream_store import StreamStore
from tidelog.storage.wal import Wal


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    hunt: Hunt


WITHOUT_SYNC: Final = (
    Mutant(
        "a WAL frame is acknowledged without a sync",
        sync_left_out(Wal, "append"),
        crashes_of("single appends"),
    ),
    Mutant(
        "the header of a new WAL file is not synced",
        sync_left_out(Wal, "roll"),
        crashes_of("rolling the WAL without a spare"),
    ),
    Mutant(
        "the header of a recycled WAL file is not synced",
        sync_left_out(Wal, "roll"),
        crashes_of("rolling the WAL with a spare"),
    ),
    Mutant(
        "the name of a new WAL file is not synced",
        sync_dir_left_out(Wal, "roll"),
        crashes_of("rolling the WAL without a spare"),
    ),
    Mutant(
        "a segment is not synced before the WAL file goes",
        sync_left_out(stream_store, "flush_memtable"),
        crashes_of("flushing without a snapshot"),
    ),
    Mutant(
        "the name of a segment is not synced before the WAL file goes",
        sync_dir_left_out(stream_store, "flush_memtable"),
        crashes_of("flushing without a snapshot"),
    ),
    Mutant(
        "a snapshot is not synced before the older one goes",
        sync_left_out(SnapshotStore, "write"),
        crashes_of("a following snapshot"),
    ),
    Mutant(
        "the name of a snapshot is not synced before the older one goes",
        sync_dir_left_out(SnapshotStore, "write"),
        crashes_of("a following snapshot"),
    ),
    Mutant(
        "the manifest is not synced before it is renamed",
        sync_left_out(NodeStore, "_write_manifest"),
        crashes_of("closing"),
    ),
    Mutant(
        "the manifest's new name is not synced before the WAL file goes",
        sync_dir_left_out(NodeStore, "_write_manifest"),
        crashes_of("flushing without a snapshot"),
    ),
    Mutant(
        "a stream's directory is not synced before the manifest names it",
        sync_dir_left_out(NodeStore, "_make_stream_directory"),
        crashes_of("creating a topic"),
    ),
    Mutant(
        "the directories of a new log are not synced",
        sync_dir_left_out(recovery, "create_log"),
        crashes_of("creating a log"),
    ),
    Mutant(
        "a compacted segment is not synced before it takes the place of its sources",
        sync_left_out(compaction, "write_segment"),
        crashes_of("major compaction of one segment"),
    ),
    Mutant(
        "compaction does not sync the directory between its steps",
        sync_dir_left_out(compaction, "install_group"),
        crashes_of("major compaction of two segments"),
    ),
    Mutant(
        "recovery takes frames of a killed process for durable",
        together(sync_left_out(Wal, "resume"), sync_dir_left_out(Wal, "resume")),
        kills_of("single appends"),
    ),
    Mutant(
        "recovery takes a manifest of a killed process for durable",
        sync_dir_left_out(recovery._Opening, "run", lambda path: path == "/log"),
        kills_of("flushing without a snapshot"),
    ),
    Mutant(
        "recovery takes a snapshot of a killed process for durable",
        sync_dir_left_out(SnapshotStore, "load"),
        kills_of("a following snapshot"),
    ),
)

OTHER_ORDER: Final = (
    Mutant(
        "the manifest is renamed before it is synced",
        replaced(node_store_module, "replace_file", broken.rename_first),
        crashes_of("closing"),
    ),
    Mutant(
        "a WAL file is retired before the manifest stops needing it",
        replaced(NodeStore, "save_manifest", broken.retire_first),
        crashes_of("flushing without a snapshot"),
    ),
    Mutant(
        "compaction puts symbolic links in place before the new segment",
        replaced(compaction, "install_group", broken.link_others_first),
        crashes_of("major compaction of two segments"),
    ),
    Mutant(
        "compaction encloses a dead segment whose file is still there",
        replaced(compaction, "_encloses_others", lambda _: lambda store, group: False),
        crashes_of("major compaction around a dead segment"),
    ),
    Mutant(
        "compaction deletes its sources before the new segment is in place",
        replaced(compaction, "install_group", broken.unlink_others_first),
        crashes_of("major compaction of two segments"),
    ),
    Mutant(
        "the note of a dropped delete is stored after the delete is gone",
        replaced(SnapshotStore, "write", broken.horizon_in_the_next_snapshot),
        crashes_of("two snapshots over deletes"),
    ),
    Mutant(
        "an append is acknowledged before the frame that holds its cut",
        replaced(NodeStore, "write", broken.cut_in_the_next_frame),
        crashes_of("group commits"),
    ),
)

UNCHECKED: Final = (
    Mutant(
        "the checksum of a batch is not verified when it is read",
        replaced(segment_file, "decode_batch", broken.without_verification),
        bit_rot_in_a_segment,
    ),
    Mutant(
        "the checksum of a WAL frame is not verified",
        replaced(wal_format, "decode_frame", broken.any_checksum),
        crashes_of("single appends"),
    ),
    Mutant(
        "frames of an earlier use of a WAL file are accepted",
        replaced(wal_format, "decode_frame", broken.any_salt),
        crashes_of("rolling the WAL with a spare"),
    ),
    Mutant(
        "recovery installs a compacted segment whatever its link count",
        replaced(recovery, "recover_groups", broken.always_two_links),
        crashes_of("major compaction of two segments"),
    ),
    Mutant(
        "a missing live index is taken for an empty one",
        replaced(SnapshotStore, "_load_live", broken.missing_is_empty),
        crashes_of("the first snapshot"),
    ),
    Mutant(
        "a failed sync is tried again",
        replaced(FailStopFile, "sync", broken.again),
        a_failed_fsync,
    ),
    Mutant(
        "a failed sync of a directory is tried again",
        replaced(FailStopVfs, "sync_dir", broken.again),
        a_failed_directory_sync,
    ),
)

WRONG_RULES: Final = (
    Mutant(
        "an entry that a delete had killed is called live again",
        replaced(liveness_module, "live_rows", broken.deletes_do_nothing),
        deletes_through_compaction,
    ),
    Mutant(
        "an entry that a delete had killed comes back, and nobody checks",
        together(
            replaced(liveness_module, "live_rows", broken.deletes_do_nothing),
            replaced(stream_store, "check_dead_stays_dead", broken.does_nothing),
        ),
        deletes_through_compaction,
    ),
    Mutant(
        "a delete is dropped while what it deletes is still there",
        replaced(liveness_module, "live_rows", broken.deletes_die_at_once),
        crashes_of("flushing a delete"),
    ),
    Mutant(
        "a deleted segment that a crash brought back is used",
        replaced(recovery, "_drop_dead_segments", broken.does_nothing),
        crashes_of("two snapshots over deletes"),
    ),
    Mutant(
        "a delete is dropped without a note",
        replaced(stream_store, "deletes_to_note", broken.nothing_to_note),
        crashes_of("two snapshots over deletes"),
    ),
    Mutant(
        "the notes of dropped deletes are forgotten at a start",
        replaced(SnapshotStore, "load", broken.no_horizon),
        crashes_of("two snapshots over deletes"),
    ),
    Mutant(
        "a trim is not in the manifest that replaces its WAL file",
        replaced(StreamStore, "manifest", broken.without_trim),
        crashes_of("flushing what was trimmed"),
    ),
    Mutant(
        "recovery finds no entry missing",
        together(
            replaced(recovery, "recover", broken.always_usable),
            sync_dir_left_out(stream_store, "flush_memtable"),
        ),
        crashes_of("flushing without a snapshot"),
    ),
)

MUTANTS: Final = (*WITHOUT_SYNC, *OTHER_ORDER, *UNCHECKED, *WRONG_RULES)

SURVIVORS: Final = (
    Mutant(
        "retired WAL files are used again before their old names are gone for good: recovery looks "
        "at no file below the one that the manifest names",
        sync_dir_left_out(Wal, "retire_below"),
        crashes_of("rolling the WAL with a spare"),
    ),
    Mutant(
        "a WAL may end before the frames that the manifest counts: the commit contexts in the "
        "manifest tell that entries are missing",
        replaced(recovery, "replay_wal", broken.no_durable_sequence),
        a_wal_that_was_cut,
    ),
)
