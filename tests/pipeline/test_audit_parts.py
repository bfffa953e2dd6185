"""The parts of an audit, each against a plain model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.pipeline.audits import LocalSteps, MemoryNode, MemoryNodes, targets_of
from tests.runtime.admin.figures import WHOLE, lost
from tests.storage.streams import Streams, delete, put, value
from tidelog.errors import BadAddress, BadOption, UnknownTopic
from tidelog.formats.entry import Entry, Kind
from tidelog.interface.audit_figures import AuditedNode, AuditedReplica
from tidelog.pipeline import audit
from tidelog.pipeline.auditing.closer import Version, difference
from tidelog.pipeline.auditing.comparing import Entries, chosen, divergences, runs_of
from tidelog.pipeline.auditing.coverage import Runs, TopicOrder, look_at
from tidelog.pipeline.auditing.findings import Cell, FindingKind
from tidelog.pipeline.auditing.reading import gaps_between
from tidelog.pipeline.auditing.row_digests import row_digests
from tidelog.pipeline.auditing.rows import Covered, Found
from tidelog.pipeline.auditing.running import run
from tidelog.pipeline.auditing.summing_up import dense_from
from tidelog.pipeline.auditing.targets import cluster, only_topics, single_node
from tidelog.pipeline.auditing.tasks import (
    AuditReplica,
    AuditTopic,
    FilesTask,
    ReadTask,
    plan_tasks,
)

URL = "tidelog://127.0.0.1:1"

# -- the total order -----------------------------------------------------------------------------

END = 60
run_lists = st.lists(
    st.tuples(st.integers(1, END - 1), st.integers(1, 6), st.integers(1, 3)), max_size=14
)


def runs_from(rows: list[tuple[int, int, int]]) -> Runs:
    rows = sorted((glsn, stream, min(length, END - glsn)) for glsn, length, stream in rows)
    glsns, streams, lengths = (np.array(c, np.int64) for c in zip(*rows, strict=True) or ())
    return Runs(glsns, lengths, streams, glsns + 1_000)


@given(run_lists.filter(bool), st.integers(1, END))
def test_gaps_and_doubles_are_those_of_a_plain_count(
    rows: list[tuple[int, int, int]], dense: int
) -> None:
    runs = runs_from(rows)
    count: Counter[int] = Counter()
    for glsn, length in zip(runs.glsn.tolist(), runs.length.tolist(), strict=True):
        count.update(range(glsn, glsn + length))
    told = look_at(runs, TopicOrder("t", END, dense), 1, END)
    missing = {
        glsn
        for one in told
        if isinstance(one, Found) and one.finding.kind is FindingKind.MISSING_GLSNS
        for glsn in range(one.finding.glsn_begin, one.finding.glsn_end)
    }
    assert missing == {glsn for glsn in range(dense, END) if not count[glsn]}
    doubled = {
        glsn
        for one in told
        if isinstance(one, Found) and one.finding.kind is FindingKind.DOUBLED
        for glsn in range(one.finding.glsn_begin, one.finding.glsn_end)
    }
    assert doubled == {glsn for glsn in count if count[glsn] > 1}
    covered = told[-1]
    assert isinstance(covered, Covered)
    assert covered.present == len(count)
    assert sum(cell.present for cell in covered.cells) == len(count)


@given(run_lists.filter(bool), st.integers(1, 40))
def test_cells_cut_the_order_into_equal_parts(rows: list[tuple[int, int, int]], width: int) -> None:
    runs = runs_from(rows)
    there = {g for b, n in zip(runs.glsn, runs.length, strict=True) for g in range(b, b + n)}
    order = TopicOrder("t", 240 * width + 1, 1)
    covered = look_at(runs, order, 1, END)[-1]
    assert isinstance(covered, Covered)
    for cell in covered.cells:
        assert cell.present == len(there.intersection(range(cell.glsn_begin, cell.glsn_end)))
        assert (cell.glsn_begin - 1) // width == (cell.glsn_end - 2) // width
    assert covered.cells[0].glsn_begin == 1
    assert covered.cells[-1].glsn_end == END


def test_an_entry_that_one_replica_calls_a_copy_is_told_so() -> None:
    entry = Entry(Kind.PUT, b"v", b"key")
    versions = {node: Version(3, 1, entry, rewritten=node == 2) for node in (1, 2)}
    assert difference(9, versions) == "at LLSN 9: rewritten False on node 1 / True on node 2"


def test_two_streams_with_the_same_run_double_all_of_it() -> None:
    runs = runs_from([(5, 3, 1), (5, 3, 2)])
    told = look_at(runs, TopicOrder("t", 8, 8), 1, 8)
    [found] = [one for one in told if isinstance(one, Found)]
    assert (found.finding.glsn_begin, found.finding.glsn_end) == (5, 8)
    covered = told[-1]
    assert isinstance(covered, Covered)
    assert covered.cells == tuple(
        Cell(glsn, glsn + 1, int(glsn >= 5), int(glsn >= 5)) for glsn in range(1, 8)
    )


# -- replicas against one another ----------------------------------------------------------------

entry_tables = st.dictionaries(
    st.tuples(st.integers(1, 12), st.integers(1, 3)), st.integers(0, 1), min_size=1
)
"""(LLSN, node) → which of two versions."""


@given(entry_tables)
def test_divergences_are_those_of_a_plain_comparison(table: dict[tuple[int, int], int]) -> None:
    places = sorted(table)
    llsns = np.array([llsn for llsn, _ in places])
    nodes = np.array([node for _, node in places])
    versions = np.array([table[place] for place in places])
    rows = Entries(nodes, llsns, llsns * 10, np.ones_like(llsns), versions, versions)
    expected = {llsn for llsn, _ in table if len({table[p] for p in table if p[0] == llsn}) > 1}
    found = divergences(rows)
    assert {llsn for one in found for llsn in range(one.begin, one.end)} == expected
    for one in found:
        for llsn in range(one.begin, one.end):
            held = {node: table[llsn, node] for node in (1, 2, 3) if (llsn, node) in table}
            groups = {frozenset(n for n in held if held[n] == v) for v in held.values()}
            assert groups == {frozenset(group) for group in one.versions}


def test_the_glsn_that_most_replicas_give_counts() -> None:
    rows = Entries(
        np.array([1, 2, 3, 1]),
        np.array([1, 1, 1, 2]),
        np.array([7, 8, 8, 9]),
        *(np.zeros(4, np.int64) for _ in range(3)),
    )
    llsns, glsns = chosen(rows)
    assert (llsns.tolist(), glsns.tolist()) == ([1, 2], [8, 9])
    assert [column.tolist() for column in runs_of(llsns, glsns)] == [[1], [8], [2]]


def test_runs_end_at_the_edge_of_a_bucket() -> None:
    edge = 1 << 20
    places = np.arange(edge - 2, edge + 2)
    llsn, glsn, length = runs_of(places - edge + 10, places)
    assert glsn.tolist() == [edge - 2, edge]
    assert length.tolist() == [2, 2]
    assert llsn.tolist() == [8, 10]


@given(st.sets(st.integers(1, 30)), st.integers(1, 30), st.integers(0, 10))
def test_gaps_are_what_is_not_there(present: set[int], begin: int, length: int) -> None:
    end = begin + length
    here = np.array(sorted(present.intersection(range(begin, end))), np.int64)
    gone = {one for first, last in gaps_between(here, begin, end) for one in range(first, last)}
    assert gone == set(range(begin, end)) - present


def test_digests_do_not_depend_on_how_entries_lie_in_batches() -> None:
    entries = [put("a", "1"), put("b", "2"), delete("a"), value("x"), value("")]
    together, apart = Streams.new(), Streams.new()
    together.write(entries)
    for entry in entries:
        apart.write([entry])
    [one] = [(1, piece) for piece in together.store().read(1, 99)]
    many = [(1, piece) for piece in apart.store().read(1, 99)]
    assert row_digests([one]).tolist() == row_digests(many).tolist()


# -- what is looked at ---------------------------------------------------------------------------


def told(node: int, *, complete: bool = True, end: int = 10) -> AuditedNode:
    replica = AuditedReplica("t", 1, 1, end, end, 0, 1, (1, 9, 1, 1, 9), "", complete)
    return AuditedNode(node, "00", (replica,))


def test_replicas_of_silent_nodes_and_unfinished_ones_are_left_out() -> None:
    status = lost(replace(WHOLE, cluster_id="00"), 3)
    found = cluster(status, {1: told(1), 2: told(2, complete=False), 3: "it is silent"})
    assert [one.node for one in found.replicas] == [1]
    assert [(one.node, one.why) for one in found.left_out] == [
        (2, "it is being filled up"),
        (3, "it is silent"),
    ]


def test_a_replica_is_read_as_far_as_it_and_the_metadata_are() -> None:
    status = replace(WHOLE, cluster_id="00")
    found = cluster(status, {1: told(1, end=12), 2: told(2, end=7), 3: told(3)})
    assert [(one.llsn_end, one.lag) for one in found.replicas] == [(10, 0), (7, 3), (10, 0)]


def test_only_topics_that_there_are_can_be_asked_for() -> None:
    found = single_node("tcp://h:1", told(1))
    assert [one.name for one in only_topics(found, ["t"]).topics] == ["t"]
    with pytest.raises(UnknownTopic, match="known"):
        only_topics(found, ["other"])


@given(st.integers(1, 50), st.integers(1, 9))
def test_every_llsn_of_every_replica_is_in_one_task(end: int, entries_max: int) -> None:
    replicas = single_node("tcp://h:1", told(1, end=end)).replicas
    tasks = plan_tasks(replicas, {1: "tcp://h:1"}, entries_max=entries_max)
    read = [llsn for t in tasks if isinstance(t, ReadTask) for llsn in range(t.begin, t.end)]
    assert sorted(read) == list(range(1, end))
    assert sum(isinstance(task, FilesTask) for task in tasks) == 2, "segments, and the WAL"


@pytest.mark.parametrize(("settled", "begin"), [(20, 15), (9, 10), (0, 1)])
def test_what_was_taken_away_is_not_read_and_what_is_missing_is(settled: int, begin: int) -> None:
    facts = AuditedReplica("t", 1, 15, 30, 30, settled, 1, (1, 29, 1, 1, 29))
    tasks = plan_tasks([AuditReplica("t", 1, "", facts, 30)], {1: "tcp://h:1"})
    assert [(one.begin, one.end) for one in tasks if isinstance(one, ReadTask)] == [(begin, 30)]


def facts_with(settled_glsn_end: int) -> AuditedReplica:
    return AuditedReplica("t", 1, 1, 10, 10, 5, settled_glsn_end, (1, 9, 1, 1, 9))


@pytest.mark.parametrize(
    ("lag", "expected"),
    [(0, 4), (3, 8)],
    ids=["compacted on all", "one of them cannot tell"],
)
def test_glsns_are_dense_above_what_every_replica_has_compacted(lag: int, expected: int) -> None:
    replicas = [
        AuditReplica("t", 1, "", facts_with(8), 10),
        AuditReplica("t", 2, "", facts_with(4), 10 - lag, lag),
    ]
    now = {(one.node, 1): one.facts for one in replicas}
    assert dense_from(AuditTopic("t", (1,), 20), replicas, now) == expected


def test_a_compaction_during_the_audit_counts() -> None:
    replicas = [AuditReplica("t", 1, "", facts_with(4), 10)]
    assert dense_from(AuditTopic("t", (1,), 20), replicas, {(1, 1): facts_with(6)}) == 6


class Silent(MemoryNodes):
    """One node of them dies when all was read."""

    def ask_again(self) -> dict[tuple[int, int], AuditedReplica]:
        return {place: one for place, one in super().ask_again().items() if place[0] != 1}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_node_that_dies_after_it_has_compacted_is_no_damage(replicas: int) -> None:
    stories = [Streams.new() for _ in range(replicas)]
    for story in stories:
        story.segment([put(f"k{key}", "old") for key in range(20)])
        story.segment([put(f"k{key}", "new") for key in range(10)])
        story.write([value("last")])
    nodes = {number: MemoryNode(number, story.node) for number, story in enumerate(stories, 1)}
    targets = targets_of(nodes)
    for story in stories:
        story.snapshot()
        story.major(full=True)
    steps = LocalSteps(nodes, targets.topic_of())
    summary = run(targets, steps, Silent(nodes), lambda _: None)
    assert summary.findings == ()
    assert [(one.node, one.stream) for one in summary.left_out] == [(1, 1)]


def test_a_topic_that_lost_log_streams_has_no_dense_part() -> None:
    replicas = [AuditReplica("t", 1, "", facts_with(4), 10)]
    topic = AuditTopic("t", (1,), 20, has_removed_streams=True)
    assert dense_from(topic, replicas, {}) == 21


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (partial(audit, "http://host"), BadAddress),
        (partial(audit, URL, topics=[]), BadOption),
        (partial(audit, URL, timeout=0), BadOption),
        (partial(audit, URL, report="no/such/directory/report.html"), BadOption),
        (partial(audit, URL, report="s3://bucket/report.html"), BadOption),
    ],
    ids=["no URL of a log", "no topic", "no time", "no directory", "not of this machine"],
)
def test_wrong_arguments_are_told_before_anything_starts(
    call: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call()
