"""What a process of a cluster can be told: every key, its default and what it means.  No state.

The structs are all there is to declare: ``config_sources`` reads files and the environment by
them, and ``docs/configuration.md`` is held against them by a test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tidelog.errors import BadAddress, BadOption
from tidelog.limits import (
    ENSEMBLE_NODES_MAX,
    MIB,
    ORDER_NUMBER_END,
    WAL_FILE_BYTES_DEFAULT,
    WAL_FILE_BYTES_MAX,
    WAL_FILE_BYTES_MIN,
)
from tidelog.net.endpoint import (
    Endpoint,
    TcpEndpoint,
    is_wildcard,
    parse_endpoint,
    parse_http,
    parse_told,
)
from tidelog.runtime.identity import parse_cluster_id
from tidelog.types import NO_NODE, NodeId

NOWHERE: Final = "none"
"""The address of HTTP pages that are not wanted."""
_DIGITS_MAX: Final = 19

T = TypeVar("T")
Text: TypeAlias = str
Addresses: TypeAlias = tuple[str, ...]


class Role(Enum):
    """What a process may be to its cluster; any of these at once."""

    STORAGE = "storage"
    METADATA = "metadata"
    OPERATOR = "operator"


class NodeSection(msgspec.Struct, frozen=True, kw_only=True):
    """This process."""

    data: Annotated[
        str, Meta(description="Its directory, made by `tidelog node init`.  Must be given.")
    ] = ""
    roles: Annotated[
        tuple[Role, ...], Meta(description="What it is to the cluster: any of these.")
    ] = (Role.STORAGE, Role.METADATA, Role.OPERATOR)
    listen: Annotated[
        Addresses,
        Meta(description="Where clients connect: `tcp://`, `tls://` or `unix://` addresses."),
    ] = ("tcp://127.0.0.1:7447",)
    peers: Annotated[
        Addresses,
        Meta(description="Where other processes of the cluster connect; a port that stays."),
    ] = ("tcp://127.0.0.1:7449",)
    advertise: Annotated[
        str, Meta(description="The address that clients are told; empty: the first of `listen`.")
    ] = ""
    advertise_peers: Annotated[
        str, Meta(description="The address that processes are told; empty: the first of `peers`.")
    ] = ""
    http: Annotated[
        str, Meta(description="Where `/metrics`, `/healthz` and `/readyz` are; `none`: nowhere.")
    ] = "127.0.0.1:7448"


class ClusterSection(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster that the process belongs to."""

    metadata: Annotated[
        Addresses,
        Meta(
            description="Nodes of the metadata repository, each as `ID@ADDRESS` with the address "
            "of its `peers`; enough of them to find one that is up."
        ),
    ] = ()
    id: Annotated[
        str,
        Meta(description="If given, a directory of another cluster is refused; 32 digits, 0 to f."),
    ] = ""
    replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=ENSEMBLE_NODES_MAX,
            description="Replicas of a log stream, unless whoever creates a topic says how many; "
            "0: three, if there are as many storage nodes.",
        ),
    ] = 0


class SecuritySection(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect, and how the process shows who it is ([security](security.md))."""

    cert: Annotated[
        str, Meta(description="File with the certificate for `tls://` addresses of `listen`.")
    ] = ""
    key: Annotated[str, Meta(description="File with its key; empty: `cert` holds it.")] = ""
    client_ca: Annotated[
        str, Meta(description="File with the CAs of which clients must show a certificate.")
    ] = ""
    token_file: Annotated[
        str, Meta(description="File with tokens of which clients must show one.")
    ] = ""
    ca: Annotated[
        str,
        Meta(
            description="File with the CAs of the nodes' certificates; empty: those of the system."
        ),
    ] = ""
    peer_cert: Annotated[
        str, Meta(description="The certificate for `tls://` addresses of `peers`; empty: `cert`.")
    ] = ""
    peer_key: Annotated[str, Meta(description="Its key; empty: `key`.")] = ""
    peer_ca: Annotated[
        str,
        Meta(description="File with the CAs of which processes must show a certificate."),
    ] = ""
    peer_token_file: Annotated[
        str,
        Meta(
            description="File with tokens of which processes show the first; empty: `token_file`."
        ),
    ] = ""


class TimingSection(msgspec.Struct, frozen=True, kw_only=True):
    """Times, in seconds.  Those of all processes of a cluster should be the same."""

    ping: Annotated[
        float,
        Meta(
            ge=0.02,
            le=60,
            description="A storage node that says nothing for so long is asked to answer, by "
            "operators.",
        ),
    ] = 0.25
    suspect: Annotated[
        float,
        Meta(ge=0.1, le=600, description="A node that is silent for so long is taken for dead."),
    ] = 0.5
    replace: Annotated[
        float,
        Meta(
            ge=1,
            le=10_000_000,
            description="A node that is silent for so long is replaced by one that is to spare.",
        ),
    ] = 300.0
    balance: Annotated[
        float,
        Meta(
            ge=0,
            le=1_000_000,
            description="At most one leadership moves to a node with less to do in this time; "
            "0: none.",
        ),
    ] = 30.0
    heartbeat: Annotated[
        float,
        Meta(ge=0.01, le=10, description="How often the leader of the metadata lets others hear."),
    ] = 0.2
    election: Annotated[
        float,
        Meta(
            ge=0.05,
            le=60,
            description="The leader of the metadata is replaced when it was silent for so long, "
            "or up to twice as long by chance.",
        ),
    ] = 0.4
    operator_tick: Annotated[
        float, Meta(ge=0.01, le=1, description="The unit of time of an operator.")
    ] = 0.1
    metadata_tick: Annotated[
        float, Meta(ge=0.01, le=1, description="The unit of time of a metadata node.")
    ] = 0.1
    storage_tick: Annotated[
        float, Meta(ge=0.01, le=1, description="The unit of time of a storage node.")
    ] = 0.2
    stages: Annotated[
        float,
        Meta(
            ge=1,
            le=10_000_000,
            description="What Spark has staged is forgotten when it was not published for so long.",
        ),
    ] = 3600.0
    stop: Annotated[
        float,
        Meta(ge=0, le=3600, description="How long requests may take when the process is stopped."),
    ] = 10.0


class StorageSection(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a storage node."""

    wal_file_bytes: Annotated[
        int,
        Meta(
            ge=WAL_FILE_BYTES_MIN,
            le=WAL_FILE_BYTES_MAX,
            description="Size of a WAL file, in bytes; a full one is moved into segments.",
        ),
    ] = WAL_FILE_BYTES_DEFAULT
    snapshot_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 40,
            description="A log stream with keys is looked through for what is live when it grew by "
            "this much, in bytes.",
        ),
    ] = 32 * MIB


