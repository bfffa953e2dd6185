"""Logs that are compacted by plans of others, true and false: keys and lagging readers come to no
harm, and the delete horizon tells of every delete that goes.
"""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import rule, run_state_machine_as_test
from pyroaring import BitMap64

from tests.properties.test_lagging_readers import LaggingMachine
from tidelog.errors import PlanRefused
from tidelog.formats.compaction_plan import StreamPlan, encode_plan
from tidelog.storage.liveness import MemorySource, compute_liveness
from tidelog.storage.stream_store import StreamStore


def dead_of(store: StreamStore) -> BitMap64:
    """What the engine finds dead of all that is there."""
    index = store.ordered_end - 1
    found = compute_liveness(
        store.view.segments,
        store.opened,
        MemorySource.of(store.view.memtables, index, store.place.hash_seed),
        index=index,
        boundary=store.current_boundary(),
        trim_llsn_end=store.trim_llsn_end,
    )
    return BitMap64(range(store.trim_llsn_end, index + 1)) - found.live


class PlanMachine(LaggingMachine):
    """What is done to a log besides: a plan is made, things happen, and it is offered."""

    plan: StreamPlan | None = None

    @rule(seed=st.integers(0, 1 << 16), lies=st.sampled_from([0, 0, 0, 1]))
    def make_plan(self, seed: int, lies: int) -> None:
        random, node = Random(seed), self.log.engine.node
        store = node.streams[1]
        index = store.ordered_end - 1
        dead = [llsn for llsn in dead_of(store) if random.random() < 0.8]
        claims = BitMap64(dead + [random.randrange(1, index + 1) for _ in range(lies) if index])
        log_id, boundary = node.manifest.log_id, store.current_boundary()
        self.plan = StreamPlan(log_id, store.stream, index, boundary, claims)

    @rule(full=st.booleans())
    def offer_plan(self, full: bool) -> None:
        if self.plan is None:
            return
        try:
            self.log.offer_plan(encode_plan(self.plan), full=full)
        except PlanRefused:
            self.plan = None

    @rule(seed=st.integers(0, 1 << 16))
    def compact_by_plan(self, seed: int) -> None:
        """At once, so that most plans are taken."""
        self.make_plan(seed, 0)
        self.offer_plan(full=True)


class ExplicitPlanMachine(PlanMachine):
    versions = "explicit"


@pytest.mark.parametrize("machine", [PlanMachine, ExplicitPlanMachine])
def test_whoever_lags_ends_with_what_is_live_whatever_plans_a_log_takes(
    machine: type[PlanMachine],
) -> None:
    examples = settings().max_examples // 3  # Its parent looks at the rest.
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=20)
    )
