"""A master and its replicas over real sockets: what both hold, and in which order it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from tests.client.proxy import wait_until
from tests.datastore.pairs import PLACE, Pair, Side
from tests.datastore.stores import LONG, SMALL, Contents, commit, contents, open_store, put
from tidelog.core.session.messages import ErrorCode
from tidelog.core.session.options import FlushAt
from tidelog.core.session.output import Durability
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.options import DatastoreOptions, Sending
from tidelog.errors import (
    BadOption,
    DeadlineExceeded,
    LogError,
    ReplicaRefused,
    ReplicationFailed,
    StaleWrite,
    Unreachable,
    WrongState,
)

ALL_ORDERS = [
    replace(
        SMALL,
        parallel_append=append,
        parallel_flush=flush,
        parallel_commit=commit,
        flush_at=flush_at,
        sending=sending,
    )
    for append, flush, commit, (flush_at, sending) in product(
        (True, False),
        (True, False),
        (True, False),
        (
            (FlushAt.SESSION_END, Sending.BUFFERED),
            (FlushAt.GROUP_COMMIT, Sending.BUFFERED),
            (FlushAt.SESSION_END, Sending.IMMEDIATE),
        ),
    )
]


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[LogError]]:
    """Run ``call`` in a thread; the errors that it raises."""
    raised: list[LogError] = []

    def run() -> None:
        try:
            call()
        except LogError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


# -- both sides hold the same ---------------------------------------------------------------------


def test_every_entry_and_blob_reaches_the_replica() -> None:
    sizes = [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 20) + 1, 3_000_000]
    with Pair(channels=2) as pair:
        one, two = pair.channels
        pair.store.switch_epoch(1)
        with pair.store.blob_pool() as pool, one.session():
            blobs = [pool.register_data(bytes([size % 251]) * size) for size in sizes]
            one.add_entry(1, b"with blobs", b"v", 1, blobs)
            one.add_entry(1, b"deleted", b"v", 2)
            one.add_entry(2, b"of a deleted storage", b"v", 3)
        with two.session():
            two.remove_entry(1, b"deleted", 4)
            two.remove_storage(2, 5)
            two.add_entry(2, b"newer", b"v", 6)
        commit(pair.store, 1)
        expected: Contents = {
            (1, b"with blobs"): (b"v", 1, tuple(blobs)),
            (2, b"newer"): (b"v", 6, ()),
        }
        assert contents(pair.store) == expected
    for side in (pair.master, *pair.sides):
        assert side.stored() == expected
        store, _ = open_store(PLACE, vfs=side.disk)
        with store:
            for blob, size in zip(blobs, sizes, strict=True):
                with store.open_blob(blob) as reader:
                    assert reader.size == size
                    assert reader.read_at(0, size) == bytes([size % 251]) * size


def test_log_sessions_that_end_at_once_may_share_a_blob() -> None:
    with Pair(channels=2) as pair:
        pair.store.switch_epoch(1)
        both_began = threading.Barrier(2)

        def write(channel: LogChannel) -> None:
            with channel.session():
                channel.add_entry(1, b"%d" % channel.number, b"", 1, [blob])
                both_began.wait(LONG)

        with pair.store.blob_pool() as pool:
            blob = pool.register_data(bytes(8 << 20))
            running = [in_thread(partial(write, channel)) for channel in pair.channels]
            for thread, raised in running:
                thread.join()
                assert not raised
        commit(pair.store, 1)
        expected: Contents = {(1, b"1"): (b"", 1, (blob,)), (1, b"2"): (b"", 1, (blob,))}
        assert contents(pair.store) == expected
    assert pair.sides[0].stored() == expected


def test_six_channels_write_at_once() -> None:
    with Pair(channels=6) as pair:
        pair.store.switch_epoch(1)

        def write(number: int) -> None:
            for turn in range(20):
                put(pair.channels[number], b"%d" % number, b"%d" % turn, turn, storage=number)

        running = [in_thread(partial(write, number)) for number in range(6)]
        epoch = 1
        while any(thread.is_alive() for thread, _ in running):
            epoch += 1
            pair.store.switch_epoch(epoch)
            pair.store.wait_for(epoch - 1, timeout=LONG)
        for thread, raised in running:
            thread.join()
            assert not raised
        commit(pair.store, epoch)
    expected = {(number, b"%d" % number): (b"19", 19, ()) for number in range(6)}
    assert pair.master.stored() == pair.sides[0].stored() == expected


@pytest.mark.parametrize("options", ALL_ORDERS)
def test_serial_and_parallel_orders_store_the_same(options: DatastoreOptions) -> None:
    with Pair(channels=2, options=options) as pair:
        one, two = pair.channels
        for epoch in range(1, 4):
            pair.store.switch_epoch(epoch)
            with one.session():
                one.add_entry(1, b"a", b"%d" % epoch, epoch * 10)
                one.add_entry(1, b"b%d" % epoch, b"", epoch * 10)
            two.begin_session()
            two.add_entry(1, b"a", b"aborted", 1000)
            two.abort_session()
            put(two, b"a", b"older", epoch * 10 - 1)
        commit(pair.store, 3)
        assert pair.notices.next()[1] is Durability.STORED
    expected = {(1, b"b%d" % epoch): (b"", epoch * 10, ()) for epoch in range(1, 4)}
    expected[1, b"a"] = (b"3", 30, ())
    assert pair.master.stored() == pair.sides[0].stored() == expected


def test_an_epoch_that_is_not_over_is_on_neither_side_after_a_restart() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"kept", 1)
        commit(pair.store, 1)
        put(pair.channel, b"a", b"flushed there, not committed", 2)
    expected = {(1, b"a"): (b"kept", 1, ())}
    assert pair.master.stored() == pair.sides[0].stored() == expected


def test_sessions_go_on_after_both_were_restarted() -> None:
    master, replica = Side(), Side()
    for life in range(1, 4):
        with Pair(master=master, replicas=[replica], channels=life) as pair:
            epoch = pair.store.last_epoch + 1
            pair.store.switch_epoch(epoch)
            put(pair.channels[-1], b"%d" % life, b"", life)
            commit(pair.store, epoch)
            put(pair.channels[0], b"dropped", b"", 99)
    expected = {(1, b"%d" % life): (b"", life, ()) for life in range(1, 4)}
    assert master.stored() == replica.stored() == expected


def test_a_closed_master_leaves_the_replica_ready_for_the_next_session() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
        pair.store.close()
        wait_until(lambda: pair.replicas[0].state == "listening", "the session has ended")
        again, [channel] = open_store(
            PLACE, vfs=pair.master.disk, replicas=[pair.replicas[0].address]
        )
        with again:
            again.switch_epoch(5)
            put(channel, b"b", b"", 1)
            commit(again, 5)
        assert pair.replicas[0].epoch == 5


def test_closing_commits_what_is_due() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        pair.store.switch_epoch(2)
    expected = {(1, b"a"): (b"", 1, ())}
    assert pair.master.stored() == pair.sides[0].stored() == expected


# -- promotion, and who may not join --------------------------------------------------------------


def test_master_and_replica_change_places_and_back() -> None:
    left, right = Side(), Side()
    for turn, (master, replica) in enumerate([(left, right), (right, left), (left, right)], 1):
        with Pair(master=master, replicas=[replica]) as pair:
            assert len(contents(pair.store)) == turn - 1
            pair.store.switch_epoch(turn)
            put(pair.channel, b"%d" % turn, b"", 1)
            commit(pair.store, turn)
    assert (
        left.stored() == right.stored() == {(1, b"%d" % turn): (b"", 1, ()) for turn in range(1, 4)}
    )


@pytest.mark.parametrize("ahead", ["master", "replica"])
def test_sides_at_different_epochs_are_told_apart(ahead: str) -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
    alone = pair.master if ahead == "master" else pair.sides[0]
    run_alone(alone, epoch=2)
    with pytest.raises(ReplicaRefused, match="restore") as raised:
        Pair(master=pair.master, replicas=pair.sides)
    assert raised.value.code == ErrorCode.WRONG_POSITION


def test_two_histories_with_the_same_epoch_are_told_apart() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
    run_alone(pair.master, epoch=2)
    run_alone(pair.sides[0], epoch=2)
    with pytest.raises(ReplicaRefused) as raised:
        Pair(master=pair.master, replicas=pair.sides)
    assert raised.value.code == ErrorCode.WRONG_POSITION


def test_the_replica_of_another_datastore_is_refused() -> None:
    replica = Side()
    with Pair(replicas=[replica]):
        pass
    with pytest.raises(ReplicaRefused) as raised:
        Pair(replicas=[replica])
    assert raised.value.code == ErrorCode.WRONG_CONFIGURATION


def run_alone(side: Side, epoch: int) -> None:
    store, [channel] = open_store(PLACE, vfs=side.disk)
    with store:
        store.switch_epoch(epoch)
        put(channel, b"alone", b"", 1)
        commit(store, epoch)


def test_ready_is_all_or_nothing_with_two_replicas() -> None:
    with Pair() as pair:
        pair.store.close()
        store = Datastore(
            PLACE,
            replicas=[pair.replicas[0].address, "tcp://127.0.0.1:1"],
            options=SMALL,
            vfs=pair.master.disk,
        )
        store.create_channel()
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1"):
            store.ready()
        wait_until(lambda: pair.replicas[0].state == "listening", "no session is left")
        store.close()


# -- order ----------------------------------------------------------------------------------------


def test_a_group_commit_waits_for_the_replicas_flush_of_the_last_session() -> None:
    with Pair() as pair:
        store, disk = pair.store, pair.sides[0].disk
        store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        disk.hold()
        writing, raised = in_thread(lambda: put(pair.channel, b"b", b"", 2))
        disk.wait_until_held()
        store.switch_epoch(2)
        for durability in Durability:
            with pytest.raises(DeadlineExceeded):
                store.wait_for(1, durability, timeout=0.1)
        assert store.last_epoch == pair.replicas[0].epoch == 0
        disk.release()
        store.wait_for(1, timeout=LONG)
        writing.join(LONG)
        assert not raised
        assert store.last_epoch == pair.replicas[0].epoch == 1


def test_propagated_is_held_back_until_stored_if_the_replica_is_faster() -> None:
    with Pair() as pair:
        store, disk = pair.store, pair.master.disk
        store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        disk.hold()
        store.switch_epoch(2)
        disk.wait_until_held()
        wait_until(lambda: pair.replicas[0].epoch == 1, "the replica has committed")
        with pytest.raises(DeadlineExceeded):
            store.wait_for(1, Durability.STORED, timeout=0.1)
        assert pair.notices.told == []
        disk.release()
        assert pair.notices.next() == (1, Durability.STORED)
        assert pair.notices.next() == (1, Durability.PROPAGATED)


@pytest.mark.parametrize("parallel", [True, False])
def test_stored_is_told_while_the_replica_still_commits(parallel: bool) -> None:
    with Pair(options=replace(SMALL, parallel_commit=parallel)) as pair:
        store, disk = pair.store, pair.sides[0].disk
        store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        disk.hold()
        store.switch_epoch(2)
        assert pair.notices.next() == (1, Durability.STORED)
        disk.wait_until_held()
        with pytest.raises(DeadlineExceeded):
            store.wait_for(1, timeout=0.1)
        disk.release()
        assert pair.notices.next() == (1, Durability.PROPAGATED)


def test_with_a_deferred_flush_ending_a_session_syncs_nothing() -> None:
    with Pair(options=replace(SMALL, flush_at=FlushAt.GROUP_COMMIT)) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        before = pair.master.disk.syncs, pair.sides[0].disk.syncs
        for number in range(10):
            put(pair.channel, b"%d" % number, b"", 1)
        assert (pair.master.disk.syncs, pair.sides[0].disk.syncs) == before
        commit(pair.store, 1)
    assert len(pair.sides[0].stored()) == 11


# -- two replicas ---------------------------------------------------------------------------------


def test_propagated_needs_every_replica() -> None:
    with Pair(replicas=[Side(), Side()]) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        slow = pair.sides[1].disk
        slow.hold()
        pair.store.switch_epoch(2)
        slow.wait_until_held()
        wait_until(lambda: pair.replicas[0].epoch == 1, "the faster replica has committed")
        with pytest.raises(DeadlineExceeded):
            pair.store.wait_for(1, timeout=0.1)
        slow.release()
        pair.store.wait_for(1, timeout=LONG)
        assert pair.replicas[1].epoch == 1
    expected = {(1, b"a"): (b"", 1, ())}
    assert [side.stored() for side in (pair.master, *pair.sides)] == [expected] * 3


def test_one_lost_replica_of_two_stops_the_master() -> None:
    with Pair(replicas=[Side(), Side()]) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
        pair.replicas[1].ask_to_stop()
        pair.replicas[1].wait()
        with pytest.raises(ReplicationFailed):
            put(pair.channel, b"b", b"", 1)
        check_stopped(pair)
    expected = {(1, b"a"): (b"", 1, ())}
    assert [side.stored() for side in (pair.master, *pair.sides)] == [expected] * 3


# -- failures -------------------------------------------------------------------------------------


def check_stopped(pair: Pair) -> None:
    """Every later call raises, and nothing more is PROPAGATED."""
    propagated = pair.notices.epochs(Durability.PROPAGATED)
    with pytest.raises(ReplicationFailed):
        pair.store.switch_epoch(100)
    with pytest.raises(ReplicationFailed):
        pair.store.wait_for(99, timeout=LONG)
    with pytest.raises(ReplicationFailed):
        pair.channel.begin_session()
    with pytest.raises(ReplicationFailed):
        pair.store.set_gc_boundary(1)
    assert "tidelog_datastore_failed 1.0" in pair.store.metrics()
    assert pair.notices.epochs(Durability.PROPAGATED) == propagated


@pytest.mark.parametrize("options", ALL_ORDERS[::3])
def test_a_replica_whose_disk_fails_stops_the_master(options: DatastoreOptions) -> None:
    with Pair(options=options) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
        pair.sides[0].disk.fails = True
        with pytest.raises(ReplicationFailed, match="WRITE_FAILED"):
            put(pair.channel, b"b", b"", 2)
        check_stopped(pair)
        pair.store.close()
        with pytest.raises(LogError):
            pair.replicas[0].wait()
    assert pair.master.stored() == {(1, b"a"): (b"", 1, ())}


def test_a_replica_that_fails_at_the_group_commit_leaves_the_epoch_stored_here() -> None:
    with Pair(options=replace(SMALL, parallel_commit=False)) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        pair.sides[0].disk.fails = True
        waiting, raised = in_thread(lambda: pair.store.wait_for(1, timeout=LONG))
        pair.store.switch_epoch(2)
        pair.store.wait_for(1, Durability.STORED, timeout=LONG)
        waiting.join(LONG)
        assert [type(error) for error in raised] == [ReplicationFailed]
        check_stopped(pair)
        pair.store.wait_for(1, Durability.STORED)
        assert pair.notices.epochs(Durability.PROPAGATED) == []
        pair.store.close()
        with pytest.raises(LogError):
            pair.replicas[0].wait()
    assert pair.master.stored() == {(1, b"a"): (b"", 1, ())}


def test_a_replica_that_stalls_is_given_up_in_bounded_time() -> None:
    with Pair(options=replace(SMALL, ack_timeout_seconds=0.3)) as pair:
        pair.store.switch_epoch(1)
        pair.sides[0].disk.hold()
        with pytest.raises(ReplicationFailed, match="does not answer"):
            put(pair.channel, b"a", b"", 1)
        check_stopped(pair)
        pair.store.close()
        pair.release()


def test_a_stalled_group_commit_wakes_those_who_wait() -> None:
    with Pair(options=replace(SMALL, ack_timeout_seconds=0.3)) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        pair.sides[0].disk.hold()
        pair.store.switch_epoch(2)
        with pytest.raises(ReplicationFailed):
            pair.store.wait_for(1, timeout=LONG)
        check_stopped(pair)


def test_a_broken_disk_of_the_master_stops_it() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
        pair.master.disk.fails = True
        with pytest.raises(LogError):
            put(pair.channel, b"b", b"", 2)
        with pytest.raises(LogError):
            pair.store.switch_epoch(3)
        pair.master.disk.fails = False
    assert pair.master.stored() == pair.sides[0].stored() == {(1, b"a"): (b"", 1, ())}


def test_other_channels_are_told_at_once_when_a_replica_is_lost() -> None:
    with Pair(channels=2, options=SMALL) as pair:
        one, two = pair.channels
        pair.store.switch_epoch(1)
        pair.sides[0].disk.hold()
        waiting, raised = in_thread(lambda: put(one, b"a", b"", 1))
        pair.sides[0].disk.wait_until_held()
        two.begin_session()
        two.add_entry(1, b"b", b"", 1)
        pair.store._run().replicas._lanes[two.number][0].shut_down()
        with pytest.raises(ReplicationFailed):
            two.end_session()
        waiting.join(LONG / 2)
        assert [type(error) for error in raised] == [ReplicationFailed]
        check_stopped(pair)


def test_a_session_can_be_aborted_after_the_replica_was_lost() -> None:
    with Pair(channels=2) as pair:
        one, two = pair.channels
        pair.store.switch_epoch(1)
        one.begin_session()
        one.add_entry(1, b"a", b"", 1)
        pair.replicas[0].ask_to_stop()
        pair.replicas[0].wait()
        with pytest.raises(ReplicationFailed):
            put(two, b"b", b"", 1)
        one.abort_session()
        with pytest.raises(ReplicationFailed), two.session():
            pass


# -- the GC boundary ------------------------------------------------------------------------------


def test_the_boundary_reaches_the_replica_and_changes_nothing_that_is_live() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        for version in range(1, 11):
            put(pair.channel, b"a", b"%d" % version, version)
        with pair.channel.session():
            pair.channel.add_entry(1, b"b", b"", 5)
            pair.channel.remove_entry(1, b"b", 6)
        commit(pair.store, 1)
        before = contents(pair.store)
        pair.store.set_gc_boundary(8)
        pair.store.set_gc_boundary(8)
        assert pair.replicas[0].service.sessions.core.boundary == 8
        with pytest.raises(BadOption):
            pair.store.set_gc_boundary(7)
        with pytest.raises(StaleWrite), pair.channel.session():
            pair.channel.add_entry(1, b"c", b"", 8)
        put(pair.channel, b"c", b"", 9)
        commit(pair.store, 2)
        pair.store.compact(full=True)
        assert contents(pair.store) == {**before, (1, b"c"): (b"", 9, ())}
    assert pair.master.stored() == pair.sides[0].stored() == {**before, (1, b"c"): (b"", 9, ())}


def test_a_boundary_that_the_replica_was_not_told_is_not_told_as_set() -> None:
    with Pair() as pair:
        pair.store.switch_epoch(1)
        pair.replicas[0].ask_to_stop()
        pair.replicas[0].wait()
        with pytest.raises(ReplicationFailed):
            pair.store.set_gc_boundary(5)


def test_the_boundary_does_not_pass_what_an_open_session_has_written() -> None:
    with Pair(channels=2) as pair:
        one, two = pair.channels
        pair.store.switch_epoch(1)
        one.begin_session()
        one.add_entry(1, b"a", b"", 10)
        two.begin_session()
        two.add_entry(1, b"b", b"", 20)
        with pytest.raises(WrongState, match="10"):
            pair.store.set_gc_boundary(10)
        pair.store.set_gc_boundary(9)
        one.end_session()
        pair.store.set_gc_boundary(19)
        two.end_session()
        commit(pair.store, 1)
    assert len(pair.sides[0].stored()) == 2


def test_the_first_epoch_of_a_life_can_be_committed_whatever_the_boundary() -> None:
    master, replica = Side(), Side()
    for life in range(1, 4):
        with Pair(master=master, replicas=[replica]) as pair:
            pair.store.switch_epoch(life)
            put(pair.channel, b"%d" % life, b"", (1 << 127) + 10 * life)
            commit(pair.store, life)
            pair.store.set_gc_boundary((1 << 127) + 10 * life)
    assert len(master.stored()) == len(replica.stored()) == 3


def test_a_promoted_replica_learns_the_boundary_that_only_its_former_master_had() -> None:
    former, promoted = Side(), Side()
    with Pair(master=former, replicas=[promoted]) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 5)
        commit(pair.store, 1)
    store, _ = open_store(PLACE, vfs=former.disk)
    with store:
        store.set_gc_boundary(4)
    with Pair(master=promoted, replicas=[former]) as pair:
        pair.store.switch_epoch(2)
        with pytest.raises(StaleWrite), pair.channel.session():
            pair.channel.add_entry(1, b"b", b"", 4)
        put(pair.channel, b"b", b"", 6)
        commit(pair.store, 2)
    assert former.stored() == promoted.stored()
