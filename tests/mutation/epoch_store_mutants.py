"""Safeguards of a datastore's store, each with a way to switch it off and the hunt that notices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.datastore_store import (
    crash_scenarios,
    test_epoch_store,
    test_shared_keys,
)
from tests.mutation.left_out import Change, replaced, sync_dir_left_out, sync_left_out
from tests.storage import test_blob_store
from tidelog.datastore import epoch_store, epoch_writer
from tidelog.datastore.channel_tail import ChannelTail
from tidelog.datastore.unrecorded import Unrecorded
from tidelog.embedded import maintenance
from tidelog.storage import shared_keys, stream_store
from tidelog.storage.blob_store import BlobStore, BlobWriter
from tidelog.storage.frame_write import FrameWrite
from tidelog.storage.liveness import Liveness, StreamSources
from tidelog.storage.memtable import Memtable
from tidelog.storage.node_store import NodeStore
from tidelog.storage.open_segments import OpenSegments
from tidelog.storage.wal import Wal
from tidelog.testing.crash import enumerate_crashes

Hunt: TypeAlias = Callable[[Change], None]
Right: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    hunt: Hunt


# -- hunts -------------------------------------------------------------------------------------


def story(test: Callable[..., None], *args: object) -> Hunt:
    """A directed test."""

    def hunt(change: Change) -> None:
        with change():
            test(*args)

    return hunt


def crashes_of(name: str) -> Hunt:
    """Crash points of a scenario, on a disk that was prepared by the code as it is."""

    def hunt(change: Change) -> None:
        (scenario,) = [each for each in crash_scenarios.SCENARIOS if each.name == name]
        disk, base = scenario.prepared()
        with change():
            enumerate_crashes(
                scenario.run(base),
                scenario.check(base),
                disk=disk,
                outcomes_max=crash_scenarios.OUTCOMES_MAX,
            )

    return hunt


# -- mutants -----------------------------------------------------------------------------------


def each_stream_alone(right: Right) -> Right:
    def wrong(
        streams: Sequence[StreamSources], opened: OpenSegments, *, boundary: int
    ) -> list[Liveness]:
        return [right([stream], opened, boundary=boundary)[0] for stream in streams]

    return wrong


def deletes_forgotten(right: Right) -> Right:
    def wrong(*args: Any, **options: Any) -> Liveness:
        liveness: Liveness = right(*args, **{**options, "keep_deletes": False})
        return liveness

    return wrong


def all_epochs(right: Right) -> Right:
    def wrong(self: ChannelTail, epoch: int, limit: int) -> int:
        end: int = right(self, 1 << 62, limit)
        return end

    return wrong


def without_first_channel(right: Right) -> Right:
    def wrong(self: Any, epoch: int, batches: Any) -> Any:
        cut = right(self, epoch, batches)
        commits = tuple(commit for commit in cut.commits if commit.length)
        return type(cut)(cut.version, commits)

    return wrong


def without_file_ends(right: Right) -> Right:
    def wrong(*args: Any) -> Any:
        table = right(*args)
        table.stream_end = 0
        return table

    return wrong


def without_truncates(right: Right) -> Right:
    def wrong(self: NodeStore, frame: FrameWrite) -> None:
        if frame.truncates:
            self.apply(frame)  # In memory only.
        else:
            right(self, frame)

    return wrong


def final_name_at_once(right: Right) -> Right:
    def wrong(self: BlobStore, blob: int) -> str:
        right(self, blob)
        return self._file_path(blob)

    return wrong


def does(answer: Any) -> Callable[[Right], Right]:
    return lambda right: lambda *args, **options: answer


def boundary_as_it_is(right: Right) -> Right:
    return lambda boundary, streams: boundary


def half_flush_forgotten(right: Right) -> Right:
    def wrong(node: NodeStore, seen: Any) -> bool:
        node.half_flushed = False
        done: bool = right(node, seen)
        return done

    return wrong


MUTANTS: Final = (
    Mutant(
        "a delete is judged by its own channel alone",
        replaced(shared_keys, "compute_shared_liveness", each_stream_alone),
        story(test_shared_keys.test_a_delete_is_kept_while_another_channel_holds_what_it_hides),
    ),
    Mutant(
        "the delete of a storage is judged by its own channel alone",
        replaced(shared_keys, "compute_shared_liveness", each_stream_alone),
        story(
            test_shared_keys.test_a_delete_of_a_storage_is_kept_while_another_channel_holds_what_it_hides
        ),
    ),
    Mutant(
        "the boundary passes writes that wait for their epoch",
        replaced(shared_keys, "below_unordered", boundary_as_it_is),
        story(test_shared_keys.test_a_delete_is_kept_while_what_it_hides_is_not_recorded),
    ),
    Mutant(
        "what a failed flush left out counts as gone",
        replaced(maintenance, "snapshot_topic", half_flush_forgotten),
        story(
            test_shared_keys.test_a_delete_is_kept_while_what_it_hides_can_come_back_from_the_wal
        ),
    ),
    Mutant(
        "live indexes of one channel are computed without its deletes",
        replaced(stream_store, "compute_liveness", deletes_forgotten),
        story(
            test_shared_keys.test_live_indexes_that_are_computed_from_one_channel_keep_its_deletes
        ),
    ),
    Mutant(
        "writes below the boundary are taken",
        replaced(Unrecorded, "_check_versions", does(None)),
        story(test_shared_keys.test_a_write_at_or_below_the_boundary_is_refused),
    ),
    Mutant(
        "what is unrecorded is kept at a start",
        replaced(epoch_store, "drop_at_open", does(None)),
        story(
            test_epoch_store.test_what_was_not_recorded_never_returns_even_when_later_epochs_pass_its_number
        ),
    ),
    Mutant(
        "what is unrecorded is dropped in memory only",
        replaced(NodeStore, "write", without_truncates),
        crashes_of("dropping what is unrecorded"),
    ),
    Mutant(
        "a cut takes entries of later epochs",
        replaced(ChannelTail, "end_of", all_epochs),
        story(
            test_epoch_store.test_an_epoch_takes_the_entries_of_all_channels_up_to_it_and_no_later_ones
        ),
    ),
    Mutant(
        "an epoch that the first channel has nothing of is not remembered",
        replaced(epoch_writer.EpochWriter, "_decide", without_first_channel),
        story(test_epoch_store.test_an_epoch_without_entries_is_remembered),
    ),
    Mutant(
        "a recorded epoch takes further entries",
        replaced(Unrecorded, "_check_epoch", does(None)),
        story(test_epoch_store.test_epochs_do_not_go_back),
    ),
    Mutant(
        "record returns before the frame is synced",
        sync_left_out(Wal, "append"),
        crashes_of("flushes and records"),
    ),
    Mutant(
        "a WAL file does not know where the one before it had ended",
        replaced(Memtable, "ended_at", without_file_ends),
        story(test_epoch_store.test_wal_files_that_hold_what_was_cut_back_can_go_one_by_one),
    ),
    Mutant(
        "a BLOB has its name before it is whole",
        replaced(BlobStore, "_temporary", final_name_at_once),
        story(test_blob_store.test_a_crash_leaves_finished_blobs_whole_and_nothing_of_others),
    ),
    Mutant(
        "a BLOB has its name before its bytes are durable",
        sync_left_out(BlobWriter, "finish"),
        story(test_blob_store.test_a_crash_leaves_finished_blobs_whole_and_nothing_of_others),
    ),
    Mutant(
        "the name of a BLOB is not synced",
        sync_dir_left_out(BlobStore, "give_name"),
        story(test_blob_store.test_a_crash_leaves_finished_blobs_whole_and_nothing_of_others),
    ),
    Mutant(
        "the directory of a BLOB is not synced",
        sync_dir_left_out(BlobStore, "_make_directory"),
        story(test_blob_store.test_a_crash_leaves_finished_blobs_whole_and_nothing_of_others),
    ),
    Mutant(
        "BLOBs that no entry refers to yet are garbage",
        replaced(BlobStore, "held", does(False)),
        story(test_epoch_store.test_blobs_go_when_no_entry_refers_to_them_any_more),
    ),
)
