"""Addresses: how they are written, and what is said about those that are written otherwise."""

from __future__ import annotations

import pytest

from tidelog.errors import BadAddress
from tidelog.net.endpoint import (
    Endpoint,
    LogUrl,
    TcpEndpoint,
    UnixEndpoint,
    parse_endpoint,
    parse_http,
    parse_url,
)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("tcp://localhost:7000", TcpEndpoint("localhost", 7000)),
        ("tcp://127.0.0.1:0", TcpEndpoint("127.0.0.1", 0)),
        ("tcp://[::1]:7000", TcpEndpoint("::1", 7000)),
        ("unix:///run/tidelog.socket", UnixEndpoint("/run/tidelog.socket")),
    ],
)
def test_endpoints_are_read_and_written(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == text


@pytest.mark.parametrize("text", ["tcp://host", "tcp://[::1]"])
def test_the_port_has_a_default(text: str) -> None:
    endpoint = parse_endpoint(text)
    assert isinstance(endpoint, TcpEndpoint)
    assert endpoint.port == 7447


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:1",
        "http://host:1",
        "tcp://",
        "tcp://:1",
        "tcp://host:",
        "tcp://host:port",
        "tcp://host:65536",
        pytest.param("tcp://host:" + "9" * 5_000, id="a port without end"),
        "tcp://host:-1",
        "tcp://host:\u0661",  # a digit, but not one of ours
        "tcp://::1:7000",
        "tcp://[::1:7000",
        "tcp://[::1]7000",
        "tcp://a b:1",
        "tcp://user@host:1",
        "tcp://host:1/path",
        "unix://relative",
        "unix://",
        "unix:///a\0b",
    ],
)
def test_other_endpoints_are_refused(text: str) -> None:
    with pytest.raises(BadAddress, match=r"write|bracket|host|port|path"):
        parse_endpoint(text)


def test_an_address_for_http_is_a_host_and_a_port() -> None:
    assert parse_http("http://[::1]:80/") == TcpEndpoint("::1", 80)
    assert parse_http("localhost:80") == TcpEndpoint("localhost", 80)
    assert parse_http("http://localhost") == TcpEndpoint("localhost", 7448)
    for text in ("", "https://localhost:80", "http://localhost:80/path", "unix:///path"):
        with pytest.raises(BadAddress):
            parse_http(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("tidelog://host:1/topic", LogUrl((TcpEndpoint("host", 1),), "topic")),
        ("tidelog://host:1/", LogUrl((TcpEndpoint("host", 1),))),
        ("tidelog://[::1]:1/a%2Fb", LogUrl((TcpEndpoint("::1", 1),), "a/b")),
        (
            "tidelog://a:1,b:2/topic",
            LogUrl((TcpEndpoint("a", 1), TcpEndpoint("b", 2)), "topic"),
        ),
        ("tidelog+unix:///a/b?topic=t%20t", LogUrl((UnixEndpoint("/a/b"),), "t t")),
        ("tidelog+unix:///a/b", LogUrl((UnixEndpoint("/a/b"),))),
    ],
)
def test_urls_are_read_and_written(text: str, url: LogUrl) -> None:
    assert parse_url(text) == url
    assert str(url) == text


@pytest.mark.parametrize(
    "text",
    [
        "tcp://host:1",
        "tidelog://",
        "tidelog://a:1,,b:2/t",
        "tidelog://" + ",".join(f"h{n}" for n in range(100)),
        "tidelog+unix://relative",
        "tidelog+unix:///a?other=1",
        "tidelog+unix:///a?topic=1&topic=2",
        "tidelog+unix:///a?topic",
    ],
)
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(BadAddress):
        parse_url(text)
