"""Sequences of writes whose every crash point is tried, and what a start must find then.

A crash leaves exactly what the model has after some number of whole writes: at least those that
were synced, at most those that were begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.storage_replica.fillings import end_filling, fill
from tests.storage_replica.twin import (
    STREAM,
    TOPIC,
    Twin,
    check_seen,
    check_stored,
    control,
    open_disk,
    values,
)
from tidelog.core.replica.entries import NO_ENTRY, GlsnRun
from tidelog.core.replica.output import HardState, Write
from tidelog.storage.replica_disk import ReplicaDisk
from tidelog.testing.crash import Check, Journal, Run
from tidelog.testing.disk import SimDisk, SimVfs
from tidelog.testing.stream_image import StreamImage
from tidelog.types import Llsn, StreamId, Term

OUTCOMES_MAX: Final = 48
OTHER: Final = StreamId(2)

Steps: TypeAlias = Callable[[Twin], None]
Writes: TypeAlias = Sequence[tuple[StreamId, Write]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    operate: Steps
    prepare: Steps

    def prepared(self) -> tuple[SimDisk, list[tuple[StreamId, Write]]]:
        """A closed disk to begin from, and what was written to it."""
        twin = Twin()
        self.prepare(twin)
        twin.sync()
        twin.disk.close()
        return twin.sim, twin.history

    def run(self, base: Writes) -> Run:
        def run(vfs: SimVfs, journal: Journal) -> None:
            twin = Twin(vfs=vfs, history=list(base), journal=journal, lives=10)
            self.operate(twin)

        return run

    def check(self, base: Writes) -> Check:
        def check(vfs: SimVfs, journal: Journal) -> None:
            disk = open_disk(vfs, phase="check")
            kept = writes_kept(disk, base, journal)
            disk.close()
            disk = open_disk(vfs, phase="check again")
            assert holds(disk, kept) is None, "a second start found something else"
            check_goes_on(disk, kept)
            disk.close()

        return check


def writes_kept(disk: ReplicaDisk, base: Writes, journal: Journal) -> Writes:
    """The writes that are there, as a whole; a prefix of all that were begun."""
    synced = journal.acknowledged[-1] if journal.acknowledged else 0
    flaws = []
    for count in range(synced, len(journal.attempted) + 1):
        writes = [*base, *journal.attempted[:count]]
        flaw = holds(disk, writes)
        if flaw is None:
            return writes
        flaws.append(f"{count}: {flaw}")
    raise AssertionError(f"{synced} writes were synced, but none of these is there: {flaws}")


def holds(disk: ReplicaDisk, writes: Writes) -> str | None:
    """Why the disk does not hold what these writes make; None if it does."""
    images: dict[StreamId, StreamImage] = {}
    for stream, write in writes:
        images.setdefault(stream, StreamImage()).apply(write)
    try:
        check_stored(disk, images)
        check_seen(disk, images)
    except AssertionError as error:
        return str(error) or repr(error)
    return None


def check_goes_on(disk: ReplicaDisk, kept: Writes) -> None:
    """The next term can be written, and stays."""
    stored = disk.stored(STREAM)
    if stored.hard_state is None:
        return
    term = Term(stored.hard_state.term + 1)
    write = Write(1, drop=True, hard_state=HardState(term, is_complete=False, is_member=False))
    disk.begin(STREAM, TOPIC, write)
    disk.sync()
    assert holds(disk, [*kept, (STREAM, write)]) is None


# --- what is done ---


def begin(twin: Twin) -> None:
    twin.become_member()
    twin.append("a", "b", producer=3, sequence=1)
    twin.order()
    twin.append("c")


def with_segments(twin: Twin) -> None:
    begin(twin)
    twin.order(gap=5)
    twin.become_member(OTHER)
    twin.append("x", stream=OTHER)
    twin.order(stream=OTHER)
    twin.flush()
    twin.append("d", producer=3, sequence=2)
    twin.append("y", stream=OTHER)
    twin.order()


def write_several(twin: Twin) -> None:
    twin.append("d", producer=3, sequence=2)
    twin.append("e")
    twin.sync()
    twin.order()
    twin.write(hard_state=HardState(Term(2), is_complete=True))
    twin.sync()


def first_streams(twin: Twin) -> None:
    twin.become_member()
    twin.become_member(OTHER)
    twin.sync()
    twin.append("a")
    twin.sync()


def elect_and_cut(twin: Twin) -> None:
    twin.write(hard_state=HardState(Term(2), is_complete=True), truncate_to=3)
    twin.write(batches=[control(2, 3), values(2, 4, "d2")])
    twin.sync()
    twin.order()
    twin.sync()


def flush_all(twin: Twin) -> None:
    twin.order(stream=OTHER)
    twin.flush()
    twin.append("after")
    twin.sync()


def wipe(twin: Twin) -> None:
    state = HardState(Term(2), is_complete=False, had=NO_ENTRY)
    twin.write(wipe=True, hard_state=state)
    twin.sync()
    twin.disk.node.sweep_abandoned()
    twin.write(batches=[values(1, 9, "part")], sparse=True, runs=[GlsnRun(Llsn(9), 90, 1)])
    twin.sync()


def fill_up(twin: Twin) -> None:
    twin.order(stream=OTHER)
    fill(twin)
    twin.sync()
    twin.disk.node.sweep_abandoned()
    twin.flush()


def fill_twice(twin: Twin) -> None:
    twin.order(stream=OTHER)
    twin.write(wipe=True, hard_state=HardState(Term(2), is_complete=False, had=NO_ENTRY))
    twin.write(batches=[values(1, 1, "stale")], sparse=True, runs=[GlsnRun(Llsn(1), 1, 1)])
    twin.flush()
    twin.write(truncate_to=1)
    twin.write(batches=[values(1, 1, "new")], sparse=True, runs=[GlsnRun(Llsn(1), 5, 1)])
    twin.sync()
    twin.store().sweep()
    twin.flush()


def fill_beyond(twin: Twin) -> None:
    """What is ordered stays until the last part trims it."""
    twin.order(stream=OTHER)
    end = twin.image().context.llsn_end
    state = HardState(Term(2), is_complete=False, had=NO_ENTRY)
    twin.write(hard_state=state, truncate_to=end)
    twin.write(batches=[values(1, 40, "stale")], sparse=True, runs=[GlsnRun(Llsn(40), 49, 1)])
    twin.flush()
    twin.write(truncate_to=end)
    end_filling(twin, first=40)
    twin.sync()
    twin.store().sweep()
    twin.flush()


def trim_and_flush(twin: Twin) -> None:
    twin.order(stream=OTHER)
    twin.write(trim_to=3)
    twin.flush()
    twin.snapshot()


def drop(twin: Twin) -> None:
    twin.write(drop=True, hard_state=HardState(Term(4), is_complete=False, is_member=False))
    twin.sync()
    twin.disk.node.sweep_abandoned()
    twin.become_member(term=5)
    twin.append("again", term=5)
    twin.flush()


def carry(twin: Twin) -> None:
    """Entries that wait to be ordered while the WAL rolls twice."""
    twin.append("waits")
    twin.sync()
    for text in ("p", "q", "r"):
        twin.disk.roll()
        twin.append(text, stream=OTHER)
        twin.order(stream=OTHER)
        twin.sync()
    while twin.disk.node.flush_oldest():
        pass
    twin.order()
    twin.sync()


SCENARIOS: Final = (
    Scenario("the first streams", first_streams, lambda twin: None),
    Scenario("several writes", write_several, begin),
    Scenario("an election that cuts", elect_and_cut, begin),
    Scenario("a flush", flush_all, with_segments),
    Scenario("a wipe", wipe, with_segments),
    Scenario("a synchronisation", fill_up, with_segments),
    Scenario("a synchronisation that begins anew", fill_twice, with_segments),
    Scenario("a synchronisation beyond the log", fill_beyond, with_segments),
    Scenario("a trim", trim_and_flush, with_segments),
    Scenario("a drop", drop, with_segments),
    Scenario("entries that wait for long", carry, with_segments),
)
