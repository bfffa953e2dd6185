"""What a table must hold, told by the plainest program: look at all entries, keep what lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hypothesis import Phase, settings
from hypothesis import strategies as st

from tidelog.formats.entry import Kind
from tidelog.interface.records import Record

Row = tuple[int, bytes, bytes, int, int, int]
"""Storage id, key, value, write version, GLSN, stream."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write of a history, before it has its place in the log."""

    kind: Kind
    key: bytes = b""
    value: bytes = b""
    storage_id: int = 0
    version: int | None = None


def state_of(records: Iterable[Record]) -> list[Row]:
    """The rows of the table, in order of their keys."""
    newest: dict[tuple[int, bytes], Record] = {}
    deleted: dict[tuple[int, int], tuple[int, int]] = {}
    for record in records:
        if record.kind is Kind.DELETE_STORAGE:
            place = (record.storage_id, record.stream)
            deleted[place] = max(deleted.get(place, (0, 0)), when(record))
        elif record.kind in (Kind.PUT, Kind.DELETE):
            name = (record.storage_id, record.key)
            if name not in newest or when(newest[name]) < when(record):
                newest[name] = record
    return sorted(
        (one.storage_id, one.key, one.value, one.write_version, one.glsn, one.stream)
        for one in newest.values()
        if one.kind is Kind.PUT and when(one) > deleted.get((one.storage_id, one.stream), (-1, 0))
    )


def when(record: Record) -> tuple[int, int]:
    return record.write_version, record.glsn


def few() -> settings:
    """As few examples as Spark has time for: one, and more in a soak."""
    return settings(max_examples=max(settings().max_examples // 100, 1), phases=[Phase.generate])


@st.composite
def histories(draw: st.DrawFn, *, explicit: bool, size: int) -> Sequence[Step]:
    """Writes of many keys: each key is few among few, so that they meet often."""
    # True chance behind a drawn seed: the first thing that hypothesis draws is all zeros.
    seed = draw(st.randoms(use_true_random=True))
    versions = [1, 2, 3, 5, 8, (1 << 64) - 1, 1 << 64, (1 << 127) + 3]
    steps: list[Step] = []
    for number in range(size):
        kind = seed.choices(
            (Kind.PUT, Kind.DELETE, Kind.DELETE_STORAGE, Kind.APPEND), (60, 25, 2, 13)
        )[0]
        steps.append(
            Step(
                kind,
                b"key-%d" % seed.randrange(max(size // 4, 1)) if kind in WITH_KEY else b"",
                b"value %d" % number if kind in (Kind.PUT, Kind.APPEND) else b"",
                seed.randrange(3),
                seed.choice(versions) if explicit and kind is not Kind.APPEND else None,
            )
        )
    return steps


WITH_KEY = (Kind.PUT, Kind.DELETE)
