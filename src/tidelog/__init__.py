"""Tidelog: one durable, totally ordered log for Python and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import LogError

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog, RemoteTopic
    from tidelog.client.blocking import connect_log as connect
    from tidelog.client.log import AsyncRemoteLog
    from tidelog.client.log import connect_async_log as connect_async
    from tidelog.client.topic import AsyncRemoteTopic
    from tidelog.embedded.async_log import AsyncLog, AsyncTopic
    from tidelog.embedded.async_log import open_async_log as open_async
    from tidelog.embedded.log import Log
    from tidelog.embedded.log import open_log as open
    from tidelog.embedded.options import Options
    from tidelog.embedded.topic import Topic
    from tidelog.formats.entry import Entry, Kind
    from tidelog.interface.records import Ack, Receipt, Record

__version__ = "0.1.0"

_PLACES = {
    "connect": ("tidelog.client.blocking", "connect_log"),
    "connect_async": ("tidelog.client.log", "connect_async_log"),
    "RemoteLog": ("tidelog.client.blocking", "RemoteLog"),
    "RemoteTopic": ("tidelog.client.blocking", "RemoteTopic"),
    "AsyncRemoteLog": ("tidelog.client.log", "AsyncRemoteLog"),
    "AsyncRemoteTopic": ("tidelog.client.topic", "AsyncRemoteTopic"),
    "open": ("tidelog.embedded.log", "open_log"),
    "open_async": ("tidelog.embedded.async_log", "open_async_log"),
    "Log": ("tidelog.embedded.log", "Log"),
    "AsyncLog": ("tidelog.embedded.async_log", "AsyncLog"),
    "AsyncTopic": ("tidelog.embedded.async_log", "AsyncTopic"),
    "Options": ("tidelog.embedded.options", "Options"),
    "Ack": ("tidelog.interface.records", "Ack"),
    "Receipt": ("tidelog.interface.records", "Receipt"),
    "Record": ("tidelog.interface.records", "Record"),
    "Topic": ("tidelog.embedded.topic", "Topic"),
    "Entry": ("tidelog.formats.entry", "Entry"),
    "Kind": ("tidelog.formats.entry", "Kind"),
}

__all__ = [
    "Ack",
    "AsyncLog",
    "AsyncRemoteLog",
    "AsyncRemoteTopic",
    "AsyncTopic",
    "Entry",
    "Kind",
    "Log",
    "LogError",
    "Options",
    "Receipt",
    "Record",
    "RemoteLog",
    "RemoteTopic",
    "Topic",
    "connect",
    "connect_async",
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
