"""Tidelog: one durable, totally ordered log for Python and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import LogError

if TYPE_CHECKING:
    from tidelog.embedded.async_log import AsyncLog, AsyncTopic
    from tidelog.embedded.async_log import open_async_log as open_async
    from tidelog.embedded.log import Log
    from tidelog.embedded.log import open_log as open
    from tidelog.embedded.options import Options
    from tidelog.embedded.records import Ack, Receipt, Record
    from tidelog.embedded.topic import Topic
    from tidelog.formats.entry import Entry, Kind

__version__ = "0.1.0"

_PLACES = {
    "open": ("tidelog.embedded.log", "open_log"),
    "open_async": ("tidelog.embedded.async_log", "open_async_log"),
    "Log": ("tidelog.embedded.log", "Log"),
    "AsyncLog": ("tidelog.embedded.async_log", "AsyncLog"),
    "AsyncTopic": ("tidelog.embedded.async_log", "AsyncTopic"),
    "Options": ("tidelog.embedded.options", "Options"),
    "Ack": ("tidelog.embedded.records", "Ack"),
    "Receipt": ("tidelog.embedded.records", "Receipt"),
    "Record": ("tidelog.embedded.records", "Record"),
    "Topic": ("tidelog.embedded.topic", "Topic"),
    "Entry": ("tidelog.formats.entry", "Entry"),
    "Kind": ("tidelog.formats.entry", "Kind"),
}

__all__ = [
    "Ack",
    "AsyncLog",
    "AsyncTopic",
    "Entry",
    "Kind",
    "Log",
    "LogError",
    "Options",
    "Receipt",
    "Record",
    "Topic",
    "open",
    "open_async",
]


def __getattr__(name: str) -> Any:
    """Load public names when they are first used: the command line must start quickly."""
    if name not in _PLACES:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES[name]
    return getattr(import_module(module), attribute)
