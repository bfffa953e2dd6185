"""A metadata node alone: repetitions, a full disk, a failed one, another one's directory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from threading import current_thread

import pytest

from tests.net.pairs import run, until
from tests.runtime.metadata_node.group import CLUSTER, QUICK, SECONDS, listening, new_post
from tidelog.core.metadata.commands import RegisterNode, UnregisterNode
from tidelog.core.raft.entries import Entry, EntryKind, HardState, Index, RaftTerm
from tidelog.core.raft.output import Write
from tidelog.errors import LogError, NotALog, StorageFailed
from tidelog.formats.cluster_messages import AskChange, ChangeAnswer, ClusterMessage
from tidelog.limits import MIB, RAFT_LOG_ROOM_BYTES_DEFAULT
from tidelog.net.metrics import render
from tidelog.runtime.metadata_client import MetadataClient
from tidelog.runtime.metadata_node import MetadataNode
from tidelog.runtime.metadata_node import disk as disk_module
from tidelog.runtime.metadata_node.disk import MetadataDisk
from tidelog.runtime.post import Post
from tidelog.runtime.ticks import next_tick
from tidelog.storage.raft_store import UNPREPARED_SHARE
from tidelog.testing.disk import SimDisk
from tidelog.testing.disk_effects import Op
from tidelog.types import NO_NODE, NodeId

ONE = NodeId(1)


class Alone:
    """The only metadata node of a cluster, and a client in its process."""

    def __init__(self, disk: SimDisk, post: Post) -> None:
        self.post = post
        self.failures: list[BaseException] = []
        self.node = MetadataNode(
            node=ONE,
            cluster_id=CLUSTER,
            directory="/metadata",
            first_members=(ONE,),
            post=post,
            timing=QUICK,
            vfs=disk.vfs(),
            on_failure=self.failures.append,
        )
        self.client = MetadataClient(post, [ONE])


@asynccontextmanager
async def alone(disk: SimDisk) -> AsyncIterator[Alone]:
    made = Alone(disk, new_post(1))
    await made.post.start()
    await made.node.start()
    await made.client.start()
    try:
        yield made
    finally:
        await made.client.stop()
        await made.post.stop()
        await made.node.stop()


def has(some: Sized, count: int) -> bool:
    return len(some) == count


def disk_of(disk: SimDisk, written: list[int]) -> MetadataDisk:
    return MetadataDisk(
        disk.vfs(),
        "/metadata",
        node=ONE,
        cluster_id=CLUSTER,
        on_written=written.append,
        on_failure=lambda error: pytest.fail(str(error)),
    )


def test_a_repeated_question_is_answered_alike_and_the_change_is_made_once() -> None:
    async def main() -> None:
        async with alone(SimDisk()) as one:
            answers: list[ClusterMessage] = []
            asker = new_post(5)
            asker.on((ChangeAnswer,), lambda _, message: answers.append(message))
            async with listening(asker):
                asker.learn(ONE, one.post.address_of(ONE))
                await one.client.ask(RegisterNode(NodeId(11)), seconds=SECONDS)
                (row,) = one.node.view().nodes
                removal = UnregisterNode(row.node, row.revision)
                for attempt in (1, 2, 3):
                    asker.send(ONE, AskChange(77, attempt, removal))
                    await until(partial(has, answers, attempt), "an answer")
                assert answers == [ChangeAnswer(77, 1)] * 3
                asker.send(ONE, AskChange(78, 1, removal))
                await until(lambda: len(answers) == 4, "another question")
                assert isinstance(answers[3], ChangeAnswer)
                assert answers[3].error == "RevisionConflict"

    run(main())


def test_a_full_disk_holds_writes_back_and_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "FULL_PAUSE", 0.01)
    entries = [
        Entry(Index(number), RaftTerm(1), EntryKind.COMMAND, bytes(MIB)) for number in range(1, 9)
    ]

    async def main() -> None:
        disk, written = SimDisk(), list[int]()
        store = disk_of(disk, written)
        await store.open((ONE,))
        # The first file has no room for all of them, and there is none for the next one.
        disk.fail(Op.WRITE, ".log.tmp", errno.ENOSPC, times=5)
        store.add(Write(1, HardState(RaftTerm(1), ONE)))
        for entry in entries:
            store.add(Write(entry.index + 1, entries=(entry,)))
        await until(lambda: store.is_full, "no room")
        await until(lambda: written[-1:] == [9], "room again")
        assert not store.is_full
        assert written == sorted(written)
        await store.close()
        again = disk_of(disk, [])
        assert list((await again.open(None)).entries) == entries
        await again.close()

    run(main())


def test_a_failed_sync_ends_the_node_and_it_says_nothing_more() -> None:
    async def main() -> None:
        disk = SimDisk()
        async with alone(disk) as one:
            await one.client.ask(RegisterNode(NodeId(11)), seconds=SECONDS)
            disk.fail(Op.SYNC, ".log", errno.EIO)
            with pytest.raises(LogError):
                await one.client.ask(RegisterNode(NodeId(12)), seconds=0.5)
            assert [type(error) for error in one.failures] == [StorageFailed]
            assert isinstance(one.node.failure, StorageFailed)
            assert one.node.leader == NO_NODE

    run(main())


def test_a_directory_opens_only_for_its_node_and_cluster() -> None:
    async def main() -> None:
        disk = SimDisk()
        async with alone(disk):
            pass
        for node, cluster in ((NodeId(2), CLUSTER), (ONE, b"another cluster!")):
            other = MetadataDisk(
                disk.vfs(),
                "/metadata",
                node=node,
                cluster_id=cluster,
                on_written=lambda _: None,
                on_failure=lambda _: None,
            )
            with pytest.raises(NotALog):
                await other.open((ONE,))
            await other.close()

    run(main())


def test_a_node_that_never_ran_does_not_start_without_being_told_its_members() -> None:
    async def main() -> None:
        post = new_post(1)
        node = MetadataNode(
            node=ONE,
            cluster_id=CLUSTER,
            directory="/metadata",
            first_members=None,
            post=post,
            vfs=SimDisk().vfs(),
        )
        with pytest.raises(NotALog):
            await node.start()
        await node.stop()

    run(main())


def test_writes_of_one_turn_share_a_sync() -> None:
    async def main() -> None:
        written: list[int] = []
        store = disk_of(SimDisk(), written)
        await store.open((ONE,))
        for sequence in range(1, 101):
            store.add(Write(sequence, HardState(RaftTerm(sequence), ONE)))
        await until(lambda: written == [100], "all are durable")
        assert store.groups == 1
        await store.close()

    run(main())


def test_what_comes_while_the_thread_syncs_shares_the_next_sync() -> None:
    """Too much for the event loop: it is with the thread when the others come."""

    async def main() -> None:
        written: list[int] = []
        store = disk_of(SimDisk(), written)
        await store.open((ONE,))
        large = Entry(Index(1), RaftTerm(1), EntryKind.COMMAND, bytes(MIB))
        store.add(Write(1, HardState(RaftTerm(1), ONE), entries=(large,)))
        await asyncio.sleep(0)
        for sequence in range(2, 101):
            store.add(Write(sequence, HardState(RaftTerm(sequence), ONE)))
        await until(lambda: written[-1:] == [100], "all are durable")
        assert written == [1, 100]
        await store.close()

    run(main())


def test_after_a_slow_sync_the_event_loop_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "QUICK_SECONDS", 0.0)

    async def main() -> None:
        threads: list[str] = []
        written: list[int] = []
        store = disk_of(SimDisk(), written)
        await store.open((ONE,))
        carry_out = store._carry_out

        def watched(group: tuple[Write, ...]) -> tuple[int, int]:
            threads.append(current_thread().name)
            return carry_out(group)

        monkeypatch.setattr(store, "_carry_out", watched)
        for sequence in (1, 2):
            store.add(Write(sequence, HardState(RaftTerm(sequence), ONE)))
            await until(partial(has, written, sequence), "durable")
        assert threads[0] == current_thread().name
        assert threads[1].startswith("tidelog-raft")
        await store.close()

    run(main())


def log_files(disk: SimDisk) -> list[str]:
    return sorted(path.rsplit("/", 1)[1] for path in disk.files() if ".log" in path)


def add_votes(store: MetadataDisk, begin: int, end: int) -> None:
    for sequence in range(begin, end):
        store.add(Write(sequence, HardState(RaftTerm(sequence), ONE)))


def fill_a_part(store: MetadataDisk) -> None:
    """The first write, as large as the part of a log file after which the next is prepared."""
    data = bytes(RAFT_LOG_ROOM_BYTES_DEFAULT // UNPREPARED_SHARE)
    entry = Entry(Index(1), RaftTerm(1), EntryKind.COMMAND, data)
    store.add(Write(1, HardState(RaftTerm(1), ONE), entries=(entry,)))


def test_the_next_log_file_is_prepared_while_this_one_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk_module, "PIECE_PAUSE", 0.0)

    async def main() -> None:
        disk, written = SimDisk(), list[int]()
        store = disk_of(disk, written)
        await store.open((ONE,))
        fill_a_part(store)
        name = f"{2:016d}.log.tmp"
        await until(lambda: name in log_files(disk), "the next file")
        await until(
            lambda: len(disk.files()[f"/metadata/{name}"]) > RAFT_LOG_ROOM_BYTES_DEFAULT,
            "all of it",
        )
        add_votes(store, 2, 20)
        await until(lambda: written[-1:] == [19], "all are durable")
        await store.close()
        assert log_files(disk) == [f"{1:016d}.log"]

    run(main())


def test_a_disk_that_fails_while_a_file_is_prepared_ends_the_node() -> None:
    async def main() -> None:
        disk, failures = SimDisk(), list[BaseException]()
        store = MetadataDisk(
            disk.vfs(),
            "/metadata",
            node=ONE,
            cluster_id=CLUSTER,
            on_written=lambda _: None,
            on_failure=failures.append,
        )
        await store.open((ONE,))
        disk.fail(Op.SYNC, ".log.tmp", errno.EIO)
        fill_a_part(store)
        await until(partial(has, failures, 1), "the failure")
        assert isinstance(failures[0], StorageFailed)
        await store.close()
        assert len(failures) == 1

    run(main())


def test_metrics_tell_of_raft_and_of_the_order() -> None:
    async def main() -> None:
        async with alone(SimDisk()) as one:
            await one.client.ask(RegisterNode(NodeId(11)), seconds=SECONDS)
            text = render([*one.node.metrics(), *one.post.metrics()]).decode()
            assert "tidelog_raft_leader 1.0" in text
            assert "tidelog_metadata_nodes 1.0" in text
            assert "tidelog_post_sent_total" in text

    run(main())


@pytest.mark.parametrize("node", [1, 2, 3, 77])
@pytest.mark.parametrize("seconds", [0.05, 0.1, 0.01])
def test_ticks_are_regular_and_those_of_all_parts_fall_together(node: int, seconds: float) -> None:
    moment, fine = 1234.5, set[float]()
    for _ in range(100):
        moment = next_tick(moment, 0.05, NodeId(node))
        fine.add(round(moment, 6))
    assert next_tick(moment, 0.05, NodeId(node)) == pytest.approx(moment + 0.05)
    first = next_tick(1234.5, seconds, NodeId(node))
    assert 0 < first - 1234.5 <= seconds + 1e-5
    if seconds >= 0.05:
        assert round(first, 6) in fine


def test_the_processes_of_a_machine_tick_at_different_moments() -> None:
    moments = sorted(next_tick(1000.0, 0.1, NodeId(node)) % 0.1 for node in (1, 2, 3))
    assert min(b - a for a, b in pairwise(moments)) > 0.005


def test_who_waits_at_a_node_that_stops_is_told() -> None:
    async def main() -> None:
        async with alone(SimDisk()) as one:
            await one.client.ask(RegisterNode(NodeId(11)), seconds=SECONDS)
            waiting = asyncio.ensure_future(one.node.ask(RegisterNode(NodeId(12))))
            await asyncio.sleep(0)
            await one.node.stop()
            with pytest.raises(LogError, match="stopped"):
                await waiting

    run(main())
