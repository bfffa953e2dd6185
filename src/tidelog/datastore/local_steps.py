"""The steps of a lane that concern the master's own store, each with its span."""

from __future__ import annotations

from time import perf_counter_ns

from tidelog.core.session.lanes import LocalOutput
from tidelog.core.session.output import (
    AppendLocally,
    CutLocally,
    FlushLocally,
    RecordLocally,
    SetBoundaryLocally,
)
from tidelog.datastore.epoch_store import EpochStore
from tidelog.datastore.spans import Spans


class LocalSteps:
    """Of all lanes; threads that run different ones may use it at once."""

    def __init__(self, store: EpochStore, spans: Spans) -> None:
        self._store = store
        self._spans = spans

    def carry_out(self, output: LocalOutput) -> None:
        """Do it; raises what the store raises."""
        store, spans = self._store, self._spans
        match output:
            case AppendLocally():
                timing = store.append(output.lane, output.epoch, output.batches)
                if timing.append_us:  # Otherwise they wait in memory.
                    spans.append.add(timing.append_us * 1000)
            case FlushLocally():
                timing = store.flush(output.lane)
                spans.append.add(timing.append_us * 1000)
                spans.fsync.add(timing.sync_us * 1000)
            case CutLocally():
                store.cut(output.lane, output.llsn_end)
            case RecordLocally():
                begin = perf_counter_ns()
                store.record(output.epoch)
                spans.epoch_write.add(perf_counter_ns() - begin)
            case SetBoundaryLocally():
                store.set_boundary(output.version)
