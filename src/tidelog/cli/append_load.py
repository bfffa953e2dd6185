"""Loads lines into a topic: batch after batch, with a tally for the summary or the error.

Invariants:
  A1  Memory is bounded: at most one batch of lines, and one read, is held.
  A2  Of an input with a bad line everything before it is appended, nothing from it on.
  A3  With a producer the same input makes the same appends under the same numbers, whenever it
      is repeated; so batches do not depend on how fast lines come, and only whole ones are sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from select import select
from time import perf_counter
from typing import Any, Final, Protocol

from tidelog.cli.append_lines import ItemT, LineMode
from tidelog.cli.failures import Failure, code_of
from tidelog.cli.interrupts import Interrupts
from tidelog.cli.progress import Progress
from tidelog.errors import BadEntry, LogError, ProducerConflict
from tidelog.interface.appends import AppendOptions
from tidelog.interface.handles import TopicHandle
from tidelog.interface.records import Receipt
from tidelog.limits import MIB

BATCH_BYTES: Final = 8 * MIB
READ_BYTES: Final = 256 * 1024


class LineTooLong(Exception):
    """A line is longer than any record can be."""


@dataclass(slots=True)
class Load:
    """One load; counts what became of the lines."""

    topic: TopicHandle
    producer: str
    sequence: int
    """The producer's number of the next append."""
    resume: bool
    records: int = 0
    duplicates: int = 0
    appends: int = 0
    first_glsn: int | None = None
    last_glsn: int | None = None
    last_line: int = 0
    """All lines up to here are in the log."""
    started: float = field(default_factory=perf_counter)

    def append(self, mode: LineMode[ItemT], items: Sequence[ItemT]) -> None:
        """One append to the log; raises what it raises."""
        options: AppendOptions = {}
        if self.producer:
            options = {"producer": self.producer, "sequence": self.sequence}
        try:
            receipts = mode.send(self.topic, items, **options)
        except ProducerConflict:
            if not self.resume:
                raise
            self.duplicates += len(items)
        else:
            self._count(receipts, len(items))
        self.appends += 1
        self.sequence += 1

    def _count(self, receipts: Sequence[Receipt], items: int) -> None:
        known = [receipt for receipt in receipts if receipt.duplicate]
        if known:
            if sum(receipt.count for receipt in known) < items:
                raise ProducerConflict(
                    f"producer {self.producer!r} used sequence {self.sequence} for another append: "
                    "repeat a load with the same lines and the same --batch"
                )
            self.duplicates += items
            return
        self.records += items
        first = min(receipt.glsn for receipt in receipts)
        last = max(receipt.glsn_end for receipt in receipts) - 1
        self.first_glsn = first if self.first_glsn is None else min(self.first_glsn, first)
        self.last_glsn = last if self.last_glsn is None else max(self.last_glsn, last)

    def summary(self) -> dict[str, Any]:
        return {
            "topic": self.topic.name,
            "records": self.records,
            "duplicates": self.duplicates,
            "appends": self.appends,
            "first_glsn": self.first_glsn,
            "last_glsn": self.last_glsn,
            "next_sequence": self.sequence if self.producer else None,
            "seconds": round(perf_counter() - self.started, 6),
        }

    def so_far(self) -> str:
        """What is in the log, for an error."""
        if not self.last_line:
            return "nothing was appended"
        text = f"all before line {self.last_line + 1} is in the log"
        if self.records:
            text += f": {self.records:,} records appended, GLSN {self.first_glsn}..{self.last_glsn}"
        if self.producer:
            text += f"; the next sequence is {self.sequence}"
        return text


def load_lines(load: Load, mode: LineMode[ItemT], stream: Input, batch: int) -> None:
    """Append all lines of ``stream``; raises Failure with a line number and the tally."""
    exact = bool(load.producer)
    with Interrupts() as interrupts, Progress("records") as progress:
        try:
            for first, lines in batches_of(stream, batch, mode.line_bytes_max, exact=exact):
                with interrupts.held():
                    _load_batch(load, mode, first, lines)
                progress.update(load.records + load.duplicates)
        except LineTooLong as error:
            raise Failure(f"{error}; {load.so_far()}") from error
        except OSError as error:
            raise Failure(f"the input cannot be read: {error}; {load.so_far()}") from error
        except KeyboardInterrupt as error:
            raise Failure(f"interrupted; {load.so_far()}") from error


