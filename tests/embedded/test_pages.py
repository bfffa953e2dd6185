"""Pages hold what they say, however batches of streams lie across each other; places are found."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.embedded.logs import WAIT_SECONDS, flush, in_thread, open_sim
from tidelog import Entry, Kind, Log
from tidelog.embedded import page_filling
from tidelog.embedded.cut_ends import CUT_ENDS_MAX, CutEnds
from tidelog.embedded.page_filling import is_sent_whole, share_bytes
from tidelog.embedded.pages import EnginePage, find_piece, read_page, read_pages
from tidelog.embedded.requests import AppendRequest
from tidelog.errors import BadEntry, BadOption, LogClosed, OutOfRange, Trimmed, UnknownStream
from tidelog.formats.batch import encode_entries, encode_values
from tidelog.interface.appends import Append, Part
from tidelog.interface.positions import Position
from tidelog.interface.records import records_of
from tidelog.limits import PAGE_BYTES
from tidelog.testing.disk import SimDisk

Reader = Callable[[int, int, Sequence[int], int], EnginePage]


def reader_of(log: Log) -> Reader:
    topic = log.engine.find_topic("default")

    def read(
        begin: int, end: int = 0, streams: Sequence[int] = (), bytes_max: int = 0
    ) -> EnginePage:
        return read_page(
            log.engine, log.engine.node.topics[topic.topic], begin, end, streams, bytes_max
        )

    return read


def glsns_in(page: EnginePage) -> list[int]:
    found = [record.glsn for stream, piece in page.pieces for record in records_of(stream, piece)]
    return sorted(found)


def walk(log: Log, begin: int, end: int, streams: Sequence[int], bytes_max: int) -> list[int]:
    """The GLSNs of all pages, each of which is checked by itself."""
    read = reader_of(log)
    found: list[int] = []
    while begin < end:
        page = read(begin, end, streams, bytes_max)
        assert page.glsn_begin == begin
        assert begin < page.glsn_end <= end
        glsns = glsns_in(page)
        assert all(begin <= glsn < page.glsn_end for glsn in glsns)
        firsts = [piece.glsns()[0] for _, piece in page.pieces]
        assert firsts == sorted(firsts)
        size = sum(share_bytes(p.batch, p.begin, p.end) for _, p in page.pieces)
        largest = max((piece.batch.length for _, piece in page.pieces), default=0)
        assert size <= max(bytes_max or PAGE_BYTES, largest)
        found += glsns
        begin = page.glsn_end
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    step = st.tuples(
        st.sampled_from(["append", "append", "append", "put", "flush", "compact"]),
        st.integers(1, 3),
        st.integers(1, 12),
    )
    return draw(st.lists(step, min_size=1, max_size=25))


def play(log: Log, history: list[tuple[str, int, int]]) -> None:
    for number, (what, stream, count) in enumerate(history):
        if what == "append":
            log.append_batch([bytes(number % 40)] * count, stream=stream)
        elif what == "put":
            log.put_batch([(b"k%d" % (key % 5), b"%d" % number) for key in range(count)])
        elif what == "flush":
            flush(log)
        else:
            log.compact(full=True)


@settings(max_examples=60)
@given(histories(), st.integers(0, 3000), st.data())
def test_pages_together_hold_what_a_read_shows(
    history: list[tuple[str, int, int]], bytes_max: int, data: st.DataObject
) -> None:
    with open_sim(SimDisk(), streams=3) as log:
        play(log, history)
        end = data.draw(st.integers(1, log.high_watermark + 1))
        begin = data.draw(st.integers(1, end))
        streams = data.draw(st.sets(st.integers(1, 3)))
        expected = [
            record.glsn
            for record in log.read(begin, end)
            if not streams or record.stream in streams
        ]
        assert walk(log, begin, end, sorted(streams), bytes_max) == expected


def interleaved(log: Log, count: int, size: int = 50) -> None:
    for number in range(count):
        log.append(bytes(size), stream=1 + number % len(log.streams))


def test_interleaved_batches_are_shared_out_in_few_pages() -> None:
    """One batch for each of eight streams: no page may be about the first of them alone."""
    with open_sim(SimDisk(), streams=8) as log:
        interleaved(log, 800)
        flush(log)
        read = reader_of(log)
        begin, pages = 1, 0
        while begin <= 800:
            begin = read(begin, 0, (), 8000).glsn_end
            pages += 1
        assert pages <= 15


def test_batches_of_one_stream_are_not_split_in_vain() -> None:
    with open_sim(SimDisk()) as log:
        for _ in range(20):
            log.append_batch([bytes(100)] * 10)
        read = reader_of(log)
        begin, sizes = 1, []
        while begin <= 200:
            page = read(begin, 0, (), 5000)
            assert all((piece.begin, piece.end) == (0, 10) for _, piece in page.pieces)
            sizes.append(len(page.pieces))
            begin = page.glsn_end
        assert sizes == [4] * 5


def test_a_page_has_a_bounded_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_filling, "_RUNS_MAX", 20)
    monkeypatch.setattr(page_filling, "_PIECES_MAX", 7)
    with open_sim(SimDisk(), streams=2) as log:
        interleaved(log, 100)
        read = reader_of(log)
        assert len(read(1, 0, (), 0).pieces) == 7
        flush(log)
        page = read(1, 0, (), 0)
        runs = [
            run
            for _, piece in page.pieces
            for run in piece.runs.slices(piece.llsns()[0], piece.llsns()[-1] + 1)
        ]
        assert len(runs) == 20
        assert glsns_in(page) == list(range(1, 21))
        assert walk(log, 1, 101, (), 0) == list(range(1, 101))


def test_large_and_small_entries_in_one_batch_are_told_apart() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        for stream in (1, 2):
            values = [bytes(10)] * 50 + [bytes(20_000)] + [bytes(10)] * 50
            log.append_batch(values, stream=stream)
        page = reader_of(log)(1, 60, (), 0)
        ((_, piece),) = page.pieces
        assert is_sent_whole(piece)
        page = reader_of(log)(1, 40, (), 0)
        ((_, piece),) = page.pieces
        assert not is_sent_whole(piece)
        assert share_bytes(piece.batch, 0, 39) < 2000


def test_pages_of_the_whole_topic_come_one_by_one() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        interleaved(log, 60)
        pages = list(read_pages(log.engine, log.engine.find_topic("default"), 5, 50, (), 500))
        found = [
            record.glsn
            for page in pages
            for record in sorted(
                (record for stream, piece in page for record in records_of(stream, piece)),
                key=lambda record: record.glsn,
            )
        ]
        assert found == list(range(5, 50))
        assert len(pages) > 3


def test_what_is_not_there_is_refused() -> None:
    log = open_sim(SimDisk())
    with log:
        interleaved(log, 10)
        log.trim(4)
        read = reader_of(log)
        with pytest.raises(Trimmed) as trimmed:
            read(3, 0, (), 0)
        assert trimmed.value.first_available == 4
        for begin in (0, 12):
            with pytest.raises(OutOfRange):
                read(begin, 0, (), 0)
        with pytest.raises(UnknownStream):
            read(5, 0, (9,), 0)
        assert read(11, 0, (), 0).pieces == []
        assert read(5, 100, (), 0).glsn_end == 11
        with pytest.raises(OutOfRange):
            list(read_pages(log.engine, log.engine.find_topic("default"), 5, 13))
    with pytest.raises(LogClosed):
        read(5, 0, (), 0)


def test_a_trim_during_a_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_sim(SimDisk()) as log:
        interleaved(log, 10)
        taken = page_filling.PageFilling.cut

        def trim_first(filling: page_filling.PageFilling, end: int) -> object:
            log.trim(8)
            return taken(filling, end)

        monkeypatch.setattr(page_filling.PageFilling, "cut", trim_first)
        with pytest.raises(Trimmed):
            reader_of(log)(3, 0, (), 0)


def test_a_key_is_found_as_a_piece() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        log.put_batch([(b"k", b"old"), (b"l", b"other")])
        log.put(b"k", b"new")
        topic = log.engine.find_topic("default")
        for _ in range(2):
            found = find_piece(log.engine, topic, b"k", 0)
            assert found is not None
            (record,) = records_of(*found)
            assert (record.value, record.glsn) == (b"new", 3)
            flush(log)
        log.delete(b"k")
        assert find_piece(log.engine, topic, b"k", 0) is None
        with pytest.raises(BadEntry):
            find_piece(log.engine, topic, b"", 0)


# -- places ---------------------------------------------------------------------------------------


def append_cut(log: Log, count: int, size: int = 1) -> None:
    """One cut over both streams."""
    parts = [
        Part(stream, encode_values([bytes(size)] * (count // 2), timestamp_us=1))
        for stream in log.streams
    ]
    log.engine.submit(AppendRequest(Append(log.name, parts)))


def test_a_bounded_end_lies_at_a_cut() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        for _ in range(5):
            append_cut(log, 10)
        assert log.position() == Position(51, 1, 50)
        assert log.find_end(1).glsn == 51
        assert log.find_end(1, records_max=50).glsn == 51
        assert log.find_end(1, records_max=29).glsn == 21
        assert log.find_end(11, records_max=10).glsn == 21
        assert log.find_end(13, records_max=10).glsn == 21
        # A cut that is larger than the bound is not split.
        assert log.find_end(11, records_max=3).glsn == 21
        assert log.find_end(13, records_max=3).glsn == 21
        assert log.find_end(51).glsn == 51
        with pytest.raises(OutOfRange):
            log.find_end(53)
        with pytest.raises(BadOption):
            log.find_end(1, records_max=-1)


def test_far_back_ends_are_exact() -> None:
    disk = SimDisk()
    with open_sim(disk, streams=2) as log:
        for _ in range(5):
            append_cut(log, 10)
    with open_sim(disk, streams=2) as log:
        append_cut(log, 10)
        assert log.find_end(1, records_max=7).glsn == 8
        assert log.find_end(48, records_max=7).glsn == 51
        assert log.find_end(51, records_max=7).glsn == 61


def test_ends_are_bounded_in_bytes() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        for _ in range(20):
            append_cut(log, 10, 1000)
        for _ in range(2):
            assert log.find_end(1, bytes_max=25_000).glsn == 21
            assert log.find_end(1, bytes_max=1).glsn > 1
            assert log.find_end(1, bytes_max=1 << 40).glsn == 201
            begin, steps = 1, 0
            while begin < 201:
                begin = log.find_end(begin, bytes_max=25_000).glsn
                steps += 1
            assert 7 <= steps <= 12
            flush(log)


@pytest.mark.parametrize(("records_max", "bytes_max"), [(1, 0), (0, 1)])
def test_a_bounded_reader_gets_past_control_entries_that_it_is_not_shown(
    records_max: int, bytes_max: int
) -> None:
    """A cluster's leaders write them: a range may have GLSNs, and nothing to read."""
    control = encode_entries([Entry(Kind.CONTROL, b"")])
    with open_sim(SimDisk()) as log:
        log.append(b"before")
        for _ in range(3):
            log.engine.submit(AppendRequest(Append("default", [Part(log.streams[0], control)])))
        log.append(b"behind")
        for _ in range(2):
            begins = [1]
            while begins[-1] < 6:
                found = log.find_end(begins[-1], records_max=records_max, bytes_max=bytes_max)
                begins.append(found.glsn)
            assert begins == [1, 2, 3, 4, 5, 6]
            assert [record.glsn for record in log.read()] == [1, 5]
            assert list(log.read(2, 5)) == []
            flush(log)


