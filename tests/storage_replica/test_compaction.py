"""Flush, snapshots, compaction and digests of replicas, also of ones that were filled up."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from tests.storage_replica.fillings import fill
from tests.storage_replica.twin import (
    STREAM,
    TOPIC,
    Twin,
    all_batches,
    batch,
    control,
    entries_of,
    topic,
)
from tidelog.core.compaction.plan import Strategy
from tidelog.core.replica.commit_context import CommitContext
from tidelog.core.replica.entries import NO_ENTRY, Batch, GlsnRun
from tidelog.core.replica.output import Filled, HardState
from tidelog.embedded.maintenance import Maintenance
from tidelog.errors import OutOfRange
from tidelog.formats.entry import Entry, Kind
from tidelog.formats.key_rows import hash_key
from tidelog.formats.replica_records import decode_summary
from tidelog.limits import WAL_BACKLOG_FILES_MAX
from tidelog.storage.replica_snapshot import present_up_to
from tidelog.storage.segment_file import SegmentReader
from tidelog.types import Llsn, StreamId, Term

OTHER = StreamId(2)


def put(key: str, text: str) -> Entry:
    return Entry(Kind.PUT, text.encode(), key.encode())


def delete(key: str) -> Entry:
    return Entry(Kind.DELETE, b"", key.encode())


def get(twin: Twin, key: str) -> bytes | None:
    store = twin.store()
    found = store.find_key(0, key.encode(), hash_key(0, key.encode(), store.place.hash_seed))
    if found is None or found.kind is not Kind.PUT:
        return None
    return twin.read()[found.llsn][2].value


@pytest.fixture
def twin() -> Twin:
    twin = Twin()
    twin.become_member()
    return twin


def write_keys(twin: Twin, rounds: int = 3) -> None:
    for number in range(rounds):
        entries = [put(f"k{key}", f"{key} of {number}") for key in range(4)]
        twin.write(batches=[batch(1, twin.image().end, *entries)])
        twin.order()
        twin.flush()


def test_compaction_leaves_the_newest_of_each_key_and_the_reader_serves_just_that(
    twin: Twin,
) -> None:
    write_keys(twin)
    twin.compact()
    served = entries_of(all_batches(twin.disk.reader(STREAM), 1))
    assert [llsn for llsn, _, _ in served] == [9, 10, 11, 12]
    assert get(twin, "k1") == b"1 of 2"
    twin.crash()
    twin.check_stored()
    assert twin.disk.stored(STREAM).snapshot_index == 12
    assert get(twin, "k3") == b"3 of 2"


def test_what_is_served_of_joined_batches_begins_where_it_was_asked_for(twin: Twin) -> None:
    for number in range(6):
        twin.append(f"{number}", producer=5, sequence=number + 1)
    twin.order()
    twin.flush()
    (first, *_) = twin.disk.reader(STREAM).batches(Llsn(4), 1000) or ()
    assert first.llsn_begin == 4
    assert entries_of([first])[0][2].value == b"3"
    assert first.producer == 0, "a part of several appends is nobody's append"


def test_what_is_served_of_joined_batches_ends_where_it_was_asked_to(twin: Twin) -> None:
    for number in range(6):
        twin.append(f"{number}")
    twin.order()
    twin.flush()
    found = twin.disk.reader(STREAM).batches(Llsn(2), 1000, Llsn(5)) or ()
    assert [llsn for llsn, _, _ in entries_of(found)] == [2, 3, 4]


def test_batches_of_different_terms_are_never_served_as_one(twin: Twin) -> None:
    twin.append("a")
    twin.write(hard_state=HardState(Term(2), is_complete=True), batches=[control(2, 2)])
    twin.append("b", term=2)
    twin.append("c", term=2)
    twin.order()
    twin.flush()
    served = all_batches(twin.disk.reader(STREAM), 1)
    assert [(each.term, each.llsn_begin, each.count, each.is_control) for each in served] == [
        (1, 1, 1, False),
        (2, 2, 1, True),
        (2, 3, 2, False),
    ]


def test_what_was_read_before_a_snapshot_is_read_anew_after_it(twin: Twin) -> None:
    write_keys(twin)
    reader = twin.disk.reader(STREAM)
    assert len(entries_of(all_batches(reader, 1))) == 12
    twin.compact()
    assert [llsn for llsn, _, _ in entries_of(all_batches(reader, 1))] == [9, 10, 11, 12]


def test_a_filled_replica_reads_and_compacts_like_any_other(twin: Twin) -> None:
    """It was sent the newest of the keys; what came before it never had."""
    twin.write(wipe=True, hard_state=HardState(Term(1), is_complete=False, had=NO_ENTRY))
    sent = [batch(1, 3, put("a", "a3")), batch(1, 6, put("b", "b6"), put("c", "c7"))]
    context = CommitContext(3, 7, 7, 7, 1)
    twin.write(
        hard_state=HardState(Term(1), is_complete=True),
        batches=sent,
        sparse=True,
        runs=[GlsnRun(Llsn(1), 1, 7)],
        context=context,
        state=b"",
        filled=Filled(Llsn(8), Llsn(6), ((Term(1), Llsn(1)),), ()),
    )
    twin.flush()
    assert [get(twin, key) for key in "abc"] == [b"a3", b"b6", b"c7"]
    twin.write(batches=[batch(1, 8, put("a", "a8"), delete("b"))])
    twin.order()
    twin.flush()
    twin.compact()
    assert [get(twin, key) for key in "abc"] == [b"a8", None, b"c7"]
    twin.crash()
    twin.check_stored()
    assert [get(twin, key) for key in "abc"] == [b"a8", None, b"c7"]
    assert 3 not in twin.read()


def test_what_a_filled_replica_holds_is_counted_while_files_go(
    twin: Twin, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_keys(twin)
    store = twin.store()
    lease = store.opened.lease

    def lease_after_a_compaction(path: str) -> AbstractContextManager[SegmentReader]:
        monkeypatch.undo()
        twin.compact()
        return lease(path)

    monkeypatch.setattr(store.opened, "lease", lease_after_a_compaction)
    assert set(range(9, 13)) <= set(present_up_to(store, 12))
    assert len(store.view.segments) == 1


def test_a_live_index_of_a_filled_replica_that_is_lost_is_found_again(twin: Twin) -> None:
    fill(twin)
    twin.flush()
    (path,) = [path for path in twin.sim.files() if path.endswith(".live")]
    twin.disk.close()
    twin.sim.vfs().unlink(path)
    twin.crash()
    twin.check()
    assert list(twin.store().snapshot.live) == [1, 3]


def test_the_state_of_a_replica_tells_boundary_and_trim(twin: Twin) -> None:
    write_keys(twin)
    twin.disk.set_boundary(STREAM, 1 << 90)
    twin.write(trim_to=5)
    twin.sync()
    summary = decode_summary(twin.disk.reader(STREAM).state())
    assert (summary.boundary, summary.trim_glsn_end) == (1 << 90, 5)


def test_a_stream_that_cannot_be_ordered_does_not_keep_the_wal_of_others(twin: Twin) -> None:
    twin.append("waits", producer=8, sequence=1)
    twin.become_member(OTHER)
    maintenance = Maintenance(twin.disk.node, Strategy(), 1 << 20)
    for number in range(3 * WAL_BACKLOG_FILES_MAX):
        twin.append(f"{number}", stream=OTHER)
        twin.order(stream=OTHER)
        twin.sync()
        twin.disk.roll()
        maintenance.flush_rolled()
        assert not twin.disk.is_backlogged
    twin.check()
    twin.crash()
    twin.check()
    twin.order()
    twin.flush()
    twin.crash()
    twin.check()


def test_maintenance_of_the_embedded_log_runs_on_a_storage_node(twin: Twin) -> None:
    maintenance = Maintenance(twin.disk.node, Strategy(), 1)
    write_keys(twin)
    for number in range(4):
        twin.write(batches=[batch(1, twin.image().end, put("k0", f"{number}"))])
        twin.order()
        twin.sync()
        twin.disk.roll()
        maintenance.flush_rolled()
        maintenance.tick()
    maintenance.major(twin.store(), full=True)
    assert maintenance.snapshots
    assert get(twin, "k0") == b"3"
    twin.crash()
    twin.check_stored()
    assert get(twin, "k0") == b"3"


def test_control_entries_alone_are_no_reason_for_a_snapshot(twin: Twin) -> None:
    """Else followers that lag would be filled up instead of served."""
    maintenance = Maintenance(twin.disk.node, Strategy(), 1)
    for number in range(3):
        twin.write(batches=[control(1, twin.image().end)])
        twin.append(f"{number}")
        twin.order()
        twin.sync()
        twin.disk.roll()
        maintenance.flush_rolled()
    assert maintenance.flushes == 3
    assert not maintenance.snapshots


def digest(twin: Twin, begin: int, end: int) -> bytes:
    return twin.disk.digest(STREAM, Llsn(begin), Llsn(end))


def test_equal_logs_have_equal_digests_whatever_their_segments_look_like() -> None:
    twins = [Twin(), Twin()]
    for number, twin in enumerate(twins):
        twin.become_member()
        for text in "abcdef":
            twin.append(text)
            twin.order()
            if number or text == "d":
                twin.flush()
        twin.sync()
    assert digest(twins[0], 1, 7) == digest(twins[1], 1, 7)
    assert digest(twins[0], 2, 5) == digest(twins[1], 2, 5)
    assert digest(twins[0], 1, 6) != digest(twins[1], 1, 7)


def flipped(twin: Twin, change: str) -> Batch:
    texts = {"value": "B"}.get(change, "b")
    return batch(2 if change == "term" else 1, 2, Entry(Kind.APPEND, texts.encode()))


@pytest.mark.parametrize("change", ["value", "term", "glsn"])
def test_a_digest_tells_another_value_term_or_place(change: str) -> None:
    digests = []
    for each in ("", change):
        twin = Twin()
        twin.become_member(term=2)
        twin.append("a")
        twin.write(batches=[flipped(twin, each)])
        twin.order(gap=1 if each == "glsn" else 0)
        twin.sync()
        digests.append(digest(twin, 1, 3))
    assert digests[0] != digests[1]


def test_a_digest_of_what_is_not_ordered_or_may_be_compacted_is_refused(twin: Twin) -> None:
    write_keys(twin)
    twin.append("unordered")
    twin.sync()
    with pytest.raises(OutOfRange):
        digest(twin, 1, 14)
    twin.snapshot()
    with pytest.raises(OutOfRange):
        digest(twin, 12, 13)
    assert digest(twin, 13, 13)


def test_topics_can_be_named_after_their_streams_came(twin: Twin) -> None:
    twin.disk.node.topics.clear()
    twin.become_member(StreamId(3))
    twin.sync()
    assert not twin.store(StreamId(3)).log_versions
    twin.disk.set_topics([topic(streams=(1, 2, 3, 4))])
    assert twin.store(StreamId(3)).log_versions
    twin.restart()
    assert twin.disk.node.topics[TOPIC].name == "orders"
