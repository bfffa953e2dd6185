"""Leaves calls to the disk out while a chosen function runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from tidelog.storage.fail_stop import FailStopFile, FailStopVfs

Change: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Puts a mutant in place while the context lasts."""


def always(path: str) -> bool:
    return True


def sync_left_out(owner: Any, function: str) -> Change:
    """``File.sync`` does nothing while ``owner.function`` runs."""
    return lambda: _left_out(owner, function, FailStopFile, "sync", always)


def sync_dir_left_out(
    owner: Any, function: str, directory: Callable[[str], bool] = always
) -> Change:
    """``sync_dir`` of these directories does nothing while ``owner.function`` runs."""
    return lambda: _left_out(owner, function, FailStopVfs, "sync_dir", directory)


@contextmanager
def _left_out(
    owner: Any, function: str, disk: Any, call: str, which: Callable[[str], bool]
) -> Iterator[None]:
    depth = 0
    original, original_call = getattr(owner, function), getattr(disk, call)

    def running(*args: Any, **options: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return original(*args, **options)
        finally:
            depth -= 1

    def called(self: Any, *args: str) -> Any:
        if depth == 0 or not which(args[0] if args else self.path):
            return original_call(self, *args)
        return None

    with patch.object(owner, function, running), patch.object(disk, call, called):
        yield


def replaced(owner: Any, function: str, make: Callable[[Any], Any]) -> Change:
    """``owner.function`` becomes what ``make`` makes of it."""

    @contextmanager
    def change() -> Iterator[None]:
        with patch.object(owner, function, make(getattr(owner, function))):
            yield

    return change


def together(*changes: Change) -> Change:
    """Several changes at once."""

    @contextmanager
    def change() -> Iterator[None]:
        if not changes:
            yield
            return
        with changes[0](), together(*changes[1:])():
            yield

    return change
