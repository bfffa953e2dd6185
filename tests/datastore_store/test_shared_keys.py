"""Keys that are written on several log channels: the greatest version wins, and nothing comes back.

A state machine compares the store with a model after each of any mix of writes, deletes, epochs,
aborts, GC boundaries, flushes, snapshots, compactions, restarts and crashes.
"""

from __future__ import annotations

import errno

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.datastore_store.stores import (
    Tried,
    delete,
    delete_storage,
    maintenance_of,
    node_of,
    present,
    put,
    roll_and_flush,
    streams_of,
)
from tidelog.errors import DiskFull, StaleWrite
from tidelog.formats.entry import Entry, Kind
from tidelog.storage.compaction import compact_major
from tidelog.testing.disk import Choice, Op

CHANNELS = 3
KEYS = ["a", "b"]
STORAGES = [1, 9]

channels = st.integers(0, CHANNELS - 1)
wishes = st.lists(
    st.tuples(
        st.sampled_from([Kind.PUT, Kind.PUT, Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE]),
        st.sampled_from(KEYS),
        st.sampled_from([1, 1, 1, 9]),
        st.integers(1, 6),
    ),
    min_size=1,
    max_size=3,
)
Wishes = list[tuple[Kind, str, int, int]]


class SharedKeysMachine(RuleBasedStateMachine):
    """Versions are given relative to the boundary, so that none is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.tried = Tried(channels=CHANNELS)
        self.written = 0

    def entries(self, wanted: Wishes) -> list[Entry]:
        made = []
        for kind, key, storage, ahead in wanted:
            self.written += 1
            version = self.tried.store.boundary + ahead
            if kind is Kind.PUT:
                blobs = (self.blob(),) if ahead % 3 == 0 else ()
                made.append(put(key, str(self.written), version, storage=storage, blobs=blobs))
            elif kind is Kind.DELETE:
                made.append(delete(key, version, storage=storage))
            else:
                made.append(delete_storage(version, storage=storage))
        return made

    def blob(self) -> int:
        blobs = self.tried.store.blobs
        number = blobs.next_id()
        with blobs.begin(number, 1) as writer:
            writer.write(0, b"b")
            writer.finish()
        return number

    @rule(channel=channels, wanted=wishes, ahead=st.sampled_from([1, 1, 1, 2]))
    def write(self, channel: int, wanted: Wishes, ahead: int) -> None:
        waiting = [w.epoch for w in self.tried.model.waiting if w.channel == channel]
        epoch = max([self.tried.model.epoch + ahead, *waiting])
        self.tried.write(channel, epoch, *self.entries(wanted))

    @rule(channel=channels, wanted=wishes)
    def write_segment(self, channel: int, wanted: Wishes) -> None:
        self.write(channel, wanted, 1)
        self.record(1)
        self.flush_wal()

    @rule(channel=channels)
    def flush(self, channel: int) -> None:
        self.tried.store.flush(channel)

    @rule(ahead=st.sampled_from([1, 1, 2, 3]))
    def record(self, ahead: int) -> None:
        self.tried.record(self.tried.model.epoch + ahead)

    @rule(channel=channels, flushed=st.booleans())
    def abort(self, channel: int, flushed: bool) -> None:
        """Of what waits on a channel, all but the first batch goes."""
        if flushed:
            self.tried.store.flush(channel)
        tail = self.tried.store._unrecorded.tail(channel)
        if tail.batches:
            self.tried.cut(channel, tail.batches[0].stored.end_llsn)

    @rule()
    def drop_unrecorded(self) -> None:
        self.tried.store.drop_unrecorded()
        self.tried.model.waiting = []

    @rule(ahead=st.integers(0, 7))
    def set_boundary(self, ahead: int) -> None:
        self.tried.store.set_boundary(self.tried.store.boundary + ahead)

    @rule()
    def flush_wal(self) -> None:
        roll_and_flush(self.tried.store)

    @rule()
    def snapshot(self) -> None:
        self.tried.snapshot()

    @rule(channel=channels)
    def minor(self, channel: int) -> None:
        maintenance_of(self.tried.store).minor(streams_of(self.tried.store)[channel])

    @rule(channel=channels, full=st.booleans(), bytes_max=st.sampled_from([600, 2000, 1 << 20]))
    def major(self, channel: int, full: bool, bytes_max: int) -> None:
        stream = streams_of(self.tried.store)[channel]
        assert not compact_major(stream, full=full, bytes_max=bytes_max).failures
        stream.sweep()
        maintenance_of(self.tried.store)._note_gone(stream)

    @rule(full=st.booleans())
    def compact(self, full: bool) -> None:
        assert not self.tried.store.compact(full=full).failures
        referred = {blob for _, _, _, entry in present(self.tried.store) for blob in entry.blobs}
        waiting = {blob for write in self.tried.model.waiting for blob in write.entry.blobs}
        assert set(self.tried.store.blobs.ids()) == referred | waiting

    @rule()
    def reopen(self) -> None:
        self.tried.reopen()

    @rule(kept=st.sampled_from([Choice.LOST, Choice.KEPT]))
    def crash(self, kept: Choice) -> None:
        self.tried.crash(kept)

    @rule(channel=channels)
    def lose_live_indexes(self, channel: int) -> None:
        """The file is damaged; the next start computes it anew, from one channel alone."""
        self.tried.store.close()
        directory = streams_of(self.tried.store)[channel].place.directory
        vfs = self.tried.disk.vfs()
        for name in vfs.list_dir(directory):
            if name.endswith(".live"):
                vfs.unlink(f"{directory}/{name}")
        self.tried._open(self.tried.disk)

    @invariant()
    def shows_what_was_recorded(self) -> None:
        self.tried.check()
        for _, _, blobs in self.tried.model.shown().values():
            assert all(self.tried.store.blobs.size(blob) == 1 for blob in blobs)


def test_the_store_shows_what_a_model_says() -> None:
    run_state_machine_as_test(
        SharedKeysMachine,
        settings=settings(max_examples=50, stateful_step_count=30, deadline=None),
    )


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_store_shows_what_a_model_says_for_long() -> None:
    run_state_machine_as_test(
        SharedKeysMachine,
        settings=settings(max_examples=1500, stateful_step_count=50, deadline=None),
    )


histories = st.lists(
    st.tuples(channels, wishes, st.booleans(), st.sampled_from(["", "", "snapshot", "compact"])),
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(histories)
def test_below_a_boundary_at_the_top_all_that_is_dead_goes(
    history: list[tuple[int, Wishes, bool, str]],
) -> None:
    machine = SharedKeysMachine()
    tried = machine.tried
    for channel, wanted, in_segment, then in history:
        machine.write(channel, wanted, 1)
        machine.record(1)
        if in_segment:
            machine.flush_wal()
        if then == "snapshot":
            machine.snapshot()
        elif then == "compact":
            machine.compact(True)
    tried.store.set_boundary(1000)
    # The newest segment of a channel is never touched: markers stand for it.
    for number in range(4):
        for channel in range(CHANNELS):
            tried.write(channel, tried.model.epoch + 1, put(f"marker {channel}", "", 1001 + number))
        machine.record(1)
        assert not tried.store.compact(full=True).failures
    tried.check()
    left = [
        (entry.storage_id, entry.key, entry.kind, entry.write_version)
        for channel, number, _, entry in present(tried.store)
        if number not in (0, streams_of(tried.store)[channel].view.newest_segment)
        and not entry.key.startswith(b"marker")
    ]
    live = [
        (storage, key, Kind.PUT, version)
        for (storage, key), (_, version, _) in tried.model.shown().items()
        if not key.startswith(b"marker")
    ]
    assert sorted(left) == sorted(live)


# -- single stories ------------------------------------------------------------------------------


def kept_below_the_newest(tried: Tried) -> list[tuple[int, Kind, bytes]]:
    return [
        (channel, entry.kind, entry.key)
        for channel, _, _, entry in present(tried.store)
        if not entry.key.startswith(b"last")
    ]


def close_segments(tried: Tried, version: int = 100) -> None:
    """So that what came before is not in the newest segment of its channel."""
    for channel in range(tried.channels):
        tried.write(channel, tried.model.epoch + 1, put(f"last {channel}", "", version))
    tried.record(tried.model.epoch + 1)
    roll_and_flush(tried.store)


def test_a_delete_is_kept_while_another_channel_holds_what_it_hides() -> None:
    tried = Tried(channels=2)
    tried.segment(0, put("a", "old", 5))
    tried.segment(1, delete("a", 8))
    close_segments(tried)
    # Nothing is dead by this boundary but what the delete hides.
    tried.store.set_boundary(50)
    tried.snapshot()
    assert tried.store.get(1, b"a") is None
    assert (1, Kind.DELETE, b"a") in kept_below_the_newest(tried)
    # The put went by the snapshot; the delete goes by the next one.
    tried.snapshot()
    maintenance_of(tried.store).major(streams_of(tried.store)[1], full=True)
    assert kept_below_the_newest(tried) == []
    tried.check()
    tried.reopen()
    tried.check()


def test_a_delete_is_kept_while_what_it_hides_is_not_recorded() -> None:
    """J2: a write below the boundary that waits in another channel when the delete is recorded."""
    tried = Tried(channels=2)
    tried.segment(1, delete("a", 8))
    tried.segment(1, put("last", "", 100))
    tried.write(0, tried.model.epoch + 5, put("a", "late", 5))
    tried.store.set_boundary(50)
    tried.store.compact(full=True)
    tried.store.compact(full=True)
    assert tried.store.get(1, b"a") is None
    tried.record(tried.model.epoch + 5)
    tried.check()
    assert tried.store.get(1, b"a") is None


def test_a_delete_of_a_storage_is_kept_while_another_channel_holds_what_it_hides() -> None:
    tried = Tried(channels=3)
    tried.segment(2, put("a", "old", 5), put("b", "old", 7))
    tried.segment(0, delete_storage(6))
    close_segments(tried)
    tried.store.set_boundary(50)
    tried.snapshot()
    tried.check()
    assert (0, Kind.DELETE_STORAGE, b"") in kept_below_the_newest(tried)
    for _ in range(3):
        tried.store.compact(full=True)
    assert kept_below_the_newest(tried) == [(2, Kind.PUT, b"b")]
    tried.check()


def test_writes_of_one_version_are_ordered_by_place_and_channel_everywhere() -> None:
    """What readers show is what compaction keeps."""
    tried = Tried(channels=3)
    tried.segment(2, put("a", "place 1, channel 2", 5), put("b", "x", 5))
    tried.segment(0, put("b", "x", 4), put("a", "place 2, channel 0", 5))
    tried.segment(1, put("c", "x", 5), put("a", "place 2, channel 1", 5))
    before = tried.store.get(1, b"a")
    assert before is not None
    assert before.value == b"place 2, channel 1"
    close_segments(tried)
    tried.store.set_boundary(50)
    tried.store.compact(full=True)
    tried.check()
    assert tried.store.get(1, b"a") == before


def test_a_delete_is_kept_while_what_it_hides_can_come_back_from_the_wal() -> None:
    """A flush left the hidden write out and then failed: its WAL file is still needed (J3)."""
    tried = Tried(channels=2)
    tried.segment(1, delete("a", 8))
    tried.segment(1, put("last", "", 100))
    tried.commit(0, put("a", "old", 5))
    tried.commit(1, put("b", "1", 101))
    tried.store.set_boundary(50)
    tried.snapshot()
    tried.disk.fail(Op.CREATE, f"{3:016d}.segment.tmp", errno.ENOSPC, times=10)
    node_of(tried.store).wal.roll()
    with pytest.raises(DiskFull):
        maintenance_of(tried.store).flush_rolled()
    tried.commit(1, put("c", "1", 102))
    tried.snapshot()
    maintenance_of(tried.store).major(streams_of(tried.store)[1], full=True)
    tried.check()
    tried.crash()
    tried.check()
    for _ in range(3):
        tried.store.compact(full=True)
        tried.check()


def test_a_write_at_or_below_the_boundary_is_refused() -> None:
    tried = Tried(channels=1)
    tried.store.set_boundary(7)
    with pytest.raises(StaleWrite, match="write version 7 is not above the GC boundary 7"):
        tried.write(0, 1, put("b", "x", 9), put("a", "x", 7))
    assert tried.store.end_llsn(0) == 1
    tried.commit(0, put("a", "x", 8))
    tried.check()


def test_live_indexes_that_are_computed_from_one_channel_keep_its_deletes() -> None:
    tried = Tried(channels=2)
    tried.segment(0, put("a", "old", 5))
    tried.segment(1, delete("a", 8), delete_storage(3, storage=4))
    close_segments(tried)
    tried.store.set_boundary(50)
    tried.snapshot()
    tried.store.close()
    directory = streams_of(tried.store)[1].place.directory
    vfs = tried.disk.vfs()
    (name,) = [name for name in vfs.list_dir(directory) if name.endswith(".live")]
    vfs.unlink(f"{directory}/{name}")
    tried._open(tried.disk)
    live = streams_of(tried.store)[1].snapshot.live
    assert {1, 2} <= set(live)
    tried.check()


def test_snapshots_of_channels_without_entries_are_not_needed() -> None:
    tried = Tried(channels=3)
    tried.segment(1, put("a", "x", 1))
    tried.snapshot()
    assert [stream.snapshot.index for stream in streams_of(tried.store)] == [0, 1, 0]
    tried.reopen()
    tried.check()
