"""Freed memory is kept where that can be asked for; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
from unittest.mock import patch

from tidelog.storage.machine_memory import keep_freed_memory


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
