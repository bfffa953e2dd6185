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
    from tidelog.core.session.options import FlushAt
    from tidelog.core.session.output import Durability, Notice
    from tidelog.datastore.blob_pool import BlobPool
    from tidelog.datastore.datastore import Datastore
    from tidelog.datastore.log_channel import LogChannel
    from tidelog.datastore.options import DatastoreOptions, Sending
    from tidelog.datastore.write_version import WriteVersion
    from tidelog.embedded.async_log import AsyncLog, AsyncTopic
    from tidelog.embedded.async_log import open_async_log as open_async
    from tidelog.embedded.log import Log
    from tidelog.embedded.log import open_log as open
    from tidelog.embedded.options import Options
    from tidelog.embedded.topic import Topic
    from tidelog.formats.entry import Entry, Kind
    from tidelog.interface.records import Ack, Receipt, Record
    from tidelog.net.security import ClientSecurity

__version__ = "0.1.0"

_PLACES = {
    "connect": ("tidelog.client.blocking", "connect_log"),
    "connect_async": ("tidelog.client.log", "connect_async_log"),
    "RemoteLog": ("tidelog.client.blocking", "RemoteLog"),
    "RemoteTopic": ("tidelog.client.blocking", "RemoteTopic"),
    "AsyncRemoteLog": ("tidelog.client.log", "AsyncRemoteLog"),
    "AsyncRemoteTopic": ("tidelog.client.topic", "AsyncRemoteTopic"),
    "ClientSecurity": ("tidelog.net.security", "ClientSecurity"),
    "BlobPool": ("tidelog.datastore.blob_pool", "BlobPool"),
    "Datastore": ("tidelog.datastore.datastore", "Datastore"),
    "DatastoreOptions": ("tidelog.datastore.options", "DatastoreOptions"),
    "Durability": ("tidelog.core.session.output", "Durability"),
    "FlushAt": ("tidelog.core.session.options", "FlushAt"),
    "LogChannel": ("tidelog.datastore.log_channel", "LogChannel"),
    "Notice": ("tidelog.core.session.output", "Notice"),
    "Sending": ("tidelog.datastore.options", "Sending"),
    "WriteVersion": ("tidelog.datastore.write_version", "WriteVersion"),
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
    "BlobPool",
    "ClientSecurity",
    "Datastore",
    "DatastoreOptions",
    "Durability",
    "Entry",
    "FlushAt",
    "Kind",
    "Log",
    "LogChannel",
    "LogError",
    "Notice",
    "Options",
    "Receipt",
    "Record",
    "RemoteLog",
    "RemoteTopic",
    "Sending",
    "Topic",
    "WriteVersion",
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
