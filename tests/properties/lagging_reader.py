"""Readers that compaction does not know of: they lag, and restart by the rule of the horizon."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.pipeline.model import Row, state_of
from tests.properties.log_model import TopicModel
from tidelog import Kind, Record, Topic
from tidelog.core.compaction.horizon import DeleteHorizon


def horizon_of(topic: Topic) -> DeleteHorizon:
    stats = topic.stats()
    return DeleteHorizon(stats.delete_horizon, stats.delete_mark)


@dataclass
class LaggingReader:
    """Reads a few positions at a time, and starts anew when it may have missed a delete (H5)."""

    position: int = 1
    begun: int = 0
    seen: list[Record] = field(default_factory=list)

    def copy(self) -> LaggingReader:
        return replace(self, seen=list(self.seen))

    def read_on(self, topic: Topic, count: int) -> None:
        if self.position < topic.first_available:
            self._begin(topic)
        end = min(self.position + count, topic.high_watermark + 1)
        records = list(topic.read(self.position, end))
        if horizon_of(topic).is_missed_by(self.position, self.begun):
            self._begin(topic)
            return
        self.seen += records
        self.position = end

    def catch_up(self, topic: Topic) -> None:
        """At most one restart is needed where nothing is compacted meanwhile."""
        for _ in range(2):
            self.read_on(topic, topic.high_watermark)
        assert self.position == topic.high_watermark + 1

    def _begin(self, topic: Topic) -> None:
        self.begun = horizon_of(topic).dropped
        self.position = topic.first_available
        self.seen = []


def readers_before_what_is_gone(topic: Topic, model: TopicModel) -> list[LaggingReader]:
    """Had read all, as it was written, up to a delete that is gone; the horizon lets them go on."""
    begin = max(topic.stats().delete_horizon, topic.first_available)
    present = {record.glsn for record in topic.read()}
    return [
        LaggingReader(record.glsn, -1, model.records[: record.glsn - 1])
        for record in model.records[begin - 1 :]
        if record.kind in (Kind.DELETE, Kind.DELETE_STORAGE) and record.glsn not in present
    ]


def check_table(model: TopicModel, seen: list[Record]) -> None:
    """What was seen comes down to exactly what the keys have.

    Of a key whose newest write was trimmed, a table keeps what it has.
    """
    rows = {(row[0], row[1]): row for row in state_of(seen)}
    places = {(r.storage_id, r.key) for r in model.records if r.kind in (Kind.PUT, Kind.DELETE)}
    for storage_id, key in sorted(places):
        best = model.greatest(storage_id, key)
        assert best is not None
        if best.glsn >= model.first:
            found = rows.get((storage_id, key))
            assert found == (row_of(best) if best.kind is Kind.PUT else None), (best, found)


def row_of(record: Record) -> Row:
    return (
        record.storage_id, record.key, record.value, record.write_version, record.glsn,
        record.stream,
    )  # fmt: skip
