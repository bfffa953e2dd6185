"""How results are written: aligned tables for people, stable JSON for programs.  No state."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from tidelog.interface.records import Record

CELL_CHARS_MAX: Final = 60
PIECE_BYTES: Final = 64 * 1024
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")


# -- values -----------------------------------------------------------------------------------


def bytes_fields(name: str, data: bytes) -> dict[str, str]:
    """Bytes in JSON: ``name`` as text if they are UTF-8, else ``name_b64``."""
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_b64": b64encode(data).decode("ascii")}


def record_fields(record: Record, topic: str) -> dict[str, Any]:
    """A record in JSON."""
    return {
        "topic": topic,
        "glsn": record.glsn,
        "llsn": record.llsn,
        "stream": record.stream,
        "kind": record.kind.name.lower(),
        **bytes_fields("key", record.key),
        **bytes_fields("value", record.value),
        "storage_id": record.storage_id,
        "write_version": record.write_version,
        "timestamp_us": record.timestamp_us,
        "blobs": list(record.blobs),
        "rewritten": record.rewritten,
    }


def shown(data: bytes, chars_max: int = CELL_CHARS_MAX) -> str:
    """Bytes in a table: one line, nothing that a terminal would obey, cut when long."""
    text = data[: 4 * chars_max].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if len(text) > chars_max or len(data) > 4 * chars_max:
        return text[: chars_max - 1] + "…"
    return text


def size_text(size: int) -> str:
    """1536 → ``1.5 KiB``."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}"


@lru_cache(maxsize=16)  # The records of a batch share their time.
def time_text(timestamp_us: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; the number itself if no calendar has it."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=timestamp_us)
    except OverflowError:
        return str(timestamp_us)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# -- writing ----------------------------------------------------------------------------------


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON document, in UTF-8 whatever the terminal speaks.

    Names of files that are no UTF-8 become the escapes of JSON for what stands for their bytes.
    """
    import json

    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(text.encode("utf-8", "backslashreplace"))


class ByteOutput:
    """Bytes for the standard output, in large pieces whatever its own buffering is."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size >= PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        left = memoryview(b"".join(self._parts))
        self._parts, self._size = [], 0
        stream = sys.stdout.buffer
        while left:  # An unbuffered stream may take less than it is given.
            left = left[stream.write(left) :]
        stream.flush()


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """``name  value`` lines."""
    pairs = [(name, _cell(value)) for name, value in fields]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        click.echo(f"{name:<{width}}  {value}".rstrip())


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under their headers; those of numbers and sizes stand to the right."""
    for line in table_lines(headers, rows):
        click.echo(line)


def table_lines(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """The lines of a table, its headers first."""
    given = [list(row) for row in rows]
    cells = [[_cell(value) for value in row] for row in given]
    widths = [
        max(len(header), *(len(row[column]) for row in cells)) if cells else len(header)
        for column, header in enumerate(headers)
    ]
    right = [
        bool(given) and all(_is_amount(row[column]) for row in given)
        for column in range(len(headers))
    ]
    for line in ([header.upper() for header in headers], *cells):
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        yield "  ".join(padded).rstrip()


class Size(int):
    """A number of bytes; a table shows it with its unit."""


class Id(int):
    """A number that stands for something and counts nothing; shown without separators."""


def _is_amount(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case Size():
            return size_text(value)
        case Id():
            return str(int(value))
        case bytes():
            return shown(value)
        case int():
            return f"{value:,}"
        case _:
            return str(value)
