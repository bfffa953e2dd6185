"""A datastore without replicas: epochs, recovery, versions, notices, the order of calls."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.datastore.stores import (
    LONG,
    SMALL,
    Notices,
    commit,
    contents,
    open_store,
    put,
    stored_at,
)
from tidelog.core.session.options import FlushAt
from tidelog.core.session.output import Durability
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.endpoints import ENVIRONMENT
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.options import DatastoreOptions, Sending
from tidelog.datastore.write_version import WriteVersion
from tidelog.errors import (
    BadEntry,
    BadOption,
    DeadlineExceeded,
    KeyTooLarge,
    LogClosed,
    LogError,
    LogLocked,
    ValueTooLarge,
    WrongState,
)
from tidelog.limits import KEY_BYTES_MAX, VALUE_BYTES_MAX

# -- what survives -------------------------------------------------------------------------------


def test_committed_epochs_are_there_after_a_restart(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"1", 1)
        put(channel, b"b", b"2", 2)
        commit(store, 1)
        assert store.get(1, b"a") is not None
    store, _ = open_store(tmp_path)
    with store:
        assert store.last_epoch == 1
        assert contents(store) == {(1, b"a"): (b"1", 1, ()), (1, b"b"): (b"2", 2, ())}


def test_the_last_session_without_a_switch_after_it_is_not_there_after_a_restart(
    tmp_path: Path,
) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"1", 1)
        commit(store, 1)
        put(channel, b"a", b"lost", 2)
        put(channel, b"b", b"lost", 3)
        assert contents(store) == {(1, b"a"): (b"1", 1, ())}
    assert stored_at(tmp_path) == {(1, b"a"): (b"1", 1, ())}


def test_what_was_dropped_never_returns_when_later_epochs_pass_its_number(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(5)
        put(channel, b"a", b"dropped", 100)
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(5)
        put(channel, b"b", b"kept", 1)
        commit(store, 5)
    assert stored_at(tmp_path) == {(1, b"b"): (b"kept", 1, ())}


def test_the_highest_write_version_wins_whatever_the_channel_and_the_order(tmp_path: Path) -> None:
    store, [one, two] = open_store(tmp_path, channels=2)
    with store:
        store.switch_epoch(1)
        put(one, b"a", b"new", WriteVersion(1, 5))
        put(two, b"a", b"old", WriteVersion(1, 4))
        put(two, b"b", b"old", WriteVersion(1, 1))
        commit(store, 1)
        put(one, b"b", b"new", WriteVersion(2, 1))
        commit(store, 2)
        expected = {
            (1, b"a"): (b"new", WriteVersion(1, 5), ()),
            (1, b"b"): (b"new", WriteVersion(2, 1), ()),
        }
        assert contents(store) == expected
        found = store.get(1, b"a")
        assert found is not None
        assert found.value == b"new"
    assert stored_at(tmp_path) == expected


def test_deletes_act_on_older_versions_of_all_channels(tmp_path: Path) -> None:
    store, [one, two] = open_store(tmp_path, channels=2)
    with store:
        store.switch_epoch(1)
        for storage in (1, 2):
            put(one, b"a", b"x", 10, storage)
            put(two, b"b", b"y", 30, storage)
        with two.session():
            two.remove_entry(1, b"a", 20)
            two.remove_entry(1, b"b", 20)
        with one.session():
            one.remove_storage(2, 20)
        commit(store, 1)
        expected = {(1, b"b"): (b"y", 30, ()), (2, b"b"): (b"y", 30, ())}
        assert contents(store) == expected
        assert store.get(1, b"a") is None
    assert stored_at(tmp_path) == expected


def test_an_aborted_session_leaves_nothing_and_the_next_one_goes_on(tmp_path: Path) -> None:
    for sending in Sending:
        path = tmp_path / sending
        store, [channel] = open_store(path, options=replace(SMALL, sending=sending))
        with store:
            store.switch_epoch(1)
            put(channel, b"a", b"kept", 1)
            channel.begin_session()
            channel.add_entry(1, b"a", b"aborted", 2)
            channel.abort_session()
            with pytest.raises(RuntimeError, match="of the caller"):
                write_and_fail(channel)
            put(channel, b"c", b"kept", 4)
            commit(store, 1)
        assert stored_at(path) == {(1, b"a"): (b"kept", 1, ()), (1, b"c"): (b"kept", 4, ())}


def write_and_fail(channel: LogChannel) -> None:
    with channel.session():
        channel.add_entry(1, b"b", b"aborted", 3)
        raise RuntimeError("of the caller")


def test_a_session_larger_than_the_buffer_is_one_all_the_same(tmp_path: Path) -> None:
    value = bytes(1 << 20)
    options = replace(SMALL, store=DatastoreOptions().store)
    store, [channel] = open_store(tmp_path, options=options)
    with store:
        store.switch_epoch(1)
        with channel.session():
            for number in range(10):
                channel.add_entry(1, b"kept %d" % number, value, number)
        channel.begin_session()
        for number in range(10):
            channel.add_entry(1, b"aborted %d" % number, value, number)
        channel.abort_session()
        commit(store, 1)
        assert sorted(key for _, key in contents(store)) == [b"kept %d" % n for n in range(10)]


@pytest.mark.parametrize("flush_at", FlushAt)
@pytest.mark.parametrize("sending", Sending)
def test_every_way_of_sending_and_flushing_stores_the_same(
    tmp_path: Path, sending: Sending, flush_at: FlushAt
) -> None:
    options = replace(SMALL, sending=sending, flush_at=flush_at)
    store, channels = open_store(tmp_path, channels=3, options=options)
    with store:
        for epoch in range(1, 5):
            store.switch_epoch(epoch)
            for number, channel in enumerate(channels):
                with channel.session():
                    channel.add_entry(number, b"k", b"%d" % epoch, epoch)
                    channel.add_entry(9, b"shared", b"%d" % number, epoch * 10 + number)
            commit(store, epoch) if epoch == 4 else None
    expected = {(number, b"k"): (b"4", 4, ()) for number in range(3)}
    assert stored_at(tmp_path) == {**expected, (9, b"shared"): (b"2", 42, ())}


def test_compaction_keeps_what_is_live(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        for turn in range(1, 21):
            with channel.session():
                for number in range(50):
                    channel.add_entry(1, b"key %d" % number, b"%d" % turn * 100, turn)
            commit(store, turn)
        before = contents(store)
        store.set_gc_boundary(20)
        store.compact(full=True)
        assert contents(store) == before
        with pytest.raises(BadOption):
            store.set_gc_boundary(19)
        store.set_gc_boundary(20)
    assert stored_at(tmp_path) == before


# -- epochs --------------------------------------------------------------------------------------


def test_overlapping_sessions_hold_back_the_epochs_that_they_began_in(tmp_path: Path) -> None:
    notices = Notices()
    store, [one, two] = open_store(tmp_path, channels=2, notices=notices)
    stored = Durability.STORED

    def safe_after(epoch: int) -> int:
        """The last epoch that is stored; all notices up to it were delivered."""
        store.wait_for(epoch, timeout=LONG)
        with pytest.raises(DeadlineExceeded):
            store.wait_for(epoch + 1, stored, timeout=0.01)
        return epoch

    with store:
        store.switch_epoch(1)
        store.switch_epoch(2)
        assert one.begin_session() == 2
        store.switch_epoch(3)
        store.switch_epoch(4)
        assert safe_after(1) == 1
        assert two.begin_session() == 4
        store.switch_epoch(5)
        store.switch_epoch(6)
        one.add_entry(1, b"one", b"", 1)
        one.end_session()
        assert safe_after(3) == 3
        assert store.last_epoch == 3
        store.switch_epoch(7)
        store.switch_epoch(8)
        assert safe_after(3) == 3
        two.add_entry(1, b"two", b"", 1)
        two.end_session()
        assert safe_after(7) == 7
        store.switch_epoch(9)
        assert safe_after(8) == 8
        assert store.last_epoch == 7
        assert store.epoch == 9
    for durability in Durability:
        told = notices.epochs(durability)
        assert told == sorted(set(told))
        assert told[-1] == 8


def test_epochs_may_jump(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(10)
        put(channel, b"a", b"", 1)
        store.switch_epoch(1 << 40)
        store.wait_for((1 << 40) - 1, timeout=LONG)
        assert contents(store) == {(1, b"a"): (b"", 1, ())}


@pytest.mark.parametrize("epoch", [0, -1, 6, 7, 1 << 63])
def test_an_epoch_that_does_not_grow_is_refused(tmp_path: Path, epoch: int) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(7)
        with pytest.raises(BadOption):
            store.switch_epoch(epoch)
        put(channel, b"a", b"", 1)
        commit(store, 7)
    store, _ = open_store(tmp_path)
    with store, pytest.raises(BadOption):
        store.switch_epoch(7)


def test_notices_come_in_order_and_none_is_repeated(tmp_path: Path) -> None:
    notices = Notices()
    store, channels = open_store(tmp_path, channels=4, notices=notices)

    def write(number: int) -> None:
        for turn in range(50):
            put(channels[number], b"%d" % number, b"%d" % turn, turn)

    with store:
        store.switch_epoch(1)
        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        epoch = 1
        while any(thread.is_alive() for thread in threads):
            epoch += 1
            store.switch_epoch(epoch)
            store.wait_for(epoch - 1, timeout=LONG)
        for thread in threads:
            thread.join()
        commit(store, epoch)
    position = {
        (notice.epoch, notice.durability): index for index, notice in enumerate(notices.told)
    }
    assert len(position) == len(notices.told)
    for durability in Durability:
        told = notices.epochs(durability)
        assert told == sorted(told)
    for told_epoch in notices.epochs(Durability.PROPAGATED):
        stored = [e for e in notices.epochs(Durability.STORED) if e >= told_epoch]
        assert stored
        assert position[stored[0], Durability.STORED] < position[told_epoch, Durability.PROPAGATED]
    assert all(entry[0] == b"49" for entry in stored_at(tmp_path).values())


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_listener_that_fails_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    def fail(notice: object) -> None:
        raise error("of the listener")

    store = Datastore(tmp_path, replicas=[], options=SMALL)
    channel = store.create_channel()
    notices = Notices()
    store.on_notice(fail)
    store.on_notice(notices)
    with store:
        store.ready()
        for epoch in range(1, 4):
            store.switch_epoch(epoch)
            put(channel, b"a", b"", epoch)
            commit(store, epoch) if epoch == 3 else None
        while notices.next() != (3, Durability.PROPAGATED):
            pass
    assert "of the listener" in caplog.text


def test_a_listener_cannot_close_the_datastore(tmp_path: Path) -> None:
    refused: list[LogError] = []

    def close(notice: object) -> None:
        try:
            store.close()
        except WrongState as error:
            refused.append(error)

    store = Datastore(tmp_path, replicas=[], options=SMALL)
    store.create_channel()
    store.on_notice(close)
    store.ready()
    store.switch_epoch(1)
    store.switch_epoch(2)
    store.wait_for(1, timeout=LONG)
    store.close()
    assert refused


def test_waiting_ends_with_its_deadline_and_with_the_datastore(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    store.switch_epoch(1)
    channel.begin_session()
    with pytest.raises(DeadlineExceeded):
        store.wait_for(1, timeout=0.01)
    raised: list[LogError] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            store.wait_for(1, timeout=LONG)
        except LogClosed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(LONG)
    store.close()
    thread.join(LONG)
    assert len(raised) == 1


# -- what is refused -----------------------------------------------------------------------------


def test_calls_in_the_wrong_order_say_what_to_do(tmp_path: Path) -> None:
    store = Datastore(tmp_path, replicas=[], options=SMALL)
    with pytest.raises(WrongState, match="create_channel"):
        store.ready()
    channel = store.create_channel()
    for call in (
        lambda: store.switch_epoch(1),
        lambda: store.wait_for(1),
        lambda: store.entries(),
        lambda: store.get(1, b"a"),
        lambda: store.blob_pool(),
        lambda: store.metrics(),
        lambda: store.compact(),
        channel.begin_session,
        channel.end_session,
    ):
        with pytest.raises(WrongState, match=r"ready\(\)"):
            call()
    store.ready()
    with pytest.raises(WrongState, match="before"):
        store.create_channel()
    with pytest.raises(WrongState, match="before"):
        store.on_notice(lambda notice: None)
    with pytest.raises(WrongState, match="before"):
        store.ready()
    with pytest.raises(WrongState, match="switch"):
        channel.begin_session()
    store.switch_epoch(1)
    with pytest.raises(WrongState, match="begin_session"):
        channel.add_entry(1, b"a", b"", 1)
    with pytest.raises(WrongState, match="begin_session"):
        channel.end_session()
    with pytest.raises(WrongState, match="begin_session"):
        channel.abort_session()
    channel.begin_session()
    with pytest.raises(WrongState, match="end or abort"):
        channel.begin_session()
    store.close()
    store.close()
    for late in (store.ready, store.create_channel, channel.end_session, channel.begin_session):
        with pytest.raises(LogClosed):
            late()


def test_a_datastore_that_never_was_ready_can_be_closed(tmp_path: Path) -> None:
    store = Datastore(tmp_path, replicas=[], options=SMALL)
    store.create_channel()
    store.close()
    with pytest.raises(LogClosed):
        store.ready()


def test_a_bad_entry_is_refused_at_once_and_the_session_goes_on(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        with channel.session():
            channel.add_entry(1, b"a", b"good", 1)
            bad: list[tuple[type[LogError], tuple[Any, ...]]] = [
                (BadEntry, (1, b"", b"no key", 2)),
                (BadEntry, (1, "text", b"", 2)),
                (BadEntry, (1, b"b", "text", 2)),
                (BadEntry, (1, b"b", b"", None)),
                (BadEntry, (1, b"b", b"", -1)),
                (BadEntry, (1, b"b", b"", 1 << 128)),
                (BadEntry, (-1, b"b", b"", 2)),
                (BadEntry, (1 << 64, b"b", b"", 2)),
                (BadEntry, ((1 << 64) - 1, b"master", b"", 2)),
                (BadEntry, (1, b"b", b"", 2, (77,))),
                (KeyTooLarge, (1, bytes(KEY_BYTES_MAX + 1), b"", 2)),
                (ValueTooLarge, (1, b"b", bytes(VALUE_BYTES_MAX + 1), 2)),
            ]
            for error, arguments in bad:
                with pytest.raises(error):
                    channel.add_entry(*arguments)
            channel.add_entry(1, b"c", b"good", (1 << 128) - 1)
        commit(store, 1)
        assert sorted(key for _, key in contents(store)) == [b"a", b"c"]


def test_two_threads_in_one_channel_are_told(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        channel.begin_session()
        assert channel.wait_unused(0)  # As if a thread were in a call.
        with pytest.raises(WrongState, match="channel of its own"):
            channel.add_entry(1, b"a", b"", 1)
        channel._in_use.release()
        channel.add_entry(1, b"a", b"", 1)
        channel.end_session()


def test_a_directory_belongs_to_one_datastore_at_a_time(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path)
    with store:
        second = Datastore(tmp_path, replicas=[], options=SMALL)
        second.create_channel()
        with pytest.raises(LogLocked):
            second.ready()
    second.ready()
    second.close()


# -- without replicas, and without those that are named --------------------------------------------


@pytest.mark.parametrize(
    "named", ["garbage", "tcp://127.0.0.1:1", "tcp://no-such-host.invalid:1", "unix:///nonexistent"]
)
def test_a_replica_that_is_not_there_fails_ready_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT, named)
    store = Datastore(tmp_path, options=replace(SMALL, connect_timeout_seconds=1))
    channel = store.create_channel()
    with pytest.raises(LogError) as raised:
        store.ready()
    assert named.partition("://")[2] in str(raised.value) or named in str(raised.value)
    monkeypatch.delenv(ENVIRONMENT)
    store.ready()
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        commit(store, 1)


# -- figures ---------------------------------------------------------------------------------------


def test_spans_and_metrics_tell_what_was_measured(tmp_path: Path) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        for number in range(10):
            put(channel, b"a", b"", number)
        commit(store, 1)
        figures = {figures.span: figures for figures in store.spans()}
        assert figures["session end"].count == 10
        assert figures["fsync"].count >= 10
        assert figures["epoch write"].count == 1
        assert figures["send"].count == figures["remote fsync"].count == 0
        text = store.metrics()
    assert "tidelog_datastore_propagated_epoch 1.0" in text
    assert 'tidelog_datastore_span_seconds_count{span="session_end"} 10.0' in text
    assert 'tidelog_datastore_span_seconds_bucket{le="+Inf",span="session_end"} 10.0' in text
