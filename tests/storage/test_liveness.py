"""Which entries are live, computed in any portions: memory is bounded, the answer is the same."""

from __future__ import annotations

from random import Random

import pytest

from tests.storage.streams import Streams, delete, delete_storage, put, puts, value
from tidelog.core.compaction.explain import StorageDelete
from tidelog.formats.entry import Entry, Kind
from tidelog.storage.liveness import Liveness, MemorySource, compute_liveness


def liveness(story: Streams, rows_max: int) -> Liveness:
    store = story.store()
    index = store.ordered_end - 1
    return compute_liveness(
        store.view.segments,
        store.opened,
        MemorySource.of(store.view.memtables, index, store.place.hash_seed),
        index=index,
        boundary=store.current_boundary(),
        trim_llsn_end=store.trim_llsn_end,
        rows_max=rows_max,
    )


def plain_rule(story: Streams) -> set[int]:
    """The rule in words, entry by entry, of what is physically there."""
    store = story.store()
    boundary, trim = store.current_boundary(), store.trim_llsn_end
    rows: dict[tuple[int, bytes], list[tuple[int, int, Kind]]] = {}
    live: set[int] = set()
    deletes: list[StorageDelete] = []
    for llsn, (glsn, entry) in story.read().items():
        version = entry.write_version if entry.write_version is not None else glsn
        if entry.kind is Kind.APPEND:
            live.add(llsn)
        elif entry.kind is Kind.DELETE_STORAGE:
            deletes.append(StorageDelete(entry.storage_id, version, llsn))
        elif entry.kind in (Kind.PUT, Kind.DELETE):
            rows.setdefault((entry.storage_id, entry.key), []).append((version, llsn, entry.kind))
    for (storage, _), writes in rows.items():
        writes.sort()
        settled = [write for write in writes if write[0] <= boundary]
        alive = [write for write in writes if write[0] > boundary]
        if settled and (settled[-1][2] is Kind.PUT or len(settled) > 1):
            alive.append(settled[-1])
        for version, llsn, _ in alive:
            killed = any(
                d.storage == storage
                and d.version <= boundary
                and (version, llsn) < (d.version, d.llsn)
                for d in deletes
            )
            if not killed:
                live.add(llsn)
    for d in deletes:
        older = any(
            storage == d.storage and (version, llsn) < (d.version, d.llsn)
            for (storage, _), writes in rows.items()
            for version, llsn, _ in writes
        )
        if d.version > boundary or older:
            live.add(d.llsn)
    return {llsn for llsn in live if llsn >= trim}


def random_entry(random: Random, versions: bool) -> Entry:
    key, storage = f"k{random.randrange(6)}", random.randrange(2)
    version = random.randrange(1, 60) if versions else None
    match random.randrange(8):
        case 0:
            return Entry(Kind.APPEND, b"value", write_version=version)
        case 1:
            return delete_storage(storage, version)
        case 2 | 3:
            return delete(key, storage=storage, version=version)
        case _:
            return put(key, f"{random.random()}", storage=storage, version=version)


def random_story(seed: int, versions: bool) -> Streams:
    """Entries of every kind over segments and memtables; some keys are written very often."""
    random = Random(seed)
    story = Streams.new(versions="explicit" if versions else "log")
    for _ in range(random.randrange(2, 7)):
        entries = [random_entry(random, versions) for _ in range(random.randrange(1, 25))]
        if random.random() < 0.7:
            story.segment(entries)
        else:
            story.write(entries)
    if versions:
        story.boundary(random.randrange(70))
    return story


@pytest.mark.parametrize("versions", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_folding_in_any_portions_gives_what_the_plain_rule_says(seed: int, versions: bool) -> None:
    story = random_story(seed, versions)
    whole = liveness(story, 1 << 20)
    assert set(whole.live) == plain_rule(story)
    for rows_max in (1, 2, 3, 7, 20):
        assert liveness(story, rows_max) == whole, rows_max


def test_the_dead_bytes_of_a_segment_are_those_of_its_dead_keyed_entries() -> None:
    story = Streams.new()
    story.segment([value("x" * 500), put("a", "v" * 100), put("b", "v" * 50)])
    story.segment([put("a", "w")])
    found = liveness(story, 1 << 20)
    # Key and value of the dead write.
    assert found.dead_bytes[1] >= 101
    assert found.dead_bytes[1] < 150
    assert found.dead_bytes[2] == 0
    assert list(found.live) == [1, 3, 4]


def test_a_hot_key_with_thousands_of_versions_needs_no_more_memory_than_others() -> None:
    story = Streams.new(file_bytes=1 << 20)
    for part in range(4):
        story.segment([put("hot", f"{part} {i}") for i in range(3000)])
    story.segment(puts(range(5)))
    whole = liveness(story, 1 << 20)
    assert list(whole.live) == [12_000, *range(12_001, 12_006)]
    assert liveness(story, 100) == whole
    story.snapshot()
    story.major(full=True)
    assert story.get("hot") == b"3 2999"
    assert sum(segment.entries for segment in story.segments()) == 6


def test_a_hot_key_above_the_boundary_keeps_all_its_versions() -> None:
    story = Streams.new(versions="explicit", file_bytes=1 << 20)
    for part in range(3):
        story.segment([put("hot", version=1 + part * 1000 + i) for i in range(1000)])
    story.boundary(2500)
    whole = liveness(story, 1 << 20)
    assert list(whole.live) == list(range(2500, 3001))
    assert liveness(story, 64) == whole


def test_entries_behind_the_index_do_not_count() -> None:
    story = Streams.new()
    story.segment(puts(range(3)))
    story.write(puts(range(3), "w"), cut=False)
    assert list(story.snapshot().live) == [1, 2, 3]
    story.cut(1)
    assert list(story.snapshot().live) == [4, 5, 6]
