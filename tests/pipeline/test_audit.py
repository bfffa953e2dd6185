"""Stores with planted damage, real and made up: each is found, and named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec
import pytest
from msgspec.structs import replace

from tests.pipeline.audits import (
    LocalSteps,
    MemoryNode,
    MemoryNodes,
    audit_of,
    kinds_of,
    targets_of,
)
from tests.storage.streams import Streams, delete, put, puts, value, values
from tidelog.client.replica_reading import ReplicaEntries
from tidelog.errors import Unreachable
from tidelog.formats.audit_messages import CheckedFile
from tidelog.formats.batch_slice import BatchSlice
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.glsn_runs import GlsnRuns
from tidelog.pipeline.auditing import rows
from tidelog.pipeline.auditing.findings import AuditSummary, FindingKind
from tidelog.pipeline.auditing.running import run

STREAMS = 2


def replica(*, flush_at: int = 99, small: bool = False) -> Streams:
    """One of some equal replicas, whose files are cut in other places on each."""
    story = Streams.new(streams=STREAMS)
    for step in range(6):
        for stream in (1, 2):
            story.write([value(f"{stream}.{step}.{i}") for i in range(10)], stream=stream)
        if step == flush_at:
            story.flush()
    return story


def cluster() -> list[Streams]:
    return [replica(), replica(flush_at=2), replica(flush_at=5)]


def test_equal_replicas_with_different_files_have_no_findings() -> None:
    summary = audit_of(*cluster(), page_bytes=700)
    assert summary.findings == ()
    assert summary.is_complete
    assert summary.entries == 3 * STREAMS * 60
    [topic] = summary.topics
    assert (topic.high_watermark, topic.present, topic.dense_from) == (120, 120, 1)
    assert sum(cell.present for cell in topic.cells) == 120


# -- real damage ---------------------------------------------------------------------------------


def flip(story: Streams, path: str, byte: int) -> None:
    story.disk.flip_bit(path, byte, 3)


def test_a_flipped_byte_in_a_segment_is_named_by_node_stream_and_llsns() -> None:
    stories = cluster()
    [segment] = stories[1].segments(2)
    flip(stories[1], segment.path, 300)
    summary = audit_of(*stories)
    assert kinds_of(summary) == [FindingKind.UNREADABLE, FindingKind.FILE]
    for one in summary.findings:
        assert (one.nodes, one.stream, one.topic) == ((2,), 2, "first")
    unreadable, file = summary.findings
    assert (unreadable.llsn_begin, unreadable.llsn_end) == (1, 31)
    assert "checksum" in unreadable.what
    assert segment.path.endswith(file.file)
    assert [one.findings for one in summary.replicas if one.node == 2] == [0, 2]


def test_a_flipped_byte_costs_its_block_alone() -> None:
    """Blocks before and behind it are compared as always."""
    stories = [Streams.new(), Streams.new()]
    for story in stories:
        for step in range(3):
            story.write([value(f"{step}" * 20_000)])
        story.flush()
    [segment] = stories[0].segments()
    flip(stories[0], segment.path, segment.size // 2)
    summary = audit_of(*stories)
    assert kinds_of(summary) == [FindingKind.UNREADABLE, FindingKind.FILE]
    assert (summary.findings[0].llsn_begin, summary.findings[0].llsn_end) == (2, 3)
    assert [one.entries for one in summary.replicas] == [2, 3]


def test_a_flipped_byte_in_the_wal_of_a_running_node_is_named_by_node_and_file() -> None:
    """What it holds is in memory, so nobody would notice before the next start."""
    stories = cluster()
    flip(stories[0], f"{stories[0].node.path}/wal/0000000000000001.wal", 400)
    summary = audit_of(*stories)
    assert kinds_of(summary) == [FindingKind.FILE]
    [one] = summary.findings
    assert (one.nodes, one.stream, one.file) == ((1,), 0, "wal/0000000000000001.wal")
    assert "offset" in one.what


def test_a_wal_that_lost_its_last_frames_is_found() -> None:
    story = replica()
    story.disk.truncate(f"{story.node.path}/wal/0000000000000001.wal", 1000)
    assert kinds_of(audit_of(story)) == [FindingKind.FILE]


def test_a_footer_that_cannot_be_read_costs_the_segment() -> None:
    story = replica(flush_at=2)
    [segment] = story.segments(1)
    flip(story, segment.path, segment.size - 4)
    story.store(1).opened.forget(segment.path)
    summary = audit_of(story)
    unreadable = summary.findings[0]
    assert (unreadable.kind, unreadable.llsn_begin, unreadable.llsn_end) == (
        FindingKind.UNREADABLE,
        1,
        31,
    )


def test_a_diverged_replica_is_named_with_both_versions() -> None:
    stories = cluster()
    stories[2] = diverged()
    summary = audit_of(*stories)
    assert kinds_of(summary) == [FindingKind.DIVERGED]
    [one] = summary.findings
    assert (one.stream, one.llsn_begin, one.llsn_end) == (1, 41, 43)
    assert one.nodes == (1, 3), "one node of each version, the larger group first"
    assert "node 1, 2 against node 3" in one.what
    assert "value '1.4.0' on node 1 / 'other' on node 3" in one.what


def diverged() -> Streams:
    """Like the others, but for two entries."""
    story = Streams.new(streams=STREAMS)
    for step in range(6):
        for stream in (1, 2):
            entries = [value(f"{stream}.{step}.{i}") for i in range(10)]
            if (stream, step) == (1, 4):
                entries[:2] = [value("other"), value("another")]
            story.write(entries, stream=stream)
    return story


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (Entry(Kind.PUT, b"v", b"key"), "kind"),
        (Entry(Kind.PUT, b"v", b"kez"), "key"),
        (Entry(Kind.PUT, b"w", b"key"), "value"),
        (Entry(Kind.PUT, b"v", b"key", 7), "storage id"),
        (Entry(Kind.PUT, b"v", b"key", blobs=(1,)), "blobs"),
        (Entry(Kind.PUT, b"v", b"key", timestamp_us=9), "timestamp us"),
    ],
    ids=["kind", "key", "value", "storage id", "blobs", "timestamp"],
)
def test_every_field_of_an_entry_counts(entry: Entry, field: str) -> None:
    like = Entry(Kind.DELETE, b"", b"key") if field == "kind" else Entry(Kind.PUT, b"v", b"key")
    stories = [Streams.new(), Streams.new()]
    for story, one in zip(stories, (like, entry), strict=True):
        story.write([one])
    [finding] = audit_of(*stories).findings
    assert finding.kind is FindingKind.DIVERGED
    assert f"{field} " in finding.what


def test_a_term_that_differs_is_found() -> None:
    stories = [Streams.new(), Streams.new()]
    stories[0].write([value("a")], term=4)
    stories[1].write([value("a")], term=5)
    [finding] = audit_of(*stories).findings
    assert "term differ" in finding.what
    assert "term 4 on node 1 / 5 on node 2" in finding.what


# -- compaction ----------------------------------------------------------------------------------


def test_what_compaction_took_from_one_replica_is_no_damage() -> None:
    stories = [Streams.new(), Streams.new()]
    for story in stories:
        story.segment(puts(range(20), "old"))
        story.segment(puts(range(5, 15), "new"))
        story.write(values(5))
    stories[0].snapshot()
    stories[0].major(full=True)
    summary = audit_of(*stories)
    assert summary.findings == ()
    assert [(one.entries, one.compacted) for one in summary.replicas] == [(25, 10), (35, 0)]


def test_what_compaction_took_from_all_replicas_is_no_damage() -> None:
    stories = [Streams.new(), Streams.new()]
    for story in stories:
        story.segment(puts(range(20), "old"))
        story.segment([*puts(range(10), "new"), delete("k12")])
        story.snapshot()
        story.major(full=True)
        story.write(values(5))
    summary = audit_of(*stories)
    assert summary.findings == ()
    [topic] = summary.topics
    assert topic.dense_from > 1
    assert topic.present < topic.high_watermark


def test_what_compaction_left_must_be_equal() -> None:
    stories = [Streams.new(), Streams.new()]
    for number, story in enumerate(stories):
        story.segment(puts(range(20), "old"))
        story.segment([*puts(range(10), "new"), put("kept", f"v{number}")])
        story.snapshot()
        story.major(full=True)
    [finding] = audit_of(*stories).findings
    assert (finding.kind, finding.llsn_begin) == (FindingKind.DIVERGED, 31)


def test_what_was_trimmed_is_no_damage() -> None:
    story = replica(flush_at=2)
    story.trim(20, stream=1)
    story.snapshot(1)
    summary = audit_of(story)
    assert summary.findings == ()


# -- made up answers -----------------------------------------------------------------------------


class Tampered(MemoryNode):
    """A node that answers other things than it holds."""

    lost = range(0)
    """LLSNs of stream 1 that it leaves out."""
    moved: Mapping[int, int] = MappingProxyType({})
    """GLSNs of stream 1 by LLSN, where they are other than they were."""
    dies_at = 1 << 62

    def page(self, stream: int, begin: int, end: int) -> ReplicaEntries:
        page = super().page(stream, begin, end)
        if stream != 1:
            return page
        if page.llsn_end > self.dies_at:
            raise Unreachable("the node is gone")
        slices = [(1, part) for _, piece in page.slices for part in self._changed(piece)]
        return replace(page, slices=slices)

    def _changed(self, piece: BatchSlice) -> Iterator[BatchSlice]:
        for place in range(piece.begin, piece.end):
            llsn = piece.batch.llsn_at(place)
            if llsn in self.lost:
                continue
            glsn = self.moved.get(llsn, piece.runs.glsn_of(llsn))
            yield BatchSlice(piece.batch, place, place + 1, GlsnRuns([(llsn, glsn, 1)]))


def audit_tampered(node: Tampered, *others: Streams) -> AuditSummary:
    nodes: dict[int, MemoryNode] = {1: node}
    nodes |= {number: MemoryNode(number, story.node) for number, story in enumerate(others, 2)}
    targets = targets_of(nodes)
    return run(targets, LocalSteps(nodes, targets.topic_of()), MemoryNodes(nodes), lambda _: None)


def test_a_missing_range_is_named_by_replica_and_llsns() -> None:
    node = Tampered(1, replica().node)
    node.lost = range(25, 47)
    summary = audit_tampered(node, replica(), replica())
    [one] = summary.findings
    assert (one.kind, one.nodes, one.stream) == (FindingKind.MISSING, (1,), 1)
    assert (one.llsn_begin, one.llsn_end) == (25, 47)


def test_what_no_replica_has_leaves_a_gap_in_the_total_order() -> None:
    node = Tampered(1, replica().node)
    node.lost = range(60, 61)
    summary = audit_tampered(node)
    assert kinds_of(summary) == [FindingKind.MISSING, FindingKind.MISSING_GLSNS]
    gap = summary.findings[1]
    assert (gap.topic, gap.glsn_begin, gap.glsn_end) == ("first", 110, 111)


def test_a_glsn_given_twice_is_named_with_both_places() -> None:
    story = replica()
    node = Tampered(1, story.node)
    node.moved = {11: story.store(2).glsn_of(10)}
    summary = audit_tampered(node)
    assert FindingKind.DOUBLED in kinds_of(summary)
    [one] = [one for one in summary.findings if one.kind is FindingKind.DOUBLED]
    assert (one.glsn_begin, one.glsn_end) == (20, 21)
    assert "log stream 2 has it at LLSN 10, log stream 1 at 11" in one.what
    assert sum(cell.doubled for cell in summary.topics[0].cells) == 1


@pytest.mark.parametrize("bits", [15, 5, 1], ids=["one bucket", "two buckets", "many"])
def test_glsns_that_go_back_within_a_stream_are_found(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where entries are compared in different buckets: LLSN 32 is the first of one."""
    monkeypatch.setattr(rows, "BUCKET_BITS", bits)
    node = Tampered(1, replica().node)
    node.moved = {32: 2}
    summary = audit_tampered(node)
    [one] = [one for one in summary.findings if one.kind is FindingKind.ORDER]
    assert (one.stream, one.llsn_begin, one.llsn_end) == (1, 31, 33)