def test_an_end_can_be_waited_for() -> None:
    with open_sim(SimDisk()) as log:
        with in_thread(lambda: log.find_end(1, wait=WAIT_SECONDS)) as found:
            log.append(b"a")
            assert found.result(WAIT_SECONDS).glsn == 2
        assert log.find_end(2, wait=0.001).glsn == 2


def test_cut_ends_are_remembered_up_to_a_bound() -> None:
    ends = CutEnds(1)
    for end in range(11, 10 * 3 * CUT_ENDS_MAX, 10):
        ends.add(end)
        assert len(ends._ends) <= 2 * CUT_ENDS_MAX
    last = ends._ends[-1]
    assert ends.round_down(last - 100, last - 55) == last - 60
    assert ends.round_down(5, 1234) == 1234
    assert ends.round_down(last - 100, last - 98) == last - 90


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=4), max_size=12),
    st.integers(0, 101),
)
def test_a_time_is_found_as_a_look_at_all_entries_tells(
    batches: list[list[int]], timestamp: int
) -> None:
    chance = random.Random(str(batches))
    with open_sim(SimDisk(), streams=2) as log:
        for times in batches:
            entries = [Entry(Kind.PUT, b"", b"%d" % time, timestamp_us=1 + time) for time in times]
            log.write(entries)
            if chance.random() < 0.3:
                flush(log)
        if log.high_watermark > 3:
            log.trim(3)
        older = [record.glsn for record in log.read() if record.timestamp_us < timestamp]
        expected = max(older) + 1 if older else log.first_available
        assert log.find_time(timestamp).glsn == expected
