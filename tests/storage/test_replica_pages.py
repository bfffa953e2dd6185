"""A replica read by LLSN, page by page: all of it, and what damage leaves of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.storage.streams import Streams, delete, put, puts, value, values
from tidelog.formats.entry import Entry
from tidelog.formats.wal import decode_file_header, scan_file
from tidelog.storage import replica_pages
from tidelog.storage.file_checks import check_segments, check_wal
from tidelog.storage.frame_write import FrameWrite
from tidelog.storage.replica_facts import audited_replicas
from tidelog.storage.replica_pages import StoredPage, read_replica

END = 1 << 62


def pages(story: Streams, begin: int = 1, end: int = END, size: int = 0) -> Iterator[StoredPage]:
    while begin < end:
        page = read_replica(story.store(), begin, end, size)
        assert page.begin == begin
        if page.end == begin:
            return
        yield page
        begin = page.end


def entries(story: Streams, size: int = 0) -> dict[int, tuple[int, Entry]]:
    found: dict[int, tuple[int, Entry]] = {}
    for page in pages(story, size=size):
        for piece in page.pieces:
            rows = zip(
                piece.llsns(),
                piece.glsns(),
                piece.batch.entries(piece.begin, piece.end),
                strict=True,
            )
            for llsn, glsn, entry in rows:
                assert page.begin <= llsn < page.end
                assert llsn not in found
                found[llsn] = (glsn, entry)
    return found


@pytest.fixture
def story() -> Streams:
    """Two segments, and more in memory; the last entry is not ordered yet."""
    story = Streams.new()
    story.segment(values(30))
    story.segment([put("a"), put("b"), delete("a")])
    story.write(values(4))
    story.write([value("unordered")], cut=False)
    return story


@pytest.mark.parametrize("size", [0, 1, 300])
def test_pages_hold_all_that_is_ordered_once(story: Streams, size: int) -> None:
    expected = {llsn: item for llsn, item in story.model[1].items() if item[0]}
    assert entries(story, size) == expected
    assert list(pages(story, size=size))[-1].end == story.store().ordered_end


def test_small_pages_are_many(story: Streams) -> None:
    assert len(list(pages(story, size=1))) == 3, "a batch is never cut for its size"


def test_pages_are_bounded_in_runs(story: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        story.write([value(f"{number}")])
    monkeypatch.setattr(replica_pages, "RUNS_MAX", 2)
    assert all(len(page.pieces) <= 2 for page in pages(story))
    assert entries(story) == {llsn: item for llsn, item in story.model[1].items() if item[0]}


def test_a_batch_with_too_many_runs_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Streams.new(streams=2)
    story.write(values(9), cut=False)
    for end in (4, 7, 10):
        batch = story.batch([value("other")], stream=2)
        story.frame(batch, cut=(2,))
        _order_up_to(story, end)
    monkeypatch.setattr(replica_pages, "RUNS_MAX", 1)
    assert [(page.begin, page.end) for page in pages(story)] == [(1, 4), (4, 7), (7, 10)]


def _order_up_to(story: Streams, end: int) -> None:
    decided = story._decide((1,), {1: end, 2: 0})
    story.node.write(FrameWrite(cut=decided))


def test_nothing_behind_the_end_is_an_empty_page(story: Streams) -> None:
    end = story.store().ordered_end
    for begin in (end, end + 100):
        page = read_replica(story.store(), begin, END)
        assert (page.begin, page.end, page.pieces) == (begin, begin, [])


def test_a_page_says_how_far_entries_may_be_missing() -> None:
    story = Streams.new()
    story.segment(puts(range(9), "old"))
    story.segment(puts(range(9), "new"))
    story.snapshot()
    story.major(full=True)
    page = read_replica(story.store(), 1, END)
    assert page.settled_index == 18
    assert [llsn for piece in page.pieces for llsn in piece.llsns()] == list(range(10, 19))


# -- damage --------------------------------------------------------------------------------------


def three_blocks() -> Streams:
    story = Streams.new()
    for number in range(3):
        story.write([value(f"{number}" * 20_000)])
    story.flush()
    return story


def test_a_damaged_block_is_a_page_of_its_own() -> None:
    story = three_blocks()
    [segment] = story.segments()
    story.disk.flip_bit(segment.path, segment.size // 2, 1)
    found = list(pages(story))
    assert [(page.begin, page.end, bool(page.damage)) for page in found] == [
        (1, 2, False),
        (2, 3, True),
        (3, 4, False),
    ]
    assert segment.path in found[1].damage
    assert found[1].pieces == []


def test_a_file_that_is_gone_is_damage_of_all_that_it_held() -> None:
    story = three_blocks()
    [segment] = story.segments()
    story.store().opened.forget(segment.path)
    story.disk.vfs().unlink(segment.path)
    [page] = pages(story)
    assert (page.begin, page.end) == (1, 4)
    assert "missing" in page.damage


# -- files ---------------------------------------------------------------------------------------


def test_sound_files_have_no_problem(story: Streams) -> None:
    files = check_segments(story.node, story.store(), 0)
    assert [(one.problem, one.bytes > 0) for one in files.files] == [("", True), ("", True)]
    assert files.next == 0
    [wal] = check_wal(story.node, 0).files
    assert (wal.problem, wal.name) == ("", f"wal/{story.node.wal.number:016d}.wal")


def test_every_flipped_byte_of_a_wal_frame_is_found(story: Streams) -> None:
    """A frame that was durable: it cannot be taken for a torn tail."""
    path = f"{story.node.path}/wal/{story.node.wal.number:016d}.wal"
    data = story.disk.files()[path]
    for place in range(0, scan_file(data, decode_file_header(data)).end_offset, 7):
        story.disk.flip_bit(path, place, 2)
        [wal] = check_wal(story.node, 0).files
        assert wal.problem, f"byte {place}"
        story.disk.flip_bit(path, place, 2)
    [wal] = check_wal(story.node, 0).files
    assert not wal.problem


def test_a_rolled_wal_file_must_reach_the_next_one() -> None:
    story = Streams.new()
    for number in range(4):
        story.write([value(f"{number}")])
    first = f"{story.node.path}/wal/{story.node.wal.number:016d}.wal"
    story.roll()
    story.write([value("next")])
    assert [one.problem for one in check_wal(story.node, 0).files] == ["", ""]
    data = story.disk.files()[first].rstrip(b"\0")
    story.disk.truncate(first, len(data) // 2)
    problems = [one.problem for one in check_wal(story.node, 0).files]
    assert "were durable" in problems[0]
    assert problems[1] == ""


def test_a_missing_wal_file_is_found() -> None:
    story = Streams.new()
    story.write([value("a")])
    path = f"{story.node.path}/wal/{story.node.wal.number:016d}.wal"
    story.disk.vfs().unlink(path)
    [wal] = check_wal(story.node, 0).files
    assert "missing" in wal.problem


def test_files_are_checked_in_portions(story: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.storage.file_checks.BYTES", 1)
    first = check_segments(story.node, story.store(), 0)
    assert (len(first.files), first.next) == (1, 2)
    second = check_segments(story.node, story.store(), first.next)
    assert (len(second.files), second.next) == (1, 0)


# -- facts ---------------------------------------------------------------------------------------


def test_a_node_tells_of_its_replicas(story: Streams) -> None:
    [facts] = audited_replicas(story.node)
    assert (facts.topic, facts.stream) == ("first", 1)
    assert (facts.first_llsn, facts.ordered_end_llsn, facts.end_llsn) == (1, 38, 39)
    assert (facts.settled_index, facts.settled_glsn_end) == (0, 1)
    assert facts.context[1] == 37
    assert facts.context_flaw == ""
    assert facts.is_complete


def test_the_last_entry_may_be_compacted_away_without_a_flaw() -> None:
    story = Streams.new()
    story.segment([put("a"), put("b")])
    story.segment([put("a", "new"), delete("b")])
    story.snapshot()
    story.major(full=True)
    story.snapshot()
    story.major(full=True)
    [facts] = audited_replicas(story.node)
    assert facts.context_flaw == ""
    assert facts.settled_index == 4
    assert facts.settled_glsn_end == 5
