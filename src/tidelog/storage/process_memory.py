"""How a process of ours treats its memory.  No state of its own.

Only for processes that are a node: a library leaves its caller's memory alone.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

from tidelog.limits import MIB

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Names of glibc's ``mallopt``."""
KEPT_BYTES: Final = 64 * MIB
"""What each arena may keep; about as much as a WAL file holds."""
BLOCK_BYTES: Final = 32 * MIB
"""Blocks up to this size are taken from what was kept; glibc allows no more."""


def keep_freed_memory() -> bool:
    """Keep freed blocks for the next pages and batches; False where that cannot be said.

    By default a thread's blocks of some megabytes go back to the system and come again as pages
    that are filled with zeros at first use, which takes longer than all else that is done to them.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False  # Not glibc.
    return all(
        mallopt(ctypes.c_int(name), ctypes.c_int(value)) == 1
        for name, value in ((_TRIM_THRESHOLD, KEPT_BYTES), (_MMAP_THRESHOLD, BLOCK_BYTES))
    )


def settle_collector() -> None:
    """Once a process is ready: keep what it began with out of the garbage collector's sight.

    A full collection looks at every object there is, and nothing else happens meanwhile: with all
    modules among them it took 50 to 100 ms, which whoever just then appended had to wait.
    """
    gc.collect()
    gc.freeze()