def _load_batch(load: Load, mode: LineMode[ItemT], first: int, lines: Sequence[bytes]) -> None:
    items: list[ItemT] = []
    numbers: list[int] = []
    bad: tuple[int, BadEntry] | None = None
    for number, line in enumerate(lines, first):
        try:
            item = mode.parse(line)
        except BadEntry as error:
            bad = number, error
            break
        if item is not None:
            items.append(item)
            numbers.append(number)
    if items and not (bad and load.producer):
        _append_items(load, mode, items, numbers)
    if bad is not None:
        raise Failure(f"line {bad[0]}: {bad[1]}; {load.so_far()}") from bad[1]
    load.last_line = first + len(lines) - 1


def _append_items(
    load: Load, mode: LineMode[ItemT], items: Sequence[ItemT], numbers: Sequence[int]
) -> None:
    begin = 0
    for piece in mode.calls(items):
        lines = numbers[begin : begin + len(piece)]
        begin += len(piece)
        try:
            load.append(mode, piece)
        except LogError as error:
            where = _line_of(mode, piece, lines) if isinstance(error, BadEntry) else None
            where = where or f"lines {lines[0]} to {lines[-1]}"
            doubt, so_far = "", load.so_far()
            if not error.definite:
                doubt = " (these may be in the log or not)"
                so_far = so_far if load.last_line else "nothing else was appended"
            raise Failure(f"{where}{doubt}: {error}; {so_far}", code_of(error)) from error
        load.last_line = lines[-1]


def _line_of(mode: LineMode[ItemT], items: Sequence[ItemT], numbers: Sequence[int]) -> str | None:
    """The line that an append was refused for; None when no item is wrong by itself."""
    for item, number in zip(items, numbers, strict=True):
        try:
            mode.check(item)
        except BadEntry:
            return f"line {number}"
    return None


# -- lines ------------------------------------------------------------------------------------


class Input(Protocol):
    """A stream of bytes, such as the buffer below the standard input."""

    def read1(self, size: int = ..., /) -> bytes: ...

    def fileno(self) -> int: ...


def batches_of(
    stream: Input, lines_max: int, line_bytes_max: int, *, exact: bool
) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines) of each batch.

    A batch ends when it is full, or, unless it must be ``exact``, when no more lines are there
    yet: a slow input is not kept waiting for its batch to fill.
    """
    batch: list[bytes] = []
    size, first = 0, 1
    try:
        for lines in _whole_lines(stream, line_bytes_max):
            for line in lines:
                if batch and (len(batch) == lines_max or size + len(line) > BATCH_BYTES):
                    yield first, batch
                    first += len(batch)
                    batch, size = [], 0
                batch.append(line)
                size += len(line)
            if batch and (len(batch) == lines_max or (not exact and _is_idle(stream))):
                yield first, batch
                first += len(batch)
                batch, size = [], 0
    except LineTooLong as error:
        if batch and not exact:
            yield first, batch
        raise LineTooLong(f"line {first + len(batch)}: {error}") from error
    if batch:
        yield first, batch


def _whole_lines(stream: Input, line_bytes_max: int) -> Iterator[list[bytes]]:
    """The lines that each read completes, without their ends; the last one may have none."""
    rest: list[bytes] = []
    rest_bytes = 0
    while data := stream.read1(READ_BYTES):
        head, end, tail = data.partition(b"\n")
        rest.append(head)
        rest_bytes += len(head)
        if rest_bytes > line_bytes_max:
            raise LineTooLong(f"it is longer than {line_bytes_max} bytes, no record can hold it")
        if not end:
            continue
        more = tail.split(b"\n")
        yield [b"".join(rest), *more[:-1]]
        rest, rest_bytes = [more[-1]], len(more[-1])
    if rest_bytes:
        yield [b"".join(rest)]


def _is_idle(stream: Input) -> bool:
    """Whether reading would have to wait."""
    try:
        descriptor = stream.fileno()
    except OSError:  # Not a file of the system, so all of it is there.
        return False
    return not select([descriptor], [], [], 0)[0]
