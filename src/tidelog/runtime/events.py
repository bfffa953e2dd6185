"""What a process tells of its state changes: one line for each, as text or as JSON.  No state.

``tell(_logger, "leader", stream=3, term=5)`` is a line with the name of what happened and its
fields.  Other messages of the ``logging`` module look the same, with ``message`` as a field.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TypeAlias

Field: TypeAlias = str | int | float | bool

_FIELDS: Final = "tidelog_fields"


def tell(logger: logging.Logger, event: str, level: int = logging.INFO, /, **fields: Field) -> None:
    """Note that something happened: ``event`` is a word or two, the fields say to what."""
    if logger.isEnabledFor(level):
        logger.log(level, "%s", event, extra={_FIELDS: fields})


def log_events(*, level: str, form: str, node: int) -> None:
    """Write what this process tells to its standard error, from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(node) if form == "json" else TextLines(node))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())


class TextLines(logging.Formatter):
    """``2026-01-31T12:00:00.123Z info node 1: leader stream=3 term=5``."""

    def __init__(self, node: int) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more if there is a traceback."""
        fields = "".join(f" {name}={_plain(value)}" for name, value in _fields(record).items())
        said = f"{record.getMessage()}{fields}"
        line = f"{_time(record)} {_level(record)} node {self._node}: {_one_line(said)}"
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonLines(logging.Formatter):
    """One object in each line: ``time``, ``level``, ``source``, ``event``, and the fields.

    ``source`` is the node that tells; a field ``node`` is one that is told of.
    """

    def __init__(self, node: int) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        found: dict[str, Field] = {
            "time": _time(record),
            "level": _level(record),
            "source": self._node,
            "logger": record.name,
        }
        if hasattr(record, _FIELDS):
            found |= {"event": record.getMessage(), **_fields(record)}
        else:
            found |= {"event": "message", "message": record.getMessage()}
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        text = json.dumps(found, ensure_ascii=False)
        if text.isprintable():
            return text
        return "".join(s if s.isprintable() else json.dumps(s)[1:-1] for s in text)


def _fields(record: logging.LogRecord) -> dict[str, Field]:
    found: dict[str, Field] = getattr(record, _FIELDS, {})
    return found


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _level(record: logging.LogRecord) -> str:
    return record.levelname.lower()


def _one_line(text: str) -> str:
    """Without what would begin a new line or move a terminal: messages quote what peers say."""
    if text.isprintable():
        return text
    return "".join(s if s.isprintable() else s.encode("unicode_escape").decode() for s in text)


def _plain(value: Field) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text
