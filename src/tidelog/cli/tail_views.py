"""Prints a topic: as a node serves it, or view by view from a directory.

Each view is the log at one moment, read without its lock.  Waiting for more means looking at the
WAL's files for a change.  A file's time of change is too coarse to tell two writes of one moment
apart, so a file that changed just now counts as changed again the next time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from threading import Event
from time import monotonic, time_ns
from typing import Final

from tidelog.cli.options import is_url
from tidelog.cli.output import ByteOutput, record_fields
from tidelog.cli.record_format import Printer
from tidelog.cli.session import Marks, Session, marks_of, reading
from tidelog.interface.handles import TopicHandle
from tidelog.interface.records import Record
from tidelog.storage.node_store import WAL_DIRECTORY

POLL_SECONDS: Final = 0.1
POLL_COSTS: Final = 4
"""A view that takes long to open is not opened all the time: this many of its durations apart."""
SETTLED_NS: Final = 100_000_000
"""A file that did not change for so long has a time of change that can be trusted."""

Start = Callable[[TopicHandle], int]


def parse_start(text: str) -> Start:
    """Where ``--from`` points to in a topic; ValueError when it is none of the known forms."""
    if text == "earliest":
        return lambda topic: topic.first_available
    if text == "latest":
        return lambda topic: topic.high_watermark + 1
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and int(digits)):
        raise ValueError(f"{text!r} is not earliest, latest, a GLSN from 1 on, or -N")
    number = int(digits)
    if text.startswith("-"):
        return lambda topic: max(topic.first_available, topic.high_watermark + 1 - number)
    return lambda topic: number


def json_line(topic: str) -> Printer:
    """Each record as a JSON object on a line."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda record: encode(record_fields(record, topic)).encode() + b"\n"


@dataclass(slots=True)
class Tail:
    """Where a tail stands."""

    data: str
    topic: str
    start: Start
    count: int | None
    printer: Printer
    out: ByteOutput
    position: int | None = None
    """The next GLSN; None before the first view."""
    printed: int = 0

    def run(self, *, follow: bool, timeout: float | None) -> None:
        """Print until there is no more to print, or ever on."""
        if is_url(self.data):
            reading(self.data, lambda session: self._print_served(session, follow, timeout))
        else:
            self._run_views(follow, timeout)

    def _print_served(self, session: Session, follow: bool, timeout: float | None) -> None:
        topic = session.topic(self.topic)
        begin = self.start(topic)
        records = topic.subscribe(begin, timeout=timeout) if follow else topic.read(begin)
        for record in islice(records, self.count):
            self._print(record)
            if follow:
                self.out.flush()

    def _run_views(self, follow: bool, timeout: float | None) -> None:
        deadline = _deadline(timeout)
        while True:
            marks, taken = marks_of(self.data, WAL_DIRECTORY), time_ns()
            before, started = self.printed, monotonic()
            reading(self.data, lambda session: self._print_view(session, follow))
            self.out.flush()
            if not follow or self.printed == self.count:
                return
            if self.printed > before:
                deadline = _deadline(timeout)
            pause = max(POLL_SECONDS, POLL_COSTS * (monotonic() - started))
            if not self._wait(marks, taken, pause, deadline):
                return

    def _print_view(self, session: Session, follow: bool) -> None:
        topic = session.topic(self.topic)
        if self.position is None:
            self.position = self.start(topic)
        end = topic.high_watermark + 1
        if follow and self.position > end:
            return  # A place in the future: it will come.
        left = None if self.count is None else self.count - self.printed
        for record in islice(topic.read(self.position, max(self.position, end)), left):
            self._print(record)
        if self.count is None or self.printed < self.count:
            self.position = max(self.position, end)

    def _print(self, record: Record) -> None:
        self.out.write(self.printer(record))
        self.printed += 1
        # The view may break off at the next record; then another one goes on from here.
        self.position = record.glsn + 1

    def _wait(self, marks: Marks, taken: int, pause: float, deadline: float | None) -> bool:
        """Wait for a change of the WAL; False at the deadline."""
        trusted = all(changed_ns < taken - SETTLED_NS for *_, changed_ns in marks)
        never = Event()
        while True:
            left = pause if deadline is None else min(pause, deadline - monotonic())
            if left <= 0:
                return False
            never.wait(left)
            if not trusted or marks_of(self.data, WAL_DIRECTORY) != marks:
                return True
            pause = POLL_SECONDS


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else monotonic() + timeout
