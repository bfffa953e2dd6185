"""Batches are staged, then published exactly once, whatever stops the log in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from unittest.mock import patch

import pytest

from tests.crash.repeatable import CHANCE, NOW_NS, repeatable
from tests.embedded.logs import (
    BACKGROUND,
    INLINE,
    WAIT_SECONDS,
    flush,
    gated,
    open_sim,
    together,
    values,
    wait_for_queued,
    wait_until,
)
from tidelog import Entry, Kind, Log
from tidelog.embedded import stages as kept_stages
from tidelog.embedded import staging
from tidelog.embedded.commit_queue import Request
from tidelog.embedded.staging import Staging
from tidelog.errors import (
    BadOption,
    BatchTooLarge,
    Busy,
    CorruptData,
    DeadlineExceeded,
    DiskFull,
    LogClosed,
    LogError,
    PartlyAppended,
    StageExpired,
    StaleWrite,
    UnknownStream,
    UnknownTopic,
)
from tidelog.formats.batch import encode_entries, encode_values
from tidelog.formats.staged import Publication
from tidelog.interface.appends import Append, Appends, Part
from tidelog.interface.positions import Published
from tidelog.limits import MIB
from tidelog.testing.crash import Journal, enumerate_crashes
from tidelog.testing.disk import SimDisk, SimulatedCrash, SimVfs

WRITER = "query"
PATIENCE_SECONDS = 0.2
"""How long to wait for what must not happen."""


@contextmanager
def at_one_time() -> Iterator[None]:
    """The clock stands still."""
    with (
        patch.object(kept_stages, "time_ns", lambda: NOW_NS),
        patch.object(staging, "time_ns", lambda: NOW_NS),
    ):
        yield


@contextmanager
def in_files() -> Iterator[None]:
    """Every stage is large enough for a file of its own."""
    with patch.object(kept_stages, "_FILE_BYTES_MIN", 1):
        yield


@pytest.fixture(autouse=True, params=["inline", "files"])
def stages(request: pytest.FixtureRequest) -> Iterator[None]:
    """What holds of stages holds wherever their batches lie."""
    with in_files() if request.param == "files" else nullcontext():
        yield


def part(*items: bytes, stream: int = 1) -> Part:
    return Part(stream, encode_values(items, timestamp_us=1))


def puts(log: Log, *pairs: tuple[bytes, bytes]) -> Sequence[Part]:
    made: Append = Appends(lambda: log.engine.find_topic("default")).put_batch(pairs, 0, {})
    return made.parts


def chunks(count: int) -> list[bytes]:
    return [b"chunk %d" % number for number in range(count)]


def stage_all(log: Log, items: Sequence[bytes]) -> list[int]:
    return [log.stage([part(item)]) for item in items]


@contextmanager
def in_small_appends() -> Iterator[None]:
    """A publication takes one append for every two or three chunks."""
    with patch.object(staging, "_STAGES_AT_ONCE_BYTES", 60):
        yield


@pytest.fixture
def small_appends() -> Iterator[None]:
    with in_small_appends():
        yield


def test_nothing_is_seen_before_it_is_published() -> None:
    with open_sim(SimDisk(), streams=2) as log:
        first = log.stage([part(b"a"), part(b"b", stream=2)])
        second = log.stage([part(b"c", b"d")])
        assert values(log) == []
        assert log.topics() == ["default"]
        assert log.publish(WRITER, 0, [second, first]) == Published(4, False)
        assert [record.value for record in log.read() if record.stream == 1] == [b"c", b"d", b"a"]
        assert [record.value for record in log.read() if record.stream == 2] == [b"b"]


def test_a_batch_is_published_once_and_older_ones_count_as_done() -> None:
    with open_sim(SimDisk()) as log:
        assert not log.publish(WRITER, 5, stage_all(log, [b"a", b"b"])).duplicate
        assert log.publish(WRITER, 5, stage_all(log, [b"a", b"b"])) == Published(2, True)
        assert log.publish(WRITER, 3, stage_all(log, [b"x"])) == Published(0, True)
        assert not log.publish("other", 3, stage_all(log, [b"c"])).duplicate
        assert not log.publish(WRITER, 6, []).duplicate
        assert values(log) == [b"a", b"b", b"c"]


def test_topics_have_writers_of_their_own() -> None:
    with open_sim(SimDisk()) as log:
        other = log.create_topic("other")
        log.publish(WRITER, 1, stage_all(log, [b"a"]))
        stage = other.stage([part(b"b", stream=other.streams[0])])
        with pytest.raises(BadOption, match="another topic"):
            log.publish(WRITER, 2, [stage])
        assert not other.publish(WRITER, 1, [stage]).duplicate
        assert (values(log), values(other)) == ([b"a"], [b"b"])


def test_what_was_published_survives_a_restart_and_so_does_its_number() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        log.publish(WRITER, 1, stage_all(log, [b"a"]))
        waiting = stage_all(log, [b"b"])
        flush(log)
    with open_sim(disk) as log:
        assert log.publish(WRITER, 1, waiting[:0]).duplicate
        assert log.publish(WRITER, 2, waiting) == Published(1, False)
        assert values(log) == [b"a", b"b"]


def test_stages_are_gone_when_they_were_published_discarded_or_expired() -> None:
    with open_sim(SimDisk()) as log:
        published, discarded, expired = stage_all(log, [b"a", b"b", b"c"])
        log.publish(WRITER, 1, [published])
        log.discard([discarded, published, 12345])
        for stage in (published, discarded, 12345):
            with pytest.raises(StageExpired, match="again"):
                log.publish(WRITER, 2, [stage])
        log.engine.staging.expire(3600)
        log.engine.staging.expire(-1)
        with pytest.raises(StageExpired):
            log.publish(WRITER, 2, [expired])
        assert values(log) == [b"a"]
        assert not log.publish(WRITER, 2, []).duplicate


def test_stages_are_trimmed_behind_those_that_are_needed() -> None:
    with open_sim(SimDisk()) as log:
        stages = stage_all(log, chunks(6))
        topic = log.engine.find_topic(kept_stages.STAGE_TOPIC)
        store = log.engine.node.streams[topic.streams[0]]
        log.publish(WRITER, 1, stages[1:3])
        assert store.trim_glsn_end == stages[0]
        log.discard(stages[:1])
        assert store.trim_glsn_end == stages[3]
        flush(log)
        stages += stage_all(log, [b"more"])
        flush(log)
        assert len(store.view.segments) == 2
        log.publish(WRITER, 2, stages[3:6])
        assert store.trim_glsn_end == stages[6]
        assert len(store.view.segments) == 1


def test_a_missing_stage_publishes_nothing() -> None:
    """Not even what comes several appends before it."""
    with open_sim(SimDisk()) as log, in_small_appends():
        stages = stage_all(log, chunks(6))
        with pytest.raises(StageExpired):
            log.publish(WRITER, 1, [*stages, 99])
        assert values(log) == []
        assert log.publish(WRITER, 1, stages) == Published(6, False)


def test_a_stage_of_another_topic_publishes_nothing() -> None:
    """The same after a restart, when all that is known of a stage is what it holds."""
    disk = SimDisk()
    with open_sim(disk) as log:
        other = log.create_topic("other")
        stages = [*stage_all(log, chunks(6)), other.stage([part(b"b", stream=other.streams[0])])]
        with in_small_appends(), pytest.raises(BadOption, match="another topic"):
            log.publish(WRITER, 1, stages)
        assert values(log) == []
    with open_sim(disk) as log, in_small_appends():
        with pytest.raises(BadOption, match="another topic"):
            log.publish(WRITER, 1, stages)
        assert values(log) == []
        assert log.publish(WRITER, 1, stages[:-1]) == Published(6, False)


def test_bad_stages_and_publications_are_refused() -> None:
    with open_sim(SimDisk()) as log:
        with pytest.raises(BadOption):
            log.stage([])
        with pytest.raises(UnknownStream):
            log.stage([part(b"a", stream=9)])
        with pytest.raises(BatchTooLarge, match="in parts"):
            log.stage([part(bytes(9 * MIB)), part(bytes(9 * MIB))])
        bad: list[tuple[str, int, list[int]]]
        bad = [("", 1, [1]), ("w" * 5000, 1, [1]), ("w", -1, []), ("w", 1, [1, 1])]
        for writer, batch, stages in bad:
            with pytest.raises(BadOption):
                log.publish(writer, batch, stages)
        with pytest.raises(BadOption, match="internal"):
            log.create_topic("~mine")
        with pytest.raises(UnknownTopic):
            log.topic("~other")


def stage_version(log: Log, version: int) -> int:
    """A stage that needs an append of its own if appends are small; its part does not tell more."""
    entry = Entry(Kind.PUT, b"v" * 50, b"k", write_version=version, timestamp_us=1)
    return log.stage([Part(1, encode_entries([entry]))])


def test_stale_versions_are_found_before_anything_is_published() -> None:
    """Known from the stage itself, too, when the log was opened again."""
    disk = SimDisk()
    with open_sim(disk, versions="explicit") as log:
        good, stale = stage_version(log, 10), stage_version(log, 5)
        log.set_gc_boundary(7)
        with in_small_appends(), pytest.raises(StaleWrite):
            log.publish(WRITER, 1, [good, stale])
        assert values(log) == []
    with open_sim(disk, versions="explicit") as log, in_small_appends():
        with pytest.raises(StaleWrite):
            log.publish(WRITER, 1, [good, stale])
        assert values(log) == []
        assert log.publish(WRITER, 1, [good]) == Published(1, False)
        found = log.get(b"k")
        assert found is not None
        assert found.write_version == 10


def test_no_boundary_moves_between_the_appends_of_a_publication() -> None:
    """G3: what was not stale when the publication began must not become so half-way."""
    with (
        open_sim(SimDisk(), versions="explicit") as log,
        ThreadPoolExecutor(1) as pool,
        in_small_appends(),
    ):
        stages = [stage_version(log, version) for version in (10, 5, 6)]
        moves: list[Future[object]] = []
        copy_some = Staging._copy_some

        def copy_then_move(self: Staging, key: bytes, publication: Publication) -> Publication:
            left = copy_some(self, key, publication)
            if not moves:
                moves.append(pool.submit(log.set_gc_boundary, 7))
            wait(moves, PATIENCE_SECONDS)
            return left

        with patch.object(Staging, "_copy_some", copy_then_move):
            assert log.publish(WRITER, 1, stages) == Published(3, False)
        moves[0].result(WAIT_SECONDS)
        with pytest.raises(StaleWrite):
            log.publish(WRITER, 2, [stage_version(log, 6)])


@pytest.mark.parametrize("stages", ["inline"], indirect=True)
def test_what_was_published_leaves_the_disk_without_anybody_waiting() -> None:
    """The worker deletes the segments of stages; whoever publishes goes on at once."""
    with open_sim(SimDisk(), options=BACKGROUND) as log:
        stages = stage_all(log, [bytes(30_000)] * 12)
        topic = log.engine.find_topic(kept_stages.STAGE_TOPIC)
        store = log.engine.node.streams[topic.streams[0]]
        wait_until(lambda: len(store.view.segments) >= 3, "stages are in segments")
        with log.engine.maintenance.live_sets_held():
            log.publish(WRITER, 1, stages)
        wait_until(lambda: len(store.view.segments) <= 1, "the segments are gone")
        assert len(values(log)) == 12


def test_keyed_entries_are_published_into_their_streams() -> None:
    with open_sim(SimDisk(), streams=3) as log:
        pairs = [(b"k%d" % number, b"v%d" % number) for number in range(20)]
        assert log.publish(WRITER, 1, [log.stage(puts(log, *pairs))]) == Published(20, False)
        for key, value in pairs:
            found = log.get(key)
            assert found is not None
            assert found.value == value


@pytest.mark.usefixtures("small_appends")
def test_a_large_publication_takes_several_appends() -> None:
    with open_sim(SimDisk()) as log:
        stages = stage_all(log, chunks(20))
        frames = log.log_stats().wal_frames
        assert log.publish(WRITER, 1, stages) == Published(20, False)
        assert log.log_stats().wal_frames > frames + 5
        assert values(log) == chunks(20)
        assert log.publish(WRITER, 1, stages) == Published(20, True)


def test_publications_of_one_writer_at_once_are_done_once() -> None:
    with open_sim(SimDisk()) as log:

        def work(_: int) -> Published:
            return log.publish(WRITER, 1, stage_all(log, [b"a", b"b"]))

        results = together(6, work)
        assert sum(not result.duplicate for result in results) == 1
        assert values(log) == [b"a", b"b"]


def test_nobody_looks_before_a_publication_that_took_too_long_shows() -> None:
    """A retry that looks before the first try has landed would publish twice."""
    vfs, gate = gated(SimDisk())
    options = replace(INLINE, append_timeout_seconds=0.5)

    with open_sim(SimDisk(), vfs=vfs, options=options) as log, ThreadPoolExecutor(3) as pool:
        log.publish(WRITER, 0, [])
        stages = stage_all(log, [b"staged"])
        with gate.shut():
            # The second append leads the group that the publication is in.
            appends = [pool.submit(log.append, b"first", timeout=WAIT_SECONDS)]
            gate.wait_until_held()
            appends.append(pool.submit(log.append, b"second", timeout=WAIT_SECONDS))
            wait_for_queued(log, 1)
            published = pool.submit(log.publish, WRITER, 1, stages)
            wait_for_queued(log, 2)
            gate.let_pass(1)
            with pytest.raises(DeadlineExceeded):
                published.result(WAIT_SECONDS)
            with pytest.raises(Busy, match="still being written"):
                log.publish(WRITER, 1, stages)
        assert log.publish(WRITER, 1, stages) == Published(1, True)
        assert values(log) == [b"first", b"second", b"staged"]


@pytest.mark.parametrize("error", [LogClosed, CorruptData, DiskFull])
def test_what_is_published_is_told_as_published_whatever_follows(error: type[LogError]) -> None:
    """Such an error is definite, and whoever is told so may publish the same elsewhere."""
    with open_sim(SimDisk()) as log:
        stages = stage_all(log, chunks(2))
        with patch.object(kept_stages.Stages, "forget", side_effect=error("too late")):
            assert log.publish(WRITER, 1, stages) == Published(2, False)
            assert log.publish(WRITER, 1, stages) == Published(2, True)
        assert values(log) == chunks(2)


@pytest.mark.usefixtures("small_appends")
def test_no_publication_begins_while_a_boundary_may_yet_move() -> None:
    """G3: one that looks before the boundary shows would be half there, for good."""
    vfs, gate = gated(SimDisk())
    options = replace(INLINE, append_timeout_seconds=0.5)
    with (
        open_sim(SimDisk(), vfs=vfs, options=options, versions="explicit") as log,
        ThreadPoolExecutor(4) as pool,
        in_small_appends(),
    ):
        log.publish(WRITER, 0, [])
        stages = [stage_version(log, version) for version in (10, 5, 6)]
        with gate.shut():
            # The second append leads the group that the boundary is in.
            pool.submit(log.append, b"first", timeout=WAIT_SECONDS)
            gate.wait_until_held()
            pool.submit(log.append, b"second", timeout=WAIT_SECONDS)
            wait_for_queued(log, 1)
            moved = pool.submit(log.set_gc_boundary, 7)
            wait_for_queued(log, 2)
            gate.let_pass(1)
            wait([moved], 2 * options.append_timeout_seconds)
            published = pool.submit(log.publish, WRITER, 1, stages)
            wait([published], PATIENCE_SECONDS)
        with pytest.raises(DeadlineExceeded):
            moved.result(WAIT_SECONDS)
        with pytest.raises((StaleWrite, Busy)):
            published.result(WAIT_SECONDS)
        assert values(log) == [b"first", b"second"]
        assert log.publish(WRITER, 1, [stage_version(log, 8)]) == Published(1, False)


def test_publications_and_boundaries_do_not_block_each_other_for_ever() -> None:
    with open_sim(SimDisk(), versions="explicit") as log:
        log.publish(WRITER, 1, [])
        with ThreadPoolExecutor(1) as pool:
            with log.engine.staging.settled():
                moved = pool.submit(log.set_gc_boundary, 3)
                assert not moved.done()
            moved.result(WAIT_SECONDS)


# -- crashes --------------------------------------------------------------------------------------

Work = Callable[[Log, Journal], None]


def publish_many(log: Log, journal: Journal) -> None:
    stages = stage_all(log, chunks(7))
    journal.attempted.append(7)
    log.publish(WRITER, 1, stages)
    journal.acknowledged.append(7)


def publish_one(log: Log, journal: Journal) -> None:
    stages = stage_all(log, chunks(1))
    journal.attempted.append(1)
    log.publish(WRITER, 1, stages)
    journal.acknowledged.append(1)


def check_after_crash(vfs: SimVfs, journal: Journal) -> None:
    """All of it or nothing is there, at once and for good; the retry makes it exactly once."""
    with open_sim(SimDisk(), vfs=vfs) as log:
        expected = chunks(journal.attempted[0]) if journal.attempted else []
        found = values(log)
        assert found in ([], expected)
        if journal.acknowledged:
            assert found == expected
        count = journal.attempted[0] if journal.attempted else 2
        again = log.publish(WRITER, 1, stage_all(log, chunks(count)))
        assert again.duplicate == bool(found)
        assert again.entries == count
        assert values(log) == chunks(count)
        assert not log.publish(WRITER, 2, stage_all(log, [b"next"])).duplicate
        assert values(log) == [*chunks(count), b"next"]


@pytest.fixture
def _without_chance() -> Iterator[None]:
    with repeatable(), at_one_time():
        yield


@pytest.mark.usefixtures("small_appends", "_without_chance")
@pytest.mark.parametrize("work", [publish_one, publish_many])
def test_every_crash_point_of_a_publication_gives_exactly_once(work: Work) -> None:
    def prepare(vfs: SimVfs) -> None:
        CHANCE.begin("prepare")
        open_sim(SimDisk(), vfs=vfs).close()

    def run(vfs: SimVfs, journal: Journal) -> None:
        CHANCE.begin("run")
        work(open_sim(SimDisk(), vfs=vfs), journal)

    report = enumerate_crashes(run, check_after_crash, prepare=prepare, outcomes_max=8)
    assert report.points > 20


@pytest.mark.usefixtures("small_appends")
def test_twenty_chunks_are_finished_after_two_crashes() -> None:
    """Far more than one append holds; a crash in the publication, then one in its recovery."""
    before = SimDisk()
    with open_sim(before) as log:
        stages = stage_all(log, chunks(20))
    disk = before.copy()
    with open_sim(disk) as log:
        log.publish(WRITER, 1, stages)
        calls = disk.operations

    unfinished = 0
    for point in range(1, calls + 1):
        broken = crashed(before.copy(), point, lambda log: log.publish(WRITER, 1, stages))
        for again in (3, 6, 9):
            twice = crashed(broken.copy(), again, lambda log: None)
            with open_sim(twice) as log:
                found = values(log)
                assert found in ([], chunks(20)), f"after {point} of {calls} calls, then {again}"
                unfinished += not found
                assert log.publish(WRITER, 1, [] if found else stages).entries == 20
                assert values(log) == chunks(20)
    assert 0 < unfinished < 3 * calls


def crashed(disk: SimDisk, calls: int, work: Callable[[Log], object]) -> SimDisk:
    """What is left when the power fails after so many calls of opening the log and working."""
    disk.crash_after(calls)
    try:
        log = open_sim(disk)
        work(log)
    except (SimulatedCrash, LogError):
        assert disk.crashed
    return disk.after_crash()


@contextmanager
def full_after(log: Log, appends: int) -> Iterator[None]:
    """The disk takes so many appends and trims more."""
    submit, calls = log.engine.submit, count(1)

    def fill_up(request: Request, timeout: float | None = None) -> None:
        if next(calls) > appends:
            raise DiskFull("no room")
        submit(request, timeout)

    with patch.object(log.engine, "submit", fill_up):
        yield


def half_published(log: Log) -> list[int]:
    """The stages of a publication that broke off after its first append."""
    stages = stage_all(log, chunks(6))
    log.publish("first", 0, [])  # Makes the internal topic.
    with full_after(log, 1), pytest.raises(PartlyAppended, match="the rest will be") as caught:
        log.publish(WRITER, 1, stages)
    assert not caught.value.definite
    assert 0 < len(values(log)) < 6
    return stages


@pytest.mark.usefixtures("small_appends")
def test_a_full_disk_leaves_a_publication_to_be_finished_later() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        stages = half_published(log)
        log.engine.staging.expire(-1)  # Needed stages are kept, however old they are.
        assert not log.publish("other", 1, []).duplicate
        assert values(log) == chunks(6)
        assert log.publish(WRITER, 1, stages) == Published(6, True)


@pytest.mark.usefixtures("small_appends")
def test_the_stages_of_a_half_done_publication_cannot_be_discarded() -> None:
    """Whoever was told that it failed does that, and it would never come to its end."""
    disk = SimDisk()
    with open_sim(disk) as log:
        stages = half_published(log)
        [mine] = stage_all(log, [b"mine"])
        log.discard([*stages, mine])
        with pytest.raises(StageExpired):
            log.publish("other", 1, [mine])
    with open_sim(disk) as log:
        assert values(log) == chunks(6)
        assert log.publish(WRITER, 1, stages) == Published(6, True)


@pytest.mark.usefixtures("small_appends")
def test_a_repeated_publication_that_is_half_done_is_not_told_to_be_undone() -> None:
    """Whoever publishes something else knows that nothing of that happened."""
    disk = SimDisk()
    with open_sim(disk) as log:
        stages = half_published(log)
        with full_after(log, 0), pytest.raises(PartlyAppended):
            log.publish(WRITER, 1, stages)
        with full_after(log, 0), pytest.raises(DiskFull) as caught:
            log.publish("other", 1, [])
        assert caught.value.definite
        assert log.publish(WRITER, 1, stages) == Published(6, True)


@pytest.mark.usefixtures("small_appends")
def test_a_log_that_lost_stages_of_a_half_done_publication_can_be_read() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        stages = half_published(log)
        with patch.object(Staging, "_needed", lambda self: set()):
            log.discard(stages)
        found = values(log)
    with open_sim(disk) as log:
        assert values(log) == found
        with pytest.raises(StageExpired):
            log.publish("other", 1, [])
        log.append(b"more")


def test_a_publication_is_done_though_its_stages_cannot_be_trimmed() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        log.publish("first", 0, [])
        stages = stage_all(log, [b"a", b"b"])
        with full_after(log, 1):
            assert log.publish(WRITER, 1, stages) == Published(2, False)
        with full_after(log, 0):
            assert log.publish(WRITER, 1, stages) == Published(2, True)
        assert values(log) == [b"a", b"b"]
        log.publish(WRITER, 2, stage_all(log, [b"c"]))
        stored = log.engine.node.streams[log.engine.internal_topic("~stage").streams[0]]
        assert stored.trim_llsn_end == stored.end_llsn
