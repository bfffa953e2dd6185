"""The standard streams, whatever the caller made of them."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, TextIO, cast

from tidelog.cli.failures import Failure

if TYPE_CHECKING:
    from typing import BinaryIO

_NOWHERE: Final = "/dev/null"
_held: Final[list[TextIO]] = []
"""Keeps the number of a closed standard input from being given to a file of a log."""


def settle_streams() -> None:
    """Make the process's streams fit to be used; before any other file is opened.

    One that was closed takes what is written to it and forgets it.  What cannot be encoded, such
    as a file's name that is no UTF-8, is shown with backslashes.
    """
    if sys.stdin is None:
        _held.append(_nowhere("r"))
    if sys.stdout is None:
        sys.stdout = _nowhere("w")
    if sys.stderr is None:
        sys.stderr = _nowhere("w")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def standard_input() -> BinaryIO:
    """The bytes of the standard input."""
    if sys.stdin is None:
        raise Failure("the standard input is closed")
    return cast("BinaryIO", sys.stdin.buffer)


def _nowhere(mode: str) -> TextIO:
    return cast("TextIO", open(_NOWHERE, mode, encoding="utf-8"))
