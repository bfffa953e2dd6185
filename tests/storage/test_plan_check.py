"""A compaction plan that others made is checked claim by claim: nothing live ever goes by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest
from pyroaring import BitMap64

from tests.storage.streams import Streams, delete, delete_storage, put, puts, value
from tests.storage.test_liveness import liveness, random_entry, random_story
from tidelog.errors import PlanRefused
from tidelog.formats.compaction_plan import StreamPlan, encode_plan
from tidelog.formats.entry import Kind
from tidelog.storage.liveness import MemorySource, StreamSources
from tidelog.storage.plan_check import CheckedPlan, apply_plan, check_plan, read_plan

WHOLE = 1 << 20


def plan_of(story: Streams, dead: Iterable[int]) -> StreamPlan:
    """A plan with these claims, under what holds now."""
    store = story.store()
    return StreamPlan(
        log_id=story.node.manifest.log_id,
        stream=store.stream,
        index=store.ordered_end - 1,
        boundary=store.current_boundary(),
        dead=BitMap64(dead),
    )


def checked(story: Streams, plan: StreamPlan, rows_max: int = WHOLE) -> CheckedPlan:
    """What is live by a plan, without doing anything by it."""
    store = story.store()
    index = store.ordered_end - 1
    memory = MemorySource.of(store.view.memtables, index, store.place.hash_seed)
    stream = StreamSources(store.view.segments, memory, index, store.trim_llsn_end)
    return check_plan(stream, store.opened, plan, rows_max=rows_max)


def compact_by(story: Streams, plan: StreamPlan) -> CheckedPlan:
    outcome = apply_plan(story.store(), plan, story.node.manifest.log_id)
    story.flush()
    story.minor()
    story.major(full=True)
    return outcome


def dead_of(story: Streams) -> list[int]:
    """What the engine itself finds dead, of what is there."""
    return [llsn for llsn in story.read() if llsn not in liveness(story, WHOLE).live]


# -- equal to the engine ---------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_what_the_engine_would_drop_is_accepted_with_the_same_outcome(
    seed: int, versions: bool
) -> None:
    story = random_story(seed, versions)
    plan = plan_of(story, dead_of(story))
    for rows_max in (WHOLE, 20, 3, 1):
        found = checked(story, plan, rows_max)
        assert found.liveness == liveness(story, WHOLE), rows_max
        assert (found.dead, found.doubtful) == (len(plan.dead), 0)


@pytest.mark.parametrize("seed", range(2))
def test_a_stream_that_was_compacted_by_plans_is_as_if_by_its_own_snapshots(seed: int) -> None:
    random = Random(seed)
    ours, other = Streams.new(), Streams.new()
    for _ in range(6):
        entries = [random_entry(random, versions=False) for _ in range(20)]
        for story in (ours, other):
            story.segment(entries)
        compact_by(other, plan_of(other, dead_of(other)))
        ours.snapshot()
        ours.major(full=True)
        assert other.read() == ours.read()
        assert other.store().snapshot == ours.store().snapshot  # The delete horizon, too.
    other.assert_live()


# -- wrong plans -----------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_live_entry_goes_by_one_false_claim_among_true_ones(seed: int, versions: bool) -> None:
    story = random_story(seed, versions)
    dead, live = dead_of(story), liveness(story, WHOLE).live
    refused = 0
    for llsn in live:
        try:
            found = checked(story, plan_of(story, [*dead, llsn]))
        except PlanRefused:
            refused += 1
        else:
            assert llsn in found.liveness.live
    puts = [llsn for llsn, (_, entry) in story.read().items() if entry.kind is Kind.PUT]
    assert refused >= len(live & BitMap64(puts))


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_keys_read_right_whatever_a_plan_claims(seed: int, versions: bool) -> None:
    random = Random(seed)
    story = random_story(seed, versions)
    dead, everything = dead_of(story), list(story.read())
    for _ in range(4):
        claims = random.sample(dead, random.randrange(len(dead) + 1))
        claims += random.sample(everything, random.choice((0, 0, 1, 2)))
        try:
            compact_by(story, plan_of(story, claims))
        except PlanRefused:
            pass
        story.assert_live()
    story.reopen()
    story.assert_live()


def test_a_plan_of_another_log_is_refused() -> None:
    story = Streams.new()
    story.segment([put("a"), put("a")])
    plan = replace(plan_of(story, [1]), log_id=bytes(16))
    with pytest.raises(PlanRefused, match="of log 0000"):
        compact_by(story, plan)
    story.assert_whole()


def test_a_plan_for_a_stream_that_the_topic_has_not_is_refused() -> None:
    story = Streams.new()
    story.segment([put("a"), put("a")])
    with pytest.raises(PlanRefused, match="log stream 7"):
        read_plan(encode_plan(replace(plan_of(story, [1]), stream=7)), (1, 2))


def test_bytes_that_are_no_plan_are_refused() -> None:
    with pytest.raises(PlanRefused, match="compaction plan"):
        read_plan(b"TLCP and nothing else", (1,))


def test_a_plan_that_looked_further_than_this_replica_is_refused() -> None:
    story = Streams.new()
    story.segment([put("a"), put("a")])
    with pytest.raises(PlanRefused, match="up to LLSN 3"):
        compact_by(story, replace(plan_of(story, [1]), index=3))


def test_a_plan_under_a_higher_boundary_is_refused() -> None:
    story = Streams.new(versions="explicit")
    story.segment([put("a", version=1), put("a", version=2)])
    story.boundary(1)
    with pytest.raises(PlanRefused, match="GC boundary 2"):
        compact_by(story, replace(plan_of(story, [1]), boundary=2))
    with pytest.raises(PlanRefused, match="LLSN 1"):
        compact_by(story, plan_of(story, [1]))
    story.boundary(2)
    assert compact_by(story, plan_of(story, [1])).dead == 1


def test_a_plan_that_claims_nothing_is_refused() -> None:
    story = Streams.new()
    story.segment([put("a"), put("a")])
    with pytest.raises(PlanRefused, match="nothing"):
        compact_by(story, plan_of(story, []))
    assert story.store().snapshot.index == 0


def test_a_plan_that_drops_an_entry_without_a_key_is_refused() -> None:
    story = Streams.new()
    story.segment([value("kept until it is trimmed"), put("a"), put("a")])
    with pytest.raises(PlanRefused, match="LLSN 1, which has no key"):
        compact_by(story, plan_of(story, [1, 2]))
    story.assert_whole()


def test_a_plan_that_drops_the_newest_write_is_refused() -> None:
    story = Streams.new()
    story.segment([put("a", "old"), put("a", "new")])
    with pytest.raises(PlanRefused, match="LLSN 2"):
        compact_by(story, plan_of(story, [2]))
    with pytest.raises(PlanRefused, match="LLSN 1"):
        compact_by(story, plan_of(story, [1, 2]))
    assert story.get("a") == b"new"


def test_a_storage_delete_stays_while_it_hides_something() -> None:
    story = Streams.new()
    story.segment([put("a", storage=1), delete_storage(1)])
    story.segment(puts(range(2)))
    outcome = compact_by(story, plan_of(story, [1, 2]))
    assert (outcome.dead, outcome.doubtful) == (1, 1)
    assert list(story.read()) == [2, 3, 4]
    assert compact_by(story, plan_of(story, [2])).dead == 1
    assert list(story.read()) == [3, 4]
    story.assert_live()


def test_a_storage_delete_above_the_boundary_stays() -> None:
    story = Streams.new(versions="explicit")
    story.segment([delete_storage(1, 9), put("a", version=1)])
    story.boundary(5)
    with pytest.raises(PlanRefused, match="LLSN 1"):
        compact_by(story, plan_of(story, [1]))


# -- replicas that were compacted otherwise, and plans that come late ------------------------------


def test_a_delete_stays_where_something_older_is_left_that_the_plan_did_not_see() -> None:
    """The plan was made from a replica that had dropped the write: there, nothing is hidden."""
    story = Streams.new()
    story.segment([put("a", "old")])
    story.segment([delete("a")])
    story.segment(puts(range(3)))
    outcome = compact_by(story, plan_of(story, [2]))
    assert (outcome.dead, outcome.doubtful) == (0, 1)
    assert story.get("a") is None
    story.assert_live()


def test_claims_about_entries_that_are_gone_do_no_harm() -> None:
    story = Streams.new()
    story.segment([put("a", "1"), put("a", "2")])
    story.segment(puts(range(3)))
    plan = plan_of(story, [1])
    compact_by(story, plan)
    assert 1 not in story.read()
    assert compact_by(story, plan).dead == 0
    story.assert_live()


def test_what_came_behind_a_plan_is_kept() -> None:
    story = Streams.new()
    story.segment([put("a", "1"), put("a", "2")])
    plan = plan_of(story, [1])
    story.segment([put("a", "3"), put("b", "1"), put("b", "2"), value("x")])
    compact_by(story, plan)
    assert list(story.read()) == [2, 3, 4, 5, 6]
    story.assert_live()


def test_what_a_snapshot_found_dead_stays_dead_by_a_plan_that_does_not_know() -> None:
    story = Streams.new()
    story.segment([put("a", "1"), put("a", "2"), put("a", "3")])
    story.snapshot()
    compact_by(story, plan_of(story, [1]))
    assert list(story.store().snapshot.live) == [3]


def test_a_plan_from_before_a_trim_is_taken_for_what_is_left() -> None:
    story = Streams.new()
    story.segment([put("a", "1"), put("b", "1"), put("a", "2")])
    story.segment([put("b", "2"), put("c", "1")])
    plan = plan_of(story, [1, 2])
    story.trim(2)
    assert compact_by(story, plan).dead == 1
    assert list(story.read()) == [3, 4, 5]
    story.assert_live()


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_of_one_replica_does_no_harm_to_another(seed: int) -> None:
    """Both hold the same entries and were compacted at different times."""
    random = Random(seed)
    here, there = Streams.new(), Streams.new()
    for _ in range(8):
        entries = [random_entry(random, versions=False) for _ in range(random.randrange(1, 12))]
        for story in (here, there):
            story.segment(entries)
            if random.random() < 0.4:
                story.snapshot()
                story.major(full=True)
        plan = replace(plan_of(here, dead_of(here)), log_id=there.node.manifest.log_id)
        if random.random() < 0.5:
            try:
                compact_by(there, plan)
            except PlanRefused:
                pass
        there.assert_live()


def test_a_plan_may_be_made_at_the_end_of_a_topic_that_lies_behind_that_of_the_stream() -> None:
    story = Streams.new(streams=2)
    story.segment([put("a", "1"), put("a", "2")])
    story.write(puts(range(5)), stream=2)
    assert compact_by(story, replace(plan_of(story, [1]), boundary=7)).dead == 1
