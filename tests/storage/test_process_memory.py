"""Freed memory is kept where that can be asked for, and what a process began with is left alone by
the garbage collector."""

from __future__ import annotations

import ctypes
import gc
from unittest.mock import patch

from tidelog.storage.process_memory import keep_freed_memory, settle_collector


def test_without_glibc_everything_stays_as_it_is() -> None:
    with patch.object(ctypes, "CDLL", side_effect=OSError("no such library")):
        assert not keep_freed_memory()
    with patch.object(ctypes, "CDLL", return_value=object()):
        assert not keep_freed_memory()


def test_a_refusal_is_told() -> None:
    class Library:
        @staticmethod
        def mallopt(_name: ctypes.c_int, _value: ctypes.c_int) -> int:
            return 0

    with patch.object(ctypes, "CDLL", return_value=Library()):
        assert not keep_freed_memory()


def test_a_settled_process_has_little_that_the_collector_looks_at() -> None:
    old: list[list[object]] = [[]]
    try:
        settle_collector()
        new: list[list[object]] = [[]]
        looked_at = {id(found) for found in gc.get_objects()}
    finally:
        gc.unfreeze()
    assert id(old) not in looked_at
    assert id(new) in looked_at
