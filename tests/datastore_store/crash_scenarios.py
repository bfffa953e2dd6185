"""What a datastore does to its disk, for the tests that stop it at every call.

A journal has as attempted each epoch whose record was begun, with all that is to be shown then; as
acknowledged those whose record returned, and the boundaries that were set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from tests.crash.repeatable import CHANCE
from tests.datastore_store.stores import (
    Model,
    Shown,
    append,
    delete,
    delete_storage,
    open_store,
    put,
    roll_and_flush,
    shown,
    streams_of,
)
from tidelog.datastore.epoch_store import EpochStore
from tidelog.formats.entry import Entry
from tidelog.testing.crash import Check, Journal
from tidelog.testing.disk import SimDisk, SimVfs

OUTCOMES_MAX: Final = 24
FILL: Final = "f" * 40_000
"""With this in it a WAL file has no room for another one."""


class Recorded(NamedTuple):
    """What is shown once an epoch is recorded."""

    epoch: int
    shown: Shown


class Bounded(NamedTuple):
    boundary: int


@dataclass
class Actor:
    """Changes a store, and keeps the journal."""

    store: EpochStore
    journal: Journal
    model: Model = field(default_factory=Model)

    def write(self, channel: int, epoch: int, *entries: Entry) -> None:
        llsn = self.store.end_llsn(channel)
        append(self.store, channel, epoch, *entries)
        self.model.append(channel, epoch, llsn, *entries)

    def record(self, epoch: int) -> None:
        self.model.record(epoch)
        recorded = Recorded(epoch, self.model.shown())
        self.journal.attempted.append(recorded)
        self.store.record(epoch)
        self.journal.acknowledged.append(recorded)

    def commit(self, channel: int, *entries: Entry) -> None:
        epoch = self.model.epoch + 1
        self.write(channel, epoch, *entries)
        self.record(epoch)

    def segment(self, channel: int, *entries: Entry) -> None:
        self.commit(channel, *entries)
        roll_and_flush(self.store)

    def cut(self, channel: int, llsn_end: int) -> None:
        self.store.cut(channel, llsn_end)
        self.model.cut(channel, llsn_end)

    def set_boundary(self, version: int) -> None:
        self.store.set_boundary(version)
        self.journal.acknowledged.append(Bounded(version))

    def blob(self, blob: int, data: bytes) -> None:
        with self.store.blobs.begin(blob, len(data)) as writer:
            writer.write(0, data)
            writer.finish()


Steps: TypeAlias = Callable[[Actor], None]


def blob_data(blob: int) -> bytes:
    return b"blob %d " % blob * 100


# -- steps ---------------------------------------------------------------------------------------


def nothing(actor: Actor) -> None:
    """Begin with an empty disk."""


def some(actor: Actor) -> None:
    actor.store.make_channels(2)
    actor.write(0, 1, put("a", "1", 1), put("b", "1", 2))
    actor.write(1, 1, put("c", "1", 3))
    actor.record(1)


def segments(actor: Actor) -> None:
    """Keys that are set and deleted on both channels, over several segments."""
    some(actor)
    actor.segment(0, put("a", "2", 10), put("d", "1", 11))
    actor.segment(1, delete("a", 12), put("b", "2", 13))
    actor.segment(0, delete("b", 14), put("x", "1", 15, storage=9))
    actor.segment(1, delete_storage(16, storage=9), put("a", "3", 17))
    actor.commit(0, put("e", "1", 18))


def create(actor: Actor) -> None:
    actor.store.make_channels(2)
    actor.write(1, 3, put("a", "1", 1))
    actor.record(3)
    actor.store.make_channels(3)
    actor.write(2, 4, put("b", "1", 2))
    actor.record(5)


def flush_and_record(actor: Actor) -> None:
    """Epochs overlap: what is of a later one waits for it."""
    actor.write(0, 2, put("a", "2", 20))
    actor.store.flush(0)
    actor.write(1, 3, put("c", "2", 21))
    actor.store.flush(1)
    actor.write(0, 3, delete("b", 22))
    actor.record(2)
    actor.record(4)
    actor.write(1, 5, put("never recorded", "1", 23))
    actor.store.flush(1)


def cut_back(actor: Actor) -> None:
    actor.write(0, 2, put("a", "aborted", 20))
    begin = actor.store.end_llsn(0)
    actor.store.flush(0)
    actor.write(0, 2, put("a", "aborted as well", 21))
    actor.write(1, 2, put("c", "2", 22))
    actor.cut(0, begin - 1)
    actor.write(0, 2, put("b", "2", 23))
    actor.record(2)


def session_across_files(actor: Actor) -> None:
    """A log session that is open while the WAL goes on to other files, and a compaction runs."""
    actor.write(0, 2, put("a", "2", 20))
    actor.store.flush(0)
    actor.write(0, 2, put("big", FILL, 21))
    actor.store.flush(0)
    actor.write(0, 2, put("bigger", FILL, 22))
    actor.store.flush(0)
    actor.store.compact(full=True)
    actor.write(0, 2, put("c", "2", 23))
    actor.record(2)
    actor.store.compact(full=True)


def cut_across_files(actor: Actor) -> None:
    """What is cut back lies in several WAL files, some of which go before the others."""
    begin = actor.store.end_llsn(0)
    for number in range(3):
        actor.write(0, 2, put("aborted", FILL, 20 + number))
        actor.store.flush(0)
    actor.cut(0, begin)
    actor.write(0, 2, put("a", "2", 30))
    actor.record(2)
    roll_and_flush(actor.store)
    actor.commit(1, put("c", "2", 31))


def drop(actor: Actor) -> None:
    actor.write(0, 2, put("a", "dropped", 20))
    actor.write(1, 3, put("c", "dropped", 21))
    actor.store.flush(1)
    actor.store.drop_unrecorded()
    actor.model.waiting = []
    actor.write(1, 2, put("c", "2", 22))
    actor.record(2)


def unrecorded_left(actor: Actor) -> None:
    """Entries in two WAL files that no epoch took."""
    some(actor)
    actor.write(0, 2, put("a", FILL, 20))
    actor.write(1, 2, put("c", "unrecorded", 21))
    actor.store.flush(0)
    actor.write(0, 2, put("b", FILL, 22))
    actor.store.flush(0)


def go_on(actor: Actor) -> None:
    actor.write(0, 2, put("b", "2", 23))
    actor.record(2)
    roll_and_flush(actor.store)


def compact(actor: Actor) -> None:
    actor.set_boundary(17)
    actor.store.compact(full=True)
    actor.store.compact(full=True)
    actor.commit(1, put("d", "2", 30))


def with_blobs(actor: Actor) -> None:
    some(actor)
    actor.blob(1, blob_data(1))
    actor.segment(0, put("with blob", "1", 10, blobs=(1,)))
    actor.segment(0, put("f", "1", 11))


def blobs_come_and_go(actor: Actor) -> None:
    actor.blob(2, blob_data(2))
    actor.write(1, actor.model.epoch + 1, put("with blob", "2", 20, blobs=(2,)))
    actor.record(actor.model.epoch + 1)
    actor.set_boundary(20)
    for number in range(3):
        actor.commit(0, put("g", str(number), 30 + number))
        actor.store.compact(full=True)
    assert actor.store.blobs.ids() == [2]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    operate: Steps
    prepare: Steps = some
    every: int = 1
    """The crash is tried at every call, or at every second one, ..., if time is short."""

    def prepared(self) -> tuple[SimDisk, Actor]:
        """A disk with a closed store, and who wrote it."""
        disk = SimDisk()
        CHANCE.begin("prepare")
        if self.prepare is nothing:
            return disk, Actor(open_store(SimDisk().vfs()), Journal())
        actor = Actor(open_store(disk.vfs()), Journal())
        self.prepare(actor)
        actor.store.close()
        return disk, actor

    def run(self, base: Actor) -> Callable[[SimVfs, Journal], None]:
        def run(vfs: SimVfs, journal: Journal) -> None:
            CHANCE.begin("run")
            actor = Actor(open_store(vfs), journal)
            actor.model = Model(list(base.model.recorded), [], base.model.epoch)
            self.operate(actor)
            actor.store.close()

        return run

    def check(self, base: Actor) -> Check:
        """The store shows exactly the recorded epochs, and can go on."""

        def check(vfs: SimVfs, journal: Journal) -> None:
            CHANCE.begin("check")
            before = [note for note in base.journal.acknowledged if isinstance(note, Recorded)]
            store = open_store(vfs)
            check_recorded(store, before, journal)
            check_goes_on(vfs, store)

        return check


def check_recorded(store: EpochStore, before: list[Recorded], journal: Journal) -> None:
    known = [note for note in journal.acknowledged if isinstance(note, Recorded)]
    last = (before + known or [Recorded(0, {})])[-1]
    possible = [last, *journal.attempted[len(known) :]]
    assert len(possible) <= 2
    (found,) = [each for each in possible if each.epoch == store.epoch] or [None]
    assert found is not None, (
        f"epoch {store.epoch} was found, {[e.epoch for e in possible]} expected"
    )
    assert shown(store) == found.shown
    for _, _, blobs in found.shown.values():
        for blob in blobs:
            with store.blobs.open(blob) as reader:
                assert reader.read_at(0, reader.size) == blob_data(blob)
    boundaries = [note.boundary for note in journal.acknowledged if isinstance(note, Bounded)]
    assert store.boundary >= max(boundaries, default=0)
    for stream in streams_of(store):
        assert stream.end_llsn == stream.ordered_end, "unrecorded entries are left"


def check_goes_on(vfs: SimVfs, store: EpochStore) -> None:
    """What is recorded now survives the next power loss, with all that was there."""
    expected = shown(store)
    append(store, 0, store.epoch + 1, put("goes on", "1", 1000))
    store.record(store.epoch + 1)
    expected[1, b"goes on"] = (b"1", 1000, ())
    CHANCE.begin("again")
    again = open_store(vfs.disk.after_crash().vfs(), create=False)
    assert shown(again) == expected
    again.close()


SCENARIOS: Final = (
    Scenario("making a datastore", create, nothing),
    Scenario("flushes and records", flush_and_record),
    Scenario("cutting back", cut_back),
    Scenario("a session across files", session_across_files, every=7),
    Scenario("cutting back across files", cut_across_files, every=2),
    Scenario("dropping what is unrecorded", drop),
    Scenario("a start that drops entries", go_on, unrecorded_left, every=3),
    Scenario("boundary and compaction", compact, segments, every=7),
    Scenario("BLOBs", blobs_come_and_go, with_blobs, every=9),
)
