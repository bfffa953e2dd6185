r"""Formats of `tail`: ``%g`` and its like stand for parts of a record, ``\n`` for a new line.

No state.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tidelog.cli.output import time_text
from tidelog.formats.entry import Kind
from tidelog.interface.records import Record

Printer = Callable[[Record], bytes]

_ESCAPES: Final = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\\\": b"\\", "%%": b"%"}
_PARTS: Final[dict[str, Callable[[Record], bytes]]] = {
    "%g": lambda record: b"%d" % record.glsn,
    "%l": lambda record: b"%d" % record.llsn,
    "%s": lambda record: b"%d" % record.stream,
    "%k": lambda record: record.key,
    "%v": lambda record: record.value,
    "%T": lambda record: b"%d" % record.timestamp_us,
    "%d": lambda record: time_text(record.timestamp_us).encode(),
    "%o": lambda record: record.kind.name.lower().encode(),
    "%w": lambda record: b"%d" % record.write_version,
    "%i": lambda record: b"%d" % record.storage_id,
}
_PIECE: Final = re.compile(r"%.|\\[nt0\\]|[^%\\]+|.", re.DOTALL)


def compile_format(text: str, topic: str) -> Printer:
    """A printer for the format; ValueError when it has an unknown part.

    A new line is added unless the format ends with one, or with a zero byte.
    """
    pieces = [_piece(found, topic) for found in _PIECE.findall(text)]
    last = pieces[-1] if pieces else b""
    ended = isinstance(last, bytes) and last.endswith((b"\n", b"\0"))
    end = b"" if ended else b"\n"

    def printer(record: Record) -> bytes:
        return b"".join([*(p if isinstance(p, bytes) else p(record) for p in pieces), end])

    return printer


def _piece(found: str, topic: str) -> bytes | Printer:
    if found == "%t":
        return topic.encode()
    if found in _PARTS:
        return _PARTS[found]
    if found in _ESCAPES:
        return _ESCAPES[found]
    if found.startswith("%"):
        known = " ".join(sorted([*_PARTS, "%t", "%%"], key=str.lower))
        raise ValueError(f"there is no {found!r}; known: {known}")
    return found.encode("utf-8", "surrogateescape")


def plain(record: Record) -> bytes:
    """The value; after the key and a tab if there is one."""
    if record.kind is Kind.DELETE_STORAGE:
        return b"(storage %d deleted)\n" % record.storage_id
    if record.kind is Kind.DELETE:
        return b"%b\t(deleted)\n" % record.key
    return b"%b\t%b\n" % (record.key, record.value) if record.key else record.value + b"\n"
