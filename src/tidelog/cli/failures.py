"""Exit codes, and which error means which.  No state."""

from __future__ import annotations

from enum import IntEnum
from typing import IO, Any

import click

from tidelog.errors import (
    Busy,
    ConnectionLost,
    CorruptData,
    DeadlineExceeded,
    LogLocked,
    NotALog,
    OutOfRange,
    Trimmed,
    UnknownBlob,
    UnknownStream,
    UnknownTopic,
    Unreachable,
)


class ExitCode(IntEnum):
    """What a script can tell from the end of a command; 2 (usage) comes from the parser."""

    OK = 0
    ERROR = 1
    USAGE = 2
    DAMAGED = 3
    NOT_FOUND = 4
    BUSY = 5
    LOCKED = 6


_CODES: tuple[tuple[tuple[type[Exception], ...], ExitCode], ...] = (
    ((LogLocked,), ExitCode.LOCKED),
    ((CorruptData,), ExitCode.DAMAGED),
    ((Busy, DeadlineExceeded, ConnectionLost, Unreachable), ExitCode.BUSY),
    (
        (
            UnknownTopic,
            UnknownStream,
            UnknownBlob,
            NotALog,
            Trimmed,
            OutOfRange,
            FileNotFoundError,
        ),
        ExitCode.NOT_FOUND,
    ),
)


class Failure(click.ClickException):
    """Ends the command with a message on stderr and an exit code, without a traceback."""

    def __init__(self, message: str, code: ExitCode = ExitCode.ERROR) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # Ours differ from one to the next.

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"tidelog: {self.message}", err=True)


def code_of(error: Exception) -> ExitCode:
    """The exit code of an error of the log or the system."""
    for types, code in _CODES:
        if isinstance(error, types):
            return code
    return ExitCode.ERROR


def failure_of(error: Exception) -> Failure:
    return Failure(str(error), code_of(error))