class LogSection(msgspec.Struct, frozen=True, kw_only=True):
    """What the process writes to its standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="What is less important is left out."),
    ] = "info"
    format: Annotated[
        Literal["text", "json"], Meta(description="Lines for people, or objects for programs.")
    ] = "text"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    node: NodeSection = NodeSection()
    cluster: ClusterSection = ClusterSection()
    security: SecuritySection = SecuritySection()
    timing: TimingSection = TimingSection()
    storage: StorageSection = StorageSection()
    log: LogSection = LogSection()


# -- what follows from the values ------------------------------------------------------------------


class Member(msgspec.Struct, frozen=True):
    """A node of the metadata repository, and where its ``peers`` is."""

    node: NodeId
    address: str


def members_of(config: Config) -> tuple[Member, ...]:
    """The metadata nodes that the configuration names."""
    members = tuple(_member(text) for text in config.cluster.metadata)
    for member, number in Counter(member.node for member in members).items():
        if number > 1:
            raise BadOption(f"cluster.metadata: node {member} is named {number} times")
    return members


def _member(text: str) -> Member:
    number, sign, address = text.partition("@")
    if not (sign and number.isascii() and number.isdecimal() and len(number) <= _DIGITS_MAX):
        raise BadOption(f"cluster.metadata: {text!r} should be written as 1@tcp://host:port")
    if not NO_NODE < int(number) < ORDER_NUMBER_END:
        raise BadOption(f"cluster.metadata: {text!r} has no number of a node: 1@tcp://host:port")
    return Member(NodeId(int(number)), _told(address, "cluster.metadata"))


def client_endpoints(config: Config) -> list[Endpoint]:
    """Where clients connect."""
    return [_named("node.listen", parse_endpoint, address) for address in config.node.listen]


def peer_endpoints(config: Config) -> list[Endpoint]:
    """Where other processes connect."""
    return [_named("node.peers", parse_endpoint, address) for address in config.node.peers]


def http_endpoint(config: Config) -> TcpEndpoint | None:
    """Where the pages are, if anywhere."""
    given = config.node.http
    return None if given == NOWHERE else _named("node.http", parse_http, given)


def advertised_peers(config: Config) -> str:
    """The address that other processes are told."""
    given = config.node.advertise_peers
    return advertised(given, peer_endpoints(config), "node.advertise_peers")


def advertised(given: str, bound: list[Endpoint], name: str) -> str:
    """The address to tell others: the one given, or else the first that is listened at."""
    if given:
        return _told(given, name)
    first = bound[0]
    if is_wildcard(first):
        raise BadOption(f"{name} is missing: nobody can connect to {first}, name the host")
    return str(first)


def _told(text: str, name: str) -> str:
    return str(_named(name, parse_told, text))


def _named(name: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except (BadAddress, BadOption) as error:
        raise type(error)(f"{name}: {error}") from None


def check_config(config: Config) -> None:
    """Refuse what no process can work with; what one value alone may be is checked before."""
    node = config.node
    if not node.data:
        raise BadOption("node.data is missing: name the node's directory")
    if "\0" in node.data:
        raise BadOption("node.data names no directory: there is a zero byte in it")
    if not node.roles or len(set(node.roles)) != len(node.roles):
        raise BadOption("node.roles names storage, metadata and operator, each at most once")
    if not node.listen and Role.STORAGE in node.roles:
        raise BadOption("node.listen is missing: a storage node serves clients")
    clients = client_endpoints(config)
    if Role.STORAGE in node.roles:
        advertised(node.advertise, clients, "node.advertise")
    peers = peer_endpoints(config)
    if not peers or any(isinstance(peer, TcpEndpoint) and not peer.port for peer in peers):
        raise BadOption("node.peers needs an address with a port that stays the same")
    advertised_peers(config)
    http_endpoint(config)
    members_of(config)
    if config.cluster.id:
        _named("cluster.id", parse_cluster_id, config.cluster.id)
    _check_timing(config.timing)


def _check_timing(timing: TimingSection) -> None:
    if timing.suspect < 2 * timing.ping:
        raise BadOption("timing.suspect is at least twice timing.ping: one answer may be late")
    if timing.operator_tick > timing.ping:
        raise BadOption("timing.operator_tick is at most timing.ping")
    if timing.election < 2 * timing.heartbeat:
        raise BadOption("timing.election is at least twice timing.heartbeat")
    if timing.metadata_tick > timing.heartbeat:
        raise BadOption("timing.metadata_tick is at most timing.heartbeat")
    if timing.replace < 2 * timing.suspect:
        raise BadOption("timing.replace is at least twice timing.suspect")
