"""Embedded and served logs have the same methods with the same signatures."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import tidelog
from tidelog.client.appender import AsyncRemoteAppender
from tidelog.client.blocking_appender import RemoteAppender
from tidelog.embedded.appender import Appender
from tidelog.embedded.async_appender import AsyncAppender
from tidelog.interface.async_handles import (
    AsyncAppenderHandle,
    AsyncLogHandle,
    AsyncTopicHandle,
)
from tidelog.interface.handles import AppenderHandle, LogHandle, TopicHandle

ONLY_EMBEDDED = {"verify"}
ONLY_SERVED = {
    "admin",
    "companion",
    "known",
    "log_id",
    "open_end",
    "open_pages",
    "open_range",
    "read_pages",
}
FACES: list[tuple[type, type, type]] = [
    (TopicHandle, tidelog.Topic, tidelog.RemoteTopic),
    (LogHandle, tidelog.Log, tidelog.RemoteLog),
    (AsyncTopicHandle, tidelog.AsyncTopic, tidelog.AsyncRemoteTopic),
    (AsyncLogHandle, tidelog.AsyncLog, tidelog.AsyncRemoteLog),
    (AppenderHandle, Appender, RemoteAppender),
    (AsyncAppenderHandle, AsyncAppender, AsyncRemoteAppender),
]


def public(face: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(face)
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


def parameters(member: Any) -> list[tuple[str, Any, Any, Any]]:
    """Names, kinds, whether there is a default, and annotations."""
    if isinstance(member, property):
        member = member.fget
    return [
        (p.name, p.kind, p.default is not p.empty, p.annotation)
        for p in inspect.signature(member).parameters.values()
    ]


def defaults(member: Any) -> list[Any]:
    if isinstance(member, property):
        return []
    return [p.default for p in inspect.signature(member).parameters.values()]


@pytest.mark.parametrize(("handle", "embedded", "served"), FACES)
def test_the_names_are_the_same(handle: type, embedded: type, served: type) -> None:
    names = set(public(embedded)) - ONLY_EMBEDDED
    assert names == set(public(served)) - ONLY_SERVED
    assert names == set(public(handle))


@pytest.mark.parametrize(("handle", "embedded", "served"), FACES)
def test_the_signatures_are_the_same(handle: type, embedded: type, served: type) -> None:
    ours, theirs = public(embedded), public(served)
    for name, promised in public(handle).items():
        mine, other = ours[name], theirs[name]
        assert isinstance(mine, property) == isinstance(other, property), name
        assert parameters(mine) == parameters(other) == parameters(promised), name
        assert defaults(mine) == defaults(other), name
        is_async = inspect.iscoroutinefunction(promised)
        assert inspect.iscoroutinefunction(mine) == is_async, name
        assert inspect.iscoroutinefunction(other) == is_async, name


def test_opening_and_connecting_share_their_options() -> None:
    opened = inspect.signature(tidelog.open).parameters
    connected = inspect.signature(tidelog.connect).parameters
    for name in ("topic", "streams", "versions", "create"):
        assert opened[name].kind == connected[name].kind
    assert list(connected) == list(inspect.signature(tidelog.connect_async).parameters)
