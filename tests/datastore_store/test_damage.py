"""Damage in what was recorded is found, never a silent loss; damage behind it costs nothing.

Each kind of damage is tried at every place of a region: zeros to the end of the file, the file cut
off, a flipped bit.  Unrecorded entries were never promised, so damage there may take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.datastore_store.stores import Shown, Tried, append, node_of, open_store, put, shown
from tidelog.errors import CorruptData
from tidelog.formats.wal import FILE_HEADER_BYTES, FRAME_MAGIC
from tidelog.testing.disk import SimDisk

STEP: Final = 7
"""Places lie so many bytes apart."""


def zeros(disk: SimDisk, path: str, place: int) -> None:
    length = len(disk.files()[path])
    disk.truncate(path, place)
    file = disk.vfs().open(path, write=True)
    file.write_at(place, (bytes(length - place),))
    file.sync()


def cut_off(disk: SimDisk, path: str, place: int) -> None:
    disk.truncate(path, place)


def flipped(disk: SimDisk, path: str, place: int) -> None:
    disk.flip_bit(path, place, place % 8)


DAMAGE: Final = (zeros, cut_off, flipped)
Damage = Callable[[SimDisk, str, int], None]


@dataclass
class Written:
    """A store that was stopped, and where its bytes lie."""

    disk: SimDisk
    recorded: Shown
    path: str
    begin: int
    end: int

    def places(self) -> Iterator[tuple[int, SimDisk]]:
        for place in range(self.begin, self.end, STEP):
            yield place, self.disk.copy()


def wal_end(tried: Tried) -> int:
    """Where the next frame will begin."""
    return node_of(tried.store).wal._offset


def written(*, unrecorded: bool, closed: bool) -> Written:
    """Two recorded epochs in the WAL and, if asked for, entries of a third behind them."""
    tried = Tried(channels=2)
    for epoch in (1, 2):
        tried.write(0, epoch, put("a", f"recorded {epoch}", epoch))
        tried.write(1, epoch, put("b", f"recorded {epoch}", epoch))
        tried.store.flush(1)
        tried.record(epoch)
    (path,) = [path for path in tried.disk.files() if path.endswith(".wal")]
    recorded_end = wal_end(tried)
    if unrecorded:
        tried.write(0, 3, put("a", "unrecorded", 3))
        tried.store.flush(0)
        tried.write(1, 3, put("b", "unrecorded", 3))
        tried.store.flush(1)
    recorded, end = tried.model.shown(), wal_end(tried)
    if closed:
        tried.store.close()
    disk = tried.disk.after_crash()
    begin = recorded_end if unrecorded else FILE_HEADER_BYTES
    return Written(disk, recorded, path, begin, end)


def check_opens_with(disk: SimDisk, recorded: Shown, place: int) -> None:
    store = open_store(disk.vfs(), create=False)
    assert shown(store) == recorded, f"damage at {place}"
    append(store, 0, 7, put("goes on", "1", 99))
    store.record(7)
    again = open_store(disk.after_crash().vfs(), create=False)
    assert shown(again) == {**recorded, (1, b"goes on"): (b"1", 99, ())}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_behind_the_last_recorded_epoch_costs_nothing(damage: Damage) -> None:
    """What a crash can leave of frames that nothing follows: the last unrecorded frame."""
    found = written(unrecorded=True, closed=False)
    frames = [place for place in range(found.begin, found.end) if _is_frame(found, place)]
    found.begin = frames[-1]
    tried = 0
    for place, disk in found.places():
        damage(disk, found.path, place)
        check_opens_with(disk, found.recorded, place)
        tried += 1
    assert tried > 10


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_between_unrecorded_frames_is_told_or_costs_nothing(damage: Damage) -> None:
    found = written(unrecorded=True, closed=False)
    for place, disk in found.places():
        damage(disk, found.path, place)
        try:
            store = open_store(disk.vfs(), create=False)
        except CorruptData:
            continue
        assert shown(store) == found.recorded, f"damage at {place}"


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_of_recorded_epochs_in_the_wal_is_found(damage: Damage) -> None:
    """The store was closed, so the manifest knows how far the WAL was durable."""
    found = written(unrecorded=False, closed=True)
    tried = 0
    for place, disk in found.places():
        damage(disk, found.path, place)
        if disk.files() == found.disk.files():
            continue  # Zeros in the place of zeros.
        with pytest.raises(CorruptData):
            open_store(disk.vfs(), create=False)
        tried += 1
    assert tried > 30


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_of_recorded_epochs_in_a_segment_is_found(damage: Damage) -> None:
    tried = Tried(channels=2)
    tried.segment(0, put("a", "1", 1), put("b", "1", 2))
    tried.segment(1, put("c", "1", 3))
    recorded = tried.model.shown()
    tried.store.close()
    path = next(path for path in sorted(tried.disk.files()) if path.endswith(".segment"))
    places = range(0, len(tried.disk.files()[path]), STEP)
    for place in places:
        disk = tried.disk.copy()
        damage(disk, path, place)
        try:
            store = open_store(disk.vfs(), create=False)
            seen = shown(store)
        except CorruptData:
            continue
        # Zeros in the place of zeros, or bytes that nobody needs.
        assert seen == recorded, f"damage at {place} is a silent loss"


@pytest.mark.parametrize("suffix", [".segment", ".wal", "manifest"])
def test_a_file_that_is_missing_is_found(suffix: str) -> None:
    tried = Tried(channels=2)
    tried.segment(0, put("a", "1", 1))
    tried.segment(0, put("b", "1", 2))
    tried.commit(1, put("c", "1", 3))
    tried.store.close()
    for path in [path for path in tried.disk.files() if path.endswith(suffix)]:
        disk = tried.disk.copy()
        disk.vfs().unlink(path)
        with pytest.raises(CorruptData):
            open_store(disk.vfs())


def test_a_missing_snapshot_costs_nothing() -> None:
    tried = Tried(channels=2)
    tried.segment(0, put("a", "1", 1))
    tried.segment(1, put("a", "2", 2))
    tried.snapshot()
    tried.store.close()
    for suffix in (".live", ".snapshot"):
        for path in [path for path in tried.disk.files() if path.endswith(suffix)]:
            tried.disk.vfs().unlink(path)
        tried._open(tried.disk)
        tried.check()
        tried.store.close()


def _is_frame(found: Written, place: int) -> bool:
    return found.disk.files()[found.path][place : place + 4] == FRAME_MAGIC
