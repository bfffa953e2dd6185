"""What a topic must hold, kept as a plain list: the model that state machines compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tidelog import Entry, Kind, Receipt, Record, Topic
from tidelog.core.compaction.explain import KeyRow, Reason, StorageDelete, explain_rows

KEYED = (Kind.PUT, Kind.DELETE)


def content(record: Record) -> tuple[Kind, bytes, bytes, int]:
    return record.kind, record.key, record.value, record.storage_id


def content_of_entry(entry: Entry) -> tuple[Kind, bytes, bytes, int]:
    return entry.kind, entry.key, entry.value, entry.storage_id


@dataclass
class TopicModel:
    """Every record that was ever acknowledged, trimmed and dead ones too, by GLSN from 1 on."""

    explicit: bool = False
    records: list[Record] = field(default_factory=list)
    first: int = 1
    """The first GLSN that was not trimmed."""
    boundary: int = 0
    homes: dict[bytes, int] = field(default_factory=dict)
    """Key → the log stream that all its writes must go to."""
    ends: Counter[int] = field(default_factory=Counter)
    """Log stream → how many entries it has."""

    @property
    def high(self) -> int:
        return len(self.records)

    # -- taking acknowledged appends in ----------------------------------------------------

    def take(self, topic: Topic, receipts: Sequence[Receipt], sent: Sequence[Entry]) -> None:
        """The receipts cover the next GLSNs without a gap, and what they cover is what was sent."""
        begin = self.high + 1
        covered = sorted(glsn for r in receipts for glsn in range(r.glsn, r.glsn_end))
        assert covered == list(range(begin, begin + len(sent)))
        found = list(topic.read(begin, begin + len(sent)))
        by_glsn = {record.glsn: record for record in found}
        assert [record.glsn for record in found] == covered
        for receipt in receipts:
            assert not receipt.duplicate
            assert receipt.llsn == self.ends[receipt.stream] + 1
            self.ends[receipt.stream] += receipt.count
            for offset in range(receipt.count):
                record = by_glsn[receipt.glsn + offset]
                assert (record.stream, record.llsn) == (receipt.stream, receipt.llsn + offset)
        self._take_records(found)
        self._check_content(found, sent)

    def take_copies(self, topic: Topic, count: int) -> None:
        """A rewrite appended copies of records that are live, and nothing else."""
        copies = list(topic.read(self.high + 1))
        assert len(copies) == count
        for copy in copies:
            assert copy.rewritten
            assert copy.kind is Kind.PUT
            originals = [
                record
                for record in self.records[self.first - 1 :]
                if (content(record), record.write_version) == (content(copy), copy.write_version)
            ]
            assert originals, f"{copy} is a copy of nothing"
            self.ends[copy.stream] += 1
        self._take_records(copies)

    def _take_records(self, found: Iterable[Record]) -> None:
        for record in found:
            if record.key and record.kind is not Kind.APPEND:
                assert self.homes.setdefault(record.key, record.stream) == record.stream
            if not self.explicit and not record.rewritten:
                assert record.write_version == record.glsn
            self.records.append(record)

    def _check_content(self, found: Sequence[Record], sent: Sequence[Entry]) -> None:
        assert Counter(map(content, found)) == Counter(map(content_of_entry, sent))
        for key in {entry.key for entry in sent}:
            in_log = [content(record) for record in found if record.key == key]
            assert in_log == [content_of_entry(entry) for entry in sent if entry.key == key]

    # -- what must and what may be there ---------------------------------------------------

    def check_read(self, records: Sequence[Record], begin: int, end: int) -> None:
        """Records as they were acknowledged, in order, and every one that is not dead."""
        glsns = [record.glsn for record in records]
        assert glsns == sorted(set(glsns))
        for record in records:
            assert begin <= record.glsn < end
            assert record == self.records[record.glsn - 1]
        missing = [glsn for glsn in self.needed() if begin <= glsn < end and glsn not in set(glsns)]
        assert not missing, f"live, but not readable: {[self.records[g - 1] for g in missing]}"

    def needed(self) -> list[int]:
        """GLSNs of the records that nothing may have removed, by the plain rule."""
        dead = self.dead()
        return [glsn for glsn in range(self.first, self.high + 1) if glsn not in dead]

    def dead(self) -> set[int]:
        """GLSNs of what compaction may have removed: trimmed, superseded or deleted."""
        dead = set(range(1, self.first))
        boundary = self.boundary if self.explicit else self.high
        by_key: dict[tuple[int, int, bytes], list[Record]] = {}
        deletes: dict[int, list[Record]] = {}
        trims: dict[int, int] = {}
        for record in self.records:
            if record.glsn < self.first:
                trims[record.stream] = record.llsn + 1
            if record.kind in KEYED:
                place = (record.stream, record.storage_id, record.key)
                by_key.setdefault(place, []).append(record)
            elif record.kind is Kind.DELETE_STORAGE:
                deletes.setdefault(record.stream, []).append(record)
                if record.write_version <= boundary:
                    dead.add(record.glsn)  # It may go once there is nothing older left.
        for (stream, _, _), records in by_key.items():
            rows = [KeyRow(r.llsn, r.write_version, int(r.kind), r.storage_id) for r in records]
            killers = [
                StorageDelete(d.storage_id, d.write_version, d.llsn)
                for d in deletes.get(stream, ())
            ]
            told = explain_rows(rows, boundary, killers, trims.get(stream, 0))
            for record, verdict in zip(records, told, strict=True):
                if not verdict.live or verdict.reason is Reason.SHADOWS:
                    dead.add(record.glsn)
        return dead

    # -- keys ------------------------------------------------------------------------------

    def newest(self, storage_id: int, key: bytes) -> Record | None:
        """What ``get`` finds; a write that was trimmed still hides smaller ones."""
        best = self.greatest(storage_id, key)
        if best is None or best.kind is not Kind.PUT or best.glsn < self.first:
            return None
        return best

    def greatest(self, storage_id: int, key: bytes) -> Record | None:
        """Of all that was ever written about a key, what counts: also a delete, also trimmed."""
        home = self.homes.get(key)
        mine = [
            record
            for record in self.records
            if (record.stream, record.storage_id) == (home, storage_id)
            and (record.kind is Kind.DELETE_STORAGE or (record.key == key and record.kind in KEYED))
        ]
        return max(mine, key=lambda record: (record.write_version, record.llsn), default=None)

    def check_get(self, found: Record | None, storage_id: int, key: bytes) -> None:
        expected = self.newest(storage_id, key)
        if found == expected:
            return
        # With versions out of order, a trim may take a greater version before a smaller one.
        # Then it is open whether the smaller one died of it: both answers are right.
        assert self.explicit
        assert self.first > 1
        assert expected is None
        assert found is not None
        assert found in self.records[self.first - 1 :]
        assert (found.kind, found.key, found.storage_id) == (Kind.PUT, key, storage_id)
