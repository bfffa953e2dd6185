"""Memory for large frames is shared, bounded, and given out in order."""

from __future__ import annotations

import pytest

from tidelog.invariants import InvariantViolation
from tidelog.replica_service.room import Claim, Room


class Woken:
    def __init__(self) -> None:
        self.names: list[str] = []

    def claim(self, room: Room, size: int, name: str) -> Claim:
        return room.claim(size, lambda: self.names.append(name))


def test_room_is_granted_at_once_while_there_is_any() -> None:
    room, woken = Room(100), Woken()
    first, second = woken.claim(room, 60, "first"), woken.claim(room, 40, "second")
    assert first.is_granted
    assert second.is_granted
    assert room.held == 100
    assert woken.names == []


def test_who_waits_is_served_in_order_even_if_a_later_one_would_fit() -> None:
    room, woken = Room(100), Woken()
    first = woken.claim(room, 60, "first")
    large, small = woken.claim(room, 70, "large"), woken.claim(room, 10, "small")
    assert not large.is_granted
    assert not small.is_granted
    room.release(first)
    assert woken.names == ["large", "small"]
    assert room.held == 80


def test_a_frame_larger_than_all_room_gets_its_turn_alone() -> None:
    room, woken = Room(100), Woken()
    first = woken.claim(room, 1, "first")
    huge, small = woken.claim(room, 1000, "huge"), woken.claim(room, 1, "small")
    room.release(first)
    assert woken.names == ["huge"]
    assert not small.is_granted
    room.release(huge)
    assert woken.names == ["huge", "small"]


def test_who_gives_up_waiting_makes_way_for_those_behind() -> None:
    room, woken = Room(100), Woken()
    woken.claim(room, 60, "first")
    large = woken.claim(room, 70, "large")
    small = woken.claim(room, 10, "small")
    room.release(large)
    assert small.is_granted
    assert room.held == 70


def test_room_cannot_be_given_back_twice() -> None:
    room, woken = Room(100), Woken()
    claim = woken.claim(room, 60, "first")
    room.release(claim)
    with pytest.raises(InvariantViolation):
        room.release(claim)
