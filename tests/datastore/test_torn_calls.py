"""Calls that end in the middle: full stores, torn threads, closing while others write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.datastore.pairs import Pair
from tests.datastore.stores import LONG, SMALL, commit, contents, open_store, put
from tests.datastore.test_pair import in_thread
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.options import Sending
from tidelog.errors import Busy, LogClosed, ReplicationFailed, StorageFailed
from tidelog.invariants import InvariantViolation


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def fail(*arguments: object, **options: object) -> NoReturn:
        raise error

    return fail


def store_of(store: Datastore) -> object:
    return store._run().store


@pytest.mark.parametrize("sending", Sending)
def test_a_store_without_room_refuses_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, sending: Sending
) -> None:
    with Pair(options=replace(SMALL, sending=sending)) as pair:
        channel = pair.channel
        pair.store.switch_epoch(1)
        channel.begin_session()
        channel.add_entry(1, b"a", b"", 1)
        with monkeypatch.context() as full:
            full.setattr(store_of(pair.store), "reserve", raising(Busy("no room")))
            call = (
                channel.end_session
                if sending is Sending.BUFFERED
                else lambda: channel.add_entry(1, b"refused", b"", 2)
            )
            with pytest.raises(Busy):
                call()
        channel.add_entry(1, b"b", b"", 3)
        channel.end_session()
        commit(pair.store, 1)
    expected = {(1, b"a"): (b"", 1, ()), (1, b"b"): (b"", 3, ())}
    assert pair.master.stored() == pair.sides[0].stored() == expected


def test_a_block_that_finds_no_room_at_its_end_leaves_no_log_session_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that stayed open would keep its epoch, and with it all that waits, for ever."""
    with Pair() as pair:
        pair.store.switch_epoch(1)
        with monkeypatch.context() as full:
            full.setattr(store_of(pair.store), "reserve", raising(Busy("no room")))
            with pytest.raises(Busy):
                put(pair.channel, b"a", b"", 1)
        put(pair.channel, b"b", b"", 2)
        commit(pair.store, 1)
    expected = {(1, b"b"): (b"", 2, ())}
    assert pair.master.stored() == pair.sides[0].stored() == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InvariantViolation("X1"), MemoryError()])
def test_a_thread_torn_away_in_a_write_stops_the_datastore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        commit(store, 1)
        with monkeypatch.context() as torn:
            torn.setattr(store_of(store), "flush", raising(error))
            with pytest.raises(type(error)):
                put(channel, b"b", b"", 2)
        with pytest.raises(StorageFailed, match="in the middle"):
            store.switch_epoch(3)
        with pytest.raises(StorageFailed):
            store.wait_for(2, timeout=LONG)
        with pytest.raises(StorageFailed):
            channel.begin_session()
        assert len(contents(store)) == 1


def test_a_group_commit_that_is_torn_away_wakes_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        monkeypatch.setattr(store_of(store), "record", raising(MemoryError()))
        store.switch_epoch(2)
        with pytest.raises(StorageFailed, match="MemoryError"):
            store.wait_for(1, timeout=LONG)
    assert "the group commit stopped" in caplog.text


def test_a_failed_step_of_the_store_stops_the_datastore_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, [channel] = open_store(tmp_path)
    with store:
        store.switch_epoch(1)
        put(channel, b"a", b"", 1)
        monkeypatch.setattr(store_of(store), "record", raising(StorageFailed("the disk burns")))
        store.switch_epoch(2)
        with pytest.raises(StorageFailed, match="the disk burns"):
            store.wait_for(1, timeout=LONG)
        for _ in range(3):
            with pytest.raises(StorageFailed) as raised:
                store.switch_epoch(9)
        assert len(raised.traceback) < 10, "what was raised before is dragged along"


def test_closing_waits_for_a_writer_but_not_for_ever() -> None:
    with Pair(options=replace(SMALL, close_timeout_seconds=0.3)) as pair:
        pair.store.switch_epoch(1)
        pair.sides[0].disk.hold()
        writing, raised = in_thread(lambda: put(pair.channel, b"a", b"", 1))
        pair.sides[0].disk.wait_until_held()
        pair.store.close()
        writing.join(LONG)
        assert [type(error) for error in raised] == [ReplicationFailed]
        with pytest.raises(LogClosed):
            pair.channel.begin_session()


def test_closing_with_an_open_log_session_ends_the_replicas_session_in_order() -> None:
    with Pair(options=replace(SMALL, sending=Sending.IMMEDIATE)) as pair:
        pair.store.switch_epoch(1)
        put(pair.channel, b"a", b"", 1)
        commit(pair.store, 1)
        pair.channel.begin_session()
        pair.channel.add_entry(1, b"open", b"", 2)
        pair.store.close()
        assert pair.replicas[0].state == "listening"
    expected = {(1, b"a"): (b"", 1, ())}
    assert pair.master.stored() == pair.sides[0].stored() == expected
