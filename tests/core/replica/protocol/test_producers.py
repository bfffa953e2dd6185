"""Idempotent appends: a retry is answered with its old place, by any leader that has it."""

from __future__ import annotations

from tests.core.replica.protocol.harness import Group
from tidelog.core.replica.options import Appended
from tidelog.types import Llsn, ProducerId


def retry(group: Group, number: int, producer: int, sequence: int, data: bytes) -> Appended:
    appended = group[number].append(data, 1, producer=ProducerId(producer), sequence=sequence)
    assert isinstance(appended, Appended)
    group.collect(number)
    return appended


def test_a_retry_at_the_same_leader_is_answered_with_its_place() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"other")
    assert retry(group, 1, 7, 1, b"x") == Appended(Llsn(2), 1, False)
    assert retry(group, 1, 7, 1, b"x") == Appended(Llsn(2), 1, True)
    group.order_all()
    assert group.data(1) == [b"other", b"x"]


def test_a_retry_at_the_next_leader_is_answered_with_its_old_place() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", producer=7, seq=1)
    group.deliver()
    group.crash(1)
    group.elect(2, 3)
    assert retry(group, 2, 7, 1, b"x") == Appended(Llsn(1), 1, True)
    group.order_all()
    assert group.data(2) == [b"x"]


def test_a_retry_of_what_was_cut_is_appended_anew() -> None:
    """Producers are forgotten with the log: else the retry would be acknowledged and lost."""
    group = Group(1, 2, 3)
    group.elect(1, 3)
    group.append(1, b"x", producer=7, seq=1)
    group.drop()
    group.elect(2, 3)
    group.append(2, b"y")
    group.order_all()
    group.add_follower(2, 1)
    group.order_all()
    group.elect(1, 3)
    assert retry(group, 1, 7, 1, b"x") == Appended(Llsn(2), 1, False)
    group.order_all()
    assert group.data(1) == [b"y", b"x"]


def test_a_restarted_replica_remembers_producers() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", producer=7, seq=1)
    group.order_all()
    group.restart(1)
    group.elect(1, 2)
    assert retry(group, 1, 7, 1, b"x").is_repeated


def test_a_filled_up_replica_remembers_producers() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", producer=7, seq=1)
    group.order_all()
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    group.crash(1)
    group.elect(3, 2)
    assert retry(group, 3, 7, 1, b"x").is_repeated


def test_a_filled_up_replica_remembers_producers_whose_entries_are_gone() -> None:
    group = Group(1, 2, 3)
    group.elect(1, 2, 3)
    group.append(1, b"x", producer=7, seq=1)
    group.append(1, b"y")
    group.order_all()
    group.compact(1, 1, 1)
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(30)
    group.crash(1)
    group.elect(3, 2)
    assert group.data(3) == [b"y"]
    assert retry(group, 3, 7, 1, b"x") == Appended(Llsn(1), 1, True)
