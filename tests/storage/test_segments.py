"""Which source counts where several overlap, and when files may go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.storage.streams import Streams, put, puts, value, values
from tests.storage.test_memtable import stored, table_of
from tests.storage.watched import Calls
from tidelog.formats.batch import Batch
from tidelog.formats.manifest import TruncationLimit
from tidelog.formats.segment import SegmentFooter
from tidelog.storage.memtable import Memtable
from tidelog.storage.segments import Pins, Segment, StreamView, segment_name, segment_numbers
from tidelog.storage.stream_store import StreamStore
from tidelog.testing.disk import Op


def segment(number: int, first: int, end: int) -> Segment:
    return Segment(
        number=number,
        path=segment_name(number),
        first_llsn=first,
        end_llsn=end,
        file_end_llsn=end,
        first_glsn=first,
        entries=end - first,
        keyed=0,
        size=100,
        max_version=0,
        specials=(),
    )


def arranged(
    *segments: Segment,
    tables: list[Memtable] | None = None,
    limits: tuple[tuple[int, int], ...] = (),
) -> tuple[list[tuple[int, int, int]], list[int]]:
    """(number, first, effective end) of the valid segments, and the numbers of shadowed ones."""
    limited = [TruncationLimit(number, end) for number, end in limits]
    view, shadowed = StreamView.arrange(segments, tables or [], limited)
    ranges = [(s.number, s.first_llsn, s.end_llsn) for s in view.segments]
    assert all(a[2] <= b[1] for a, b in pairwise(ranges)), "S2"
    return ranges, sorted(s.number for s in shadowed)


def test_segments_that_do_not_overlap_count_whole_in_any_order() -> None:
    parts = segment(1, 1, 10), segment(2, 10, 20), segment(4, 25, 30)
    expected = [(1, 1, 10), (2, 10, 20), (4, 25, 30)]
    assert arranged(*parts) == arranged(*reversed(parts)) == (expected, [])


def test_the_newer_one_of_two_that_overlap_wins() -> None:
    assert arranged(segment(1, 1, 20), segment(2, 10, 30)) == ([(1, 1, 10), (2, 10, 30)], [])


def test_a_segment_that_newer_ones_begin_before_is_shadowed() -> None:
    found = arranged(segment(1, 1, 5), segment(2, 5, 20), segment(3, 5, 9), segment(4, 9, 10))
    assert found == ([(1, 1, 5), (3, 5, 9), (4, 9, 10)], [2])


def test_a_memtable_is_newer_than_every_segment() -> None:
    table = table_of(stored(values(3), 8))
    empty = Memtable(2)
    found = arranged(segment(1, 1, 10), segment(2, 10, 20), tables=[table, empty])
    assert found == ([(1, 1, 8)], [2])


def test_a_truncation_limits_the_segments_that_were_there_before_it() -> None:
    parts = segment(1, 1, 10), segment(2, 10, 20), segment(3, 12, 15)
    assert arranged(*parts, limits=((2, 12),)) == ([(1, 1, 10), (2, 10, 12), (3, 12, 15)], [])
    assert arranged(
        *parts,
        limits=(
            (2, 5),
            (3, 14),
        ),
    ) == ([(1, 1, 5), (3, 12, 14)], [2])
    assert arranged(*parts, limits=((3, 1),)) == ([], [1, 2, 3])


def test_the_view_is_empty_without_sources() -> None:
    assert arranged() == ([], [])
    assert StreamView().newest_segment == 0


def test_only_files_with_a_number_are_segments() -> None:
    story = Streams.new()
    story.segment(values(2))
    vfs, directory = story.disk.vfs(), story.directory()
    for name in ("x.segment", "2.segment.tmp", "notes", "-3.segment"):
        vfs.create(f"{directory}/{name}")
    vfs.symlink(segment_name(1), f"{directory}/{segment_name(7)}")
    assert segment_numbers(vfs, directory) == [1]


def test_what_is_known_of_a_segment_comes_from_its_footer() -> None:
    story = Streams.new()
    story.segment([value("a"), put("k"), put("l")])
    (found,) = story.segments()
    with story.node.opened.lease(found.path) as reader:
        footer: SegmentFooter = reader.footer
        assert Segment.of(story.directory(), footer, reader.size_bytes) == found
    assert (found.entries, found.keyed, found.first_llsn, found.end_llsn) == (3, 2, 1, 4)


@pytest.mark.parametrize(
    ("look", "found"),
    [
        (lambda store: store.llsn_at_or_after(14), 5),
        (lambda store: store.llsn_at_or_after(15), 6),
        (lambda store: store.glsn_of(6), 15),
        (lambda store: store.glsn_from(5), 14),
        (lambda store: list(store.runs_by_glsn(14, 19)), [(5, 14, 2)]),
        (lambda store: [batch.llsns() for batch in batches_of(store, 5, 7)], [range(5, 7)]),
    ],
)
def test_to_find_a_position_no_other_file_is_opened_than_that_which_holds_it(
    look: Callable[[StreamStore], object], found: object
) -> None:
    """S4.  Two streams take turns, so that LLSNs and GLSNs differ: the second has two in five."""
    calls = Calls()
    story = Streams.new(streams=2, watcher=calls)
    for _ in range(5):
        story.segment(values(3), stream=1)
        story.segment(values(2), stream=2)
    for segment in story.segments(2):
        story.node.opened.forget(segment.path)
    calls.paths.clear()
    assert look(story.store(2)) == found
    opened = [path for call, path in calls.paths if call is Op.OPEN]
    assert opened == [story.segments(2)[2].path]


def batches_of(store: StreamStore, begin: int, end: int) -> list[Batch]:
    return [piece.batch for piece in store.read(begin, end)]


def test_a_file_waits_for_the_readers_that_came_before_it_was_retired() -> None:
    pins = Pins()
    with pins.pinned():
        pins.retire(["a"])
        with pins.pinned():
            pins.retire(["b"])
            assert (pins.releasable(), pins.waiting) == ([], 2)
        assert pins.releasable() == []
    assert pins.releasable() == ["a", "b"]
    assert (pins.releasable(), pins.waiting) == ([], 0)


def test_a_reader_that_came_later_does_not_hold_older_files() -> None:
    pins = Pins()
    pins.retire(["a"])
    with pins.pinned():
        assert pins.releasable() == ["a"]
        pins.retire(["b"])
        assert pins.releasable() == []
    assert pins.releasable() == ["b"]


def test_truncations_are_remembered_over_restarts_while_a_file_holds_more() -> None:
    """Sources that reach beyond a truncation exist only while entries are not ordered."""
    story = Streams.new()
    story.segment(values(5))
    story.store().limits = (TruncationLimit(1, 4),)
    story.store().rearrange()
    assert list(story.read()) == [1, 2, 3]
    story.node.save_manifest()
    manifest = story.node.manifest.streams[0]
    assert manifest.limits == (TruncationLimit(1, 4),)
    # Without the limit the file would count whole again.
    store = story.store()
    store.limits = ()
    store.rearrange()
    assert len(story.read()) == 5


def test_a_truncation_that_no_file_reaches_is_forgotten() -> None:
    story = Streams.new()
    story.segment(values(5))
    story.write(values(3), cut=False)
    story.truncate(7)
    assert story.store().limits == ()
    story.truncate(6)
    assert story.store().limits == ()
    story.reopen()
    assert story.store().end_llsn == 6
    story.assert_whole()


def test_segments_that_the_wal_holds_again_are_deleted_at_a_start() -> None:
    """The flush was done, but the manifest that tells of it was not written."""
    story = Streams.new()
    story.write(puts(range(5)))
    story.roll()
    table = story.store().view.memtables[0]
    assert story.store().flush(table) is not None
    assert story.names(suffix=".segment") == [segment_name(1)]
    story.power_loss()
    assert (story.numbers(), story.names(suffix=".segment")) == ([], [])
    story.assert_live()
    story.flush()
    assert story.numbers() == [2]
    story.assert_live()
    story.reopen()
    story.assert_live()
