"""Addresses: where a node listens, and the URL under which a client finds a log.  No state.

A node listens at ``tcp://host:port``, ``tls://host:port`` or ``unix:///path``.  A client is given
``tidelog://host:port/topic`` or ``tidelog+tls://host:port/topic``, with several hosts after one
another if the log may be found at any of them, or ``tidelog+unix:///path?topic=name``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

from tidelog.errors import BadAddress

DEFAULT_PORT: Final = 7447
DEFAULT_HTTP_PORT: Final = 7448
_TCP: Final = "tcp://"
_TLS: Final = "tls://"
_UNIX: Final = "unix://"
_HTTP: Final = "http://"
_URL: Final = "tidelog://"
_TLS_URL: Final = "tidelog+tls://"
_UNIX_URL: Final = "tidelog+unix://"
_PORT_END: Final = 1 << 16
_PORT_DIGITS_MAX: Final = 5
_ADDRESSES_MAX: Final = 64
_WILDCARD_SIGNS: Final = "0.:"
"""Of these alone consist 0.0.0.0, ::, 0::0 and 0."""


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """A host, by name or number, and a port; port 0 lets the system pick one to listen at."""

    host: str
    port: int
    tls: bool = False
    """Whether TLS is spoken there."""

    def __str__(self) -> str:
        return f"{_TLS if self.tls else _TCP}{self.address}"

    @property
    def address(self) -> str:
        """``host:port``, with IPv6 addresses in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixEndpoint:
    """A Unix socket in the file system."""

    path: str

    def __str__(self) -> str:
        return f"{_UNIX}{self.path}"

    @property
    def tls(self) -> bool:
        """Never: the file system says who may connect, and nothing leaves the machine."""
        return False


Endpoint: TypeAlias = TcpEndpoint | UnixEndpoint


@dataclass(frozen=True, slots=True)
class LogUrl:
    """Where a log may be found, in the order in which to try, and which topic is meant."""

    endpoints: tuple[Endpoint, ...]
    topic: str = ""
    """Empty: the URL names none."""

    def __str__(self) -> str:
        first = self.endpoints[0]
        if isinstance(first, UnixEndpoint):
            query = f"?topic={quote(self.topic, safe='')}" if self.topic else ""
            return f"{_UNIX_URL}{quote(first.path)}{query}"
        hosts = ",".join(
            endpoint.address for endpoint in self.endpoints if isinstance(endpoint, TcpEndpoint)
        )
        return f"{_TLS_URL if first.tls else _URL}{hosts}/{quote(self.topic, safe='')}"


def parse_endpoint(text: str) -> Endpoint:
    """An address to listen at; BadAddress says how to write one."""
    if text.startswith(_UNIX):
        return _unix(text.removeprefix(_UNIX), text)
    for prefix in (_TCP, _TLS):
        if text.startswith(prefix):
            return _tcp(text.removeprefix(prefix), text, tls=prefix == _TLS)
    raise BadAddress(
        f"{text!r} is no address to listen at: write tcp://host:port, tcp://[::1]:port, "
        "tls://host:port or unix:///path/to/socket"
    )


def parse_told(text: str) -> Endpoint:
    """An address that others are told; BadAddress if they could do nothing with it."""
    endpoint = parse_endpoint(text)
    if is_wildcard(endpoint):
        raise BadAddress(f"nobody can connect to {text!r}: name the host")
    if isinstance(endpoint, TcpEndpoint) and not endpoint.port:
        raise BadAddress(f"nobody can connect to {text!r}: name the port")
    if " " in text or not text.isprintable():
        raise BadAddress(f"{text!r} has spaces or signs that cannot be told to others")
    return endpoint


def is_wildcard(endpoint: Endpoint) -> bool:
    """Whether it means all addresses of a machine: good to listen at, and nowhere to connect to."""
    return isinstance(endpoint, TcpEndpoint) and not endpoint.host.strip(_WILDCARD_SIGNS)


def parse_http(text: str) -> TcpEndpoint:
    """An address for HTTP: ``host:port``, with ``http://`` before it or without."""
    return _tcp(text.removeprefix(_HTTP).removesuffix("/"), text, DEFAULT_HTTP_PORT)


def parse_url(text: str) -> LogUrl:
    """The URL of a log; BadAddress says how to write one."""
    if text.startswith(_UNIX_URL):
        path, _, query = text.removeprefix(_UNIX_URL).partition("?")
        return LogUrl((_unix(unquote(path), text),), _topic_in(query, text))
    tls = text.startswith(_TLS_URL)
    if not tls and not text.startswith(_URL):
        raise BadAddress(
            f"{text!r} is no URL of a log: write tidelog://host:port/topic, "
            "tidelog+tls://host:port/topic or tidelog+unix:///path/to/socket?topic=name"
        )
    hosts, _, topic = text.removeprefix(_TLS_URL if tls else _URL).partition("/")
    addresses = hosts.split(",")
    if len(addresses) > _ADDRESSES_MAX:
        raise BadAddress(f"the URL names {len(addresses)} hosts: give at most {_ADDRESSES_MAX}")
    return LogUrl(tuple(_tcp(address, text, tls=tls) for address in addresses), unquote(topic))


def _topic_in(query: str, text: str) -> str:
    try:
        fields = parse_qsl(query, strict_parsing=bool(query), max_num_fields=1)
    except ValueError as error:
        raise BadAddress(f"{text!r} does not end in ?topic=name: {error}") from None
    for name, value in fields:
        if name != "topic":
            raise BadAddress(f"{text!r} has an option {name!r}: only ?topic=name is known")
        return value
    return ""


def _unix(path: str, text: str) -> UnixEndpoint:
    if not path.startswith("/") or "\0" in path:
        raise BadAddress(f"{text!r} needs the absolute path of a socket: unix:///path/to/socket")
    return UnixEndpoint(path)


def _tcp(
    address: str, text: str, default_port: int = DEFAULT_PORT, *, tls: bool = False
) -> TcpEndpoint:
    if address.startswith("["):
        host, bracket, port = address[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadAddress(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:7447")
        port = port.removeprefix(":") if port else str(default_port)
    else:
        host, colon, port = address.partition(":")
        if ":" in port:
            raise BadAddress(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:7447")
        port = port if colon else str(default_port)
    if not host or not host.isprintable() or any(sign in host for sign in " /?#@[]"):
        raise BadAddress(f"{text!r} names no host: write it as host:port")
    is_number = port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS_MAX
    if not is_number or int(port) >= _PORT_END:
        raise BadAddress(f"{text!r}: {port!r} is no port, use a number below {_PORT_END}")
    return TcpEndpoint(host, int(port), tls)
