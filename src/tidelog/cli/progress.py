"""How far a long command is, on a terminal's standard error; silent anywhere else."""

from __future__ import annotations

import sys
from time import monotonic
from typing import TYPE_CHECKING, Final, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

FIRST_SECONDS: Final = 0.5
"""Shorter work shows nothing."""
EVERY_SECONDS: Final = 0.2


class Progress:
    """Shows a count and its rate; drawn by rich where that is installed."""

    def __init__(self, noun: str, stream: TextIO | None = None) -> None:
        self._noun = noun
        self._stream = sys.stderr if stream is None else stream
        self._active = self._stream.isatty()
        self._started = monotonic()
        self._next = self._started + FIRST_SECONDS
        self._width = 0
        self._rich: tuple[RichProgress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def update(self, done: int) -> None:
        """Tell how much is done; may be called as often as one likes."""
        if not self._active:
            return
        now = monotonic()
        if now < self._next:
            return
        text = f"{done:,} {self._noun}, {done / (now - self._started):,.0f}/s"
        if self._width == 0:
            self._rich = _start_rich(self._stream)
        if self._rich is not None:
            drawing, task = self._rich
            drawing.update(task, description=text)
        else:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
        self._width = max(self._width, len(text))
        self._next = now + EVERY_SECONDS

    def __exit__(self, *_: object) -> None:
        if self._rich is not None:
            self._rich[0].stop()
        elif self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


def _start_rich(stream: TextIO) -> tuple[RichProgress, TaskID] | None:
    try:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
        from rich.progress import SpinnerColumn, TextColumn
    except ImportError:
        return None
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    drawing = RichProgress(*columns, console=Console(file=stream), transient=True)
    drawing.start()
    return drawing, drawing.add_task("", total=None)
