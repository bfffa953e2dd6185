"""The nodes of a cluster on this machine: how many, which roles, which ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.errors import BadAddress, BadOption, CorruptData, LogError
from tidelog.runtime.identity import parse_cluster_id
from tidelog.runtime.local_nodes import ALL_ROLES, LocalNode, LocalPlan, Ports, is_free
from tidelog.storage.atomic_file import replace_file
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.os_vfs import OsVfs

LAYOUT_NAME: Final = "cluster.json"
HOST: Final = "127.0.0.1"
NODES_MAX: Final = 9
_PORT_STEP: Final = 10
_PORT_END: Final = 1 << 16


class Place(msgspec.Struct, frozen=True):
    """One node."""

    host: str
    clients: int
    http: int
    peers: int
    roles: str
    is_founder: bool = True

    @property
    def ports(self) -> Ports:
        """All of them."""
        return Ports(self.clients, self.http, self.peers)


class Layout(msgspec.Struct, frozen=True):
    """A cluster; written down, so that another run goes on with it."""

    cluster_id: str
    places: tuple[Place, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """The first metadata nodes."""
        return tuple(
            number
            for number, place in enumerate(self.places, 1)
            if place.is_founder and "metadata" in place.roles.split(",")
        )


def new_layout(
    cluster_id: bytes, hosts: Sequence[str], ports: Sequence[Ports], roles: Sequence[str] = ()
) -> Layout:
    """A cluster that is to be; without ``roles``, all of them where they are of use."""
    members = range(1, _member_count(len(hosts)) + 1)
    given = roles or [
        ALL_ROLES if number in members else "storage,operator"
        for number in range(1, len(hosts) + 1)
    ]
    places = tuple(
        Place(host, each.clients, each.http, each.peers, role)
        for host, each, role in zip(hosts, ports, given, strict=True)
    )
    layout = Layout(cluster_id.hex(), places)
    if not layout.members:
        raise BadOption("a cluster needs a node with the role metadata")
    return layout


def _member_count(nodes: int) -> int:
    """How many nodes hold the metadata: of two, one, for both would be needed."""
    return 1 if nodes < 3 else 3 if nodes < 5 else 5


def row_of_ports(first: int, nodes: int) -> list[Ports]:
    """Ports that are easy to remember: 7447, 7448, 7449; 7457, ..."""
    if first + nodes * _PORT_STEP > _PORT_END:
        raise BadOption(f"port {first} leaves no room for {nodes} nodes: choose a lower one")
    begins = [first + number * _PORT_STEP for number in range(nodes)]
    return [Ports(begin, begin + 1, begin + 2) for begin in begins]


def check_ports(nodes: Sequence[LocalNode]) -> None:
    """BadAddress unless all nodes can listen."""
    for node in nodes:
        for port in (node.ports.clients, node.ports.http, node.ports.peers):
            if not is_free(node.host, port):
                raise BadAddress(
                    f"somebody listens at port {port} of {node.host} already: stop that, or "
                    "choose other ports with --port"
                )


def plan_of(
    layout: Layout, directory: Path, settings: Mapping[str, str] | None = None
) -> LocalPlan:
    """What all nodes of the cluster have in common."""
    places = layout.places
    return LocalPlan(
        directory=directory,
        cluster_id=bytes.fromhex(layout.cluster_id),
        members=layout.members,
        metadata=tuple(
            f"{number}@tcp://{places[number - 1].host}:{places[number - 1].peers}"
            for number in layout.members
        ),
        settings=settings or {},
    )


def nodes_of(
    layout: Layout, plan: LocalPlan, environment: Mapping[str, str] | None = None
) -> list[LocalNode]:
    """The nodes, not started yet."""
    return [
        LocalNode(
            plan,
            number,
            host=place.host,
            ports=place.ports,
            roles=place.roles,
            is_founder=place.is_founder,
            environment=environment,
        )
        for number, place in enumerate(layout.places, 1)
    ]


def save_layout(layout: Layout, directory: Path) -> None:
    """Write it down, as a whole: a disk that is full leaves the old one."""
    disk = FailStopVfs(OsVfs())
    replace_file(disk, str(directory.absolute()), LAYOUT_NAME, msgspec.json.encode(layout) + b"\n")


def load_layout(directory: Path) -> Layout | None:
    """What was written down; None if nothing was."""
    path = directory / LAYOUT_NAME
    try:
        layout = msgspec.json.decode(path.read_bytes(), type=Layout)
        _check_layout(layout)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, LogError) as error:
        raise CorruptData(f"{path} cannot be read: {error}") from error
    return layout


def _check_layout(layout: Layout) -> None:
    """Whoever wrote it by hand may have been mistaken."""
    parse_cluster_id(layout.cluster_id)
    if not layout.members or len(layout.places) > NODES_MAX:
        raise BadOption(f"a cluster has up to {NODES_MAX} nodes, one of them with metadata")
    for place in layout.places:
        if not all(0 < port < _PORT_END for port in (place.clients, place.http, place.peers)):
            raise BadOption(f"ports are numbers from 1 to {_PORT_END - 1}")
