"""The modelled disk of a storage node keeps its own rules, or the simulation would blame others."""

from __future__ import annotations

import pytest

from tests.simulation.streams import STREAM, A, batch, image, log, write
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.output import Filled, HardState, Write
from tidelog.invariants import InvariantViolation
from tidelog.testing.chance import Chance
from tidelog.testing.faults import draw_plan
from tidelog.testing.journal import Journal
from tidelog.testing.sometimes import Kind, Sometimes
from tidelog.testing.storage_disk import StorageDisk
from tidelog.testing.world import SECOND, Process, World
from tidelog.types import Llsn, StreamId, Term

OTHER = StreamId(2)


def disk_of(seed: int = 1) -> tuple[World, StorageDisk, list[tuple[int, int]]]:
    """A disk, and the list of what it says to be durable."""
    world = World(Journal())
    process = Process(world, A)
    world.start(process)
    written: list[tuple[int, int]] = []
    chance = Chance(seed)
    disk = StorageDisk(
        process,
        draw_plan(Kind.CLUSTER, seed),
        chance.stream("delays"),
        chance.stream("losses"),
        Sometimes(),
        lambda stream, sequence: written.append((stream, sequence)),
    )
    return world, disk, written


def test_readers_see_a_write_before_it_is_durable() -> None:
    world, disk, written = disk_of()
    disk.add(STREAM, write(*log(1, 1)))
    assert (disk.seen(STREAM).end, disk.durable(STREAM).end) == (3, 1)
    assert not disk.is_clean(STREAM)
    world.run_until(SECOND)
    assert (disk.durable(STREAM).end, written) == (3, [(STREAM, 1)])
    assert disk.is_clean(STREAM)


def test_what_comes_while_a_group_is_synced_waits_for_the_next_one() -> None:
    world, disk, written = disk_of()
    disk.add(STREAM, write(*log(1)))
    disk.add(OTHER, write(*log(1)))
    disk.add(STREAM, write(batch(1, 2), sequence=2))
    world.run_until(SECOND)
    assert written == [(STREAM, 1), (OTHER, 1), (STREAM, 2)]


def test_a_crash_keeps_a_prefix_of_the_writes_over_all_replicas() -> None:
    found = set()
    for seed in range(30):
        _, disk, _ = disk_of(seed)
        disk.add(STREAM, write(*log(1)))
        disk.add(OTHER, write(*log(1)))
        disk.add(STREAM, write(batch(1, 2), sequence=2))
        disk.lose(power_lost=True)
        found.add((disk.seen(STREAM).end, disk.seen(OTHER).end))
    assert found == {(1, 1), (2, 1), (2, 2), (3, 2)}


def test_a_kill_keeps_what_the_machine_was_given() -> None:
    for seed in range(30):
        _, disk, _ = disk_of(seed)
        disk.add(STREAM, write(*log(1)))
        disk.add(OTHER, write(*log(1)))
        disk.lose(power_lost=False)
        assert disk.seen(STREAM).end == 2


def test_a_truncated_log_goes_on_with_other_entries() -> None:
    one = image(1, 1, 1)
    one.apply(Write(2, truncate_to=Llsn(2), batches=(batch(3, 2, "new"),)))
    assert (one.head.term, one.head.llsn) == (3, 2)
    assert one.stored().terms == ((1, 1), (3, 2))
    assert one.batch_at(2) == batch(3, 2, "new")


def test_what_is_ordered_is_never_truncated() -> None:
    with pytest.raises(InvariantViolation, match="I2"):
        image(1, 1, ordered=2).apply(Write(2, truncate_to=Llsn(2)))


def test_a_gap_is_allowed_only_where_a_synchronisation_says_so() -> None:
    with pytest.raises(InvariantViolation, match="I1"):
        image(1).apply(Write(2, batches=(batch(1, 5),)))
    one = image(1)
    one.apply(Write(2, batches=(batch(1, 5),), sparse=True))
    assert (one.batch_at(3), one.end) == (None, 6)


def test_compaction_keeps_the_terms_of_what_it_drops() -> None:
    one = image(1, 1, 2, 2, 3, ordered=4)
    one.compact(Llsn(4))
    assert [one.batch_at(llsn) is not None for llsn in range(1, 6)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert [one.term_at(llsn) for llsn in range(1, 6)] == [1, 1, 2, 2, 3]
    assert one.stored().snapshot_index == 4


def test_compaction_forgets_the_glsns_of_the_dead_but_between_live_ones_of_a_segment() -> None:
    one = image(*[1] * 9, ordered=9)
    other = one.copy()
    one.compact(Llsn(7), 100)
    assert one.runs(Llsn(1), Llsn(10)) == (GlsnRun(Llsn(3), 3, 7),), "from the first live one on"
    other.compact(Llsn(7))
    known = [run.llsn_begin for run in other.runs(Llsn(1), Llsn(10)) or ()]
    assert known == [3, 6, 8, 9], "each entry is in a segment of its own"


def test_a_trimmed_log_knows_the_term_before_its_first_entry() -> None:
    one = image(1, 2, 2, 3, ordered=4)
    one.apply(Write(2, trim_to=Llsn(3)))
    stored = one.stored()
    assert (stored.first, stored.end, stored.terms) == (3, 5, ((2, 2), (3, 4)))
    assert one.batches(Llsn(1), 1_000) == log(1, 2, 2, 3)[2:]
    assert one.holds(1, Term(9)), "what was ordered and trimmed is there in spirit"


def test_a_filled_log_is_what_its_leader_says() -> None:
    one = image()
    filled = Filled(Llsn(9), Llsn(8), ((Term(1), Llsn(1)), (Term(4), Llsn(6))), ())
    one.apply(Write(2, batches=(batch(1, 3),), sparse=True, filled=filled, state=b"state"))
    assert (one.end, one.snapshot_index, one.head.term, one.state()) == (9, 8, 4, b"state")
    assert one.term_at(7) == 4


def test_a_replica_that_is_half_filled_is_handed_over_as_not_sound_or_not_complete() -> None:
    one = image()
    one.apply(Write(2, hard_state=HardState(Term(3), False), batches=(batch(1, 4),), sparse=True))
    stored = one.stored()
    assert stored.hard_state == HardState(Term(3), False)


def test_an_image_goes_its_own_way() -> None:
    one = image(1, 1)
    other = one.copy()
    one.apply(write(batch(1, 3), sequence=2))
    assert (one.end, other.end) == (4, 3)
