"""What the parent was told, and what a log may therefore hold.

Invariants:
  L1  What was acknowledged is in the log exactly once, at the place that the receipt named.
  L2  What else is in the log was under way at a kill: one call of each writer in each round.
  L3  A GLSN that no receipt names was given to a call under way at a kill.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import tidelog
from tests.process import kill_plan as plan
from tests.process.kill_plan import STEP, Told
from tidelog.formats.entry import Kind

Where = tuple[int, int]
"""Stream and LLSN."""


class Ledger:
    def __init__(self) -> None:
        self.produced = 0
        self.figures: Counter[str] = Counter()
        self.acknowledged = 0
        self._last: dict[str, int] = {}
        self._kept: dict[bytes, int] = {}
        """Value → GLSN of the un-keyed entries that were acknowledged."""
        self._maybe: set[bytes] = set()
        """Values of un-keyed appends under way at a kill."""
        self._places: dict[int, Where] = {}
        """GLSN → place of every entry that was acknowledged, keyed ones as well."""
        self._unknown = 0
        """How many entries may have got a GLSN that nobody was told of."""
        self._keys: dict[bytes, set[bytes | None]] = {}
        self._batches: set[int | None] = {None}
        self._ring: dict[bytes, int] = {}
        self._ring_maybe: set[bytes] = set()
        self._ring_trimmed = 1
        self._ring_trim_tried = 1
        self._round_figures: dict[str, int] = {}

    # -- what the child tells -------------------------------------------------------------

    def tell(self, told: Told) -> None:
        writer, number = told.writer, told.number
        if writer == plan.FIGURES:
            self._round_figures = told.figures
            return
        if writer == plan.RING_TRIM_TRY:
            self._ring_trim_tried = number
            return
        if writer == plan.RING_TRIM:
            self._ring_trimmed = number
            return
        self.acknowledged += 1
        self._last[writer] = number
        if writer == plan.RING:
            self._ring[plan.value_of(writer, number)] = told.places[0][2]
            return
        if writer == plan.PRODUCER:
            self._tell_produced(told)
            return
        self._add_places(told)
        if writer == plan.PUTTER:
            key, value = plan.put_of(number)
            self._keys[key] = {value}
        elif writer == plan.BATCHER:
            assert sum(place[3] for place in told.places) == len(plan.BATCH_KEYS)
            self._batches = {number}
        else:
            self._kept[plan.value_of(writer, number)] = told.places[0][2]

    def _tell_produced(self, told: Told) -> None:
        value = plan.value_of(plan.PRODUCER, told.number)
        glsn = told.places[0][2]
        if told.number == self.produced:
            assert told.duplicate, f"sequence {told.number} was appended twice"
            assert glsn == self._kept[value], "a retry got another receipt than its first try"
            return
        assert told.number == self.produced + 1
        self.produced = told.number
        self._kept[value] = glsn
        self._maybe.discard(value)
        self._add_places(told)

    def _add_places(self, told: Told) -> None:
        for stream, llsn, glsn, count in told.places:
            for offset in range(count):
                known = self._places.setdefault(glsn + offset, (stream, llsn + offset))
                assert known == (stream, llsn + offset), f"GLSN {glsn + offset} was given twice"

    def end_round(self, round_: int) -> None:
        """Each writer had one call under way, which may have taken effect (L2)."""
        following = {
            writer: self._last.get(writer, round_ * STEP - 1) + 1
            for writer in (*plan.APPENDERS, plan.PUTTER, plan.BATCHER, plan.RING)
        }
        for writer in plan.APPENDERS:
            self._maybe.add(plan.value_of(writer, following[writer]))
        self._maybe.add(plan.value_of(plan.PRODUCER, self.produced + 1))
        self._ring_maybe.add(plan.value_of(plan.RING, following[plan.RING]))
        key, value = plan.put_of(following[plan.PUTTER])
        self._keys.setdefault(key, {None}).add(value)
        self._batches.add(following[plan.BATCHER])
        self._unknown += len(plan.APPENDERS) + 2 + len(plan.BATCH_KEYS)
        self._last.clear()
        self.figures.update(self._round_figures)
        self._round_figures = {}

    # -- what the log holds ---------------------------------------------------------------

    def check(self, log: tidelog.Log, ring: tidelog.Topic) -> None:
        records = list(log.read())
        self._check_un_keyed(records)
        self._check_order(log, records)
        self._check_keys(log, records)
        self._check_ring(ring)

    def _check_un_keyed(self, records: list[tidelog.Record]) -> None:
        """L1 and L2 for entries without keys."""
        found = {record.value: record.glsn for record in records if not record.key}
        un_keyed = sum(1 for record in records if not record.key)
        assert len(found) == un_keyed, "an entry is there twice"
        lost = [value for value, glsn in self._kept.items() if found.get(value) != glsn]
        assert not lost, f"acknowledged, but lost or moved: {lost[:5]}"
        extra = found.keys() - self._kept.keys() - self._maybe
        assert not extra, f"nobody appended these, or they failed: {sorted(extra)[:5]}"
        # An entry that is there now stays there.
        for value in found.keys() & self._maybe:
            if not value.startswith(plan.PRODUCER.encode()):
                self._kept[value] = found[value]

    def _check_order(self, log: tidelog.Log, records: list[tidelog.Record]) -> None:
        """GLSNs ascend, LLSNs of each stream too, and GLSNs have no gaps (L3)."""
        assert all(a.glsn < b.glsn for a, b in pairwise(records))
        for stream in log.streams:
            llsns = [record.llsn for record in records if record.stream == stream]
            assert all(a < b for a, b in pairwise(llsns))
        seen: dict[int, Where] = {record.glsn: (record.stream, record.llsn) for record in records}
        moved = [g for g, where in seen.items() if self._places.get(g, where) != where]
        assert not moved, f"not where their receipts said: {moved[:5]}"
        issued = set(range(1, log.high_watermark + 1))
        assert seen.keys() <= issued
        assert self._places.keys() <= issued
        untold = issued - self._places.keys()
        assert len(untold) <= self._unknown, f"given to nobody: {sorted(untold)[:5]}"

    def _check_keys(self, log: tidelog.Log, records: list[tidelog.Record]) -> None:
        newest = {record.key: record for record in records if record.key}
        for key, allowed in self._keys.items():
            record = log.get(key)
            value = record.value if record else None
            assert value in allowed, f"{key!r} is {value!r}, but should be one of {allowed}"
            last = newest.get(key)
            live = last is not None and last.kind is Kind.PUT
            assert record == (last if live else None), f"get and read differ on {key!r}"
            self._keys[key] = {value}
        got = {key: log.get(key) for key in plan.BATCH_KEYS}
        values = {record.value if record else None for record in got.values()}
        assert len(values) == 1, f"a batch is there in part: {values}"
        matching = [n for n in self._batches if _batch_value(n) in values]
        assert matching, f"{values} is neither the newest batch nor a later one"
        self._batches = {matching[0]}

    def _check_ring(self, ring: tidelog.Topic) -> None:
        """Trimmed up to what was acknowledged, or to what was tried; the rest is all there."""
        first = ring.first_available
        assert self._ring_trimmed <= first <= max(self._ring_trimmed, self._ring_trim_tried)
        records = list(ring.read())
        glsns = [record.glsn for record in records]
        assert glsns == list(range(first, ring.high_watermark + 1)), "the ring has a hole"
        found = {record.value: record.glsn for record in records}
        assert len(found) == len(records), "an entry of the ring is there twice"
        expected = {value: glsn for value, glsn in self._ring.items() if glsn >= first}
        lost = [value for value, glsn in expected.items() if found.get(value) != glsn]
        assert not lost, f"acknowledged, but lost from the ring: {lost[:5]}"
        extra = found.keys() - expected.keys() - self._ring_maybe
        assert not extra, f"nobody appended these to the ring: {sorted(extra)[:5]}"
        self._ring = {value: found[value] for value in found}
        self._ring_trimmed = self._ring_trim_tried = first


def _batch_value(number: int | None) -> bytes | None:
    return None if number is None else plan.value_of(plan.BATCHER, number)