@pytest.mark.parametrize("bits", [1, 4, 6])
def test_where_buckets_end_changes_nothing(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stories = [*cluster()[:2], diverged()]
    expected = audit_of(*stories)
    monkeypatch.setattr(rows, "BUCKET_BITS", bits)
    found = audit_of(*stories)
    assert found.findings == expected.findings
    assert found.topics == expected.topics
    assert found.replicas == expected.replicas


@pytest.mark.parametrize("glsn", [121, 5_000_000])
def test_a_glsn_that_was_never_given_is_found(glsn: int) -> None:
    node = Tampered(1, replica().node)
    node.moved = {60: glsn}
    summary = audit_tampered(node)
    assert kinds_of(summary) == [FindingKind.ORDER, FindingKind.MISSING_GLSNS]
    one = summary.findings[0]
    assert (one.stream, one.llsn_begin, one.glsn_begin) == (1, 60, glsn)
    assert "above 120" in one.what


def test_a_glsn_that_one_replica_alone_has_wrong_is_a_divergence_and_nothing_else() -> None:
    node = Tampered(1, replica().node)
    node.moved = {30: 2}
    summary = audit_tampered(node, replica(), replica())
    [one] = summary.findings
    assert (one.kind, one.llsn_begin, one.llsn_end) == (FindingKind.DIVERGED, 30, 31)
    assert "GLSN differ" in one.what


def test_a_node_that_is_lost_on_the_way_is_left_out_and_the_others_are_compared() -> None:
    node = Tampered(1, replica().node)
    node.dies_at = 0
    summary = audit_tampered(node, replica(), replica())
    assert summary.findings == ()
    assert not summary.is_complete
    assert [(one.stream, one.node, one.why) for one in summary.left_out] == [
        (1, 1, "the node is gone")
    ]


def test_what_a_lost_node_alone_held_is_no_gap_in_the_total_order() -> None:
    node = Tampered(1, replica().node)
    node.dies_at = 0
    summary = audit_tampered(node)
    assert summary.findings == ()
    assert not summary.is_complete


# -- contexts ------------------------------------------------------------------------------------


def test_contexts_of_one_version_that_differ_are_found() -> None:
    stories = cluster()
    context = stories[2].store(1).context
    stories[2].store(1).context = replace(context, high_watermark=context.high_watermark + 1)
    found = [one for one in audit_of(*stories).findings if one.kind is FindingKind.CONTEXT]
    assert [(one.stream, one.nodes) for one in found] == [(1, (1, 3))]
    assert "high watermark" in found[0].what


def test_a_context_that_does_not_fit_to_the_entries_is_found() -> None:
    story = replica()
    context = story.store(2).context
    story.store(2).context = replace(context, glsn_begin=context.glsn_begin - 1)
    found = [one for one in audit_of(story).findings if one.kind is FindingKind.CONTEXT]
    assert any("LLSN 60 has GLSN 120, not 119" in one.what for one in found)


def test_a_topic_with_more_glsns_than_entries_is_found() -> None:
    story = replica()
    targets = targets_of({1: MemoryNode(1, story.node)})
    targets.ordered_ends[1] -= 1
    nodes = {1: MemoryNode(1, story.node)}
    summary = run(
        targets, LocalSteps(nodes, targets.topic_of()), MemoryNodes(nodes), lambda _: None
    )
    [one] = summary.findings
    assert "120 GLSNs were given, but 119 entries" in one.what


# -- figures -------------------------------------------------------------------------------------


def test_a_replica_that_lags_is_compared_as_far_as_it_is() -> None:
    behind = Streams.new(streams=STREAMS)
    for step in range(4):
        for stream in (1, 2):
            behind.write([value(f"{stream}.{step}.{i}") for i in range(10)], stream=stream)
    summary = audit_of(replica(), behind)
    assert summary.findings == ()
    assert [one.lag for one in summary.replicas] == [0, 0, 20, 20]


class Unsound(MemoryNode):
    def check_files(self, stream: int) -> Iterator[CheckedFile]:
        for number in range(500):
            yield CheckedFile(f"{number}", 1, "broken")


def test_findings_are_listed_up_to_a_limit_and_all_are_counted() -> None:
    story = replica()
    nodes: dict[int, MemoryNode] = {1: Unsound(1, story.node)}
    targets = targets_of(nodes)
    summary = run(
        targets, LocalSteps(nodes, targets.topic_of()), MemoryNodes(nodes), lambda _: None
    )
    assert len(summary.findings) == 1_000
    assert summary.findings_more == 500


def test_a_summary_can_be_told_as_json() -> None:
    summary = audit_of(*cluster())
    assert msgspec.json.decode(msgspec.json.encode(summary), type=AuditSummary) == summary
