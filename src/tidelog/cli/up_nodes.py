"""The processes of ``tidelog up``: started together, watched, stopped in order."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Final

import click
from msgspec.structs import replace

import tidelog
from tidelog.cli.failures import ExitCode, Failure
from tidelog.cli.up import DEFAULT_PORT
from tidelog.errors import BadOption, NotALog
from tidelog.runtime.identity import new_cluster_id
from tidelog.runtime.local_layout import (
    HOST,
    LAYOUT_NAME,
    Layout,
    Place,
    check_ports,
    load_layout,
    new_layout,
    nodes_of,
    plan_of,
    row_of_ports,
    save_layout,
)
from tidelog.runtime.local_nodes import LocalNode, TemporaryPlace
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.log_directory import LOCK_NAME, take_lock
from tidelog.storage.os_vfs import OsVfs

NODES: Final = 3
_READY_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_TOPIC: Final = "default"


@contextmanager
def temporary_data(data: Path, ephemeral: bool) -> Iterator[Path]:
    """The directory to use; one that is kept for no longer than this if it is ephemeral."""
    try:
        place = TemporaryPlace(None if ephemeral else data)
    except (FileExistsError, NotADirectoryError) as error:
        raise NotALog(f"{data} cannot be a directory: {error.strerror}") from None
    try:
        yield place.path
    finally:
        place.remove()


def check_kind(directory: Path, embedded: bool) -> None:
    """NotALog if the directory holds the other kind of log."""
    is_cluster = (directory / LAYOUT_NAME).exists()
    if embedded and is_cluster:
        raise NotALog(f"{directory} holds a cluster: leave --embedded out, or give another --data")
    others = [name for name in directory.iterdir() if name.name != LOCK_NAME]
    if not embedded and not is_cluster and others:
        raise NotALog(
            f"{directory} is not empty and holds no cluster: give another --data, or --embedded "
            "for the log of one process"
        )


def run_cluster(directory: Path, nodes: int | None, port: int | None, streams: int) -> None:
    """Start all, tell what to try, and stop all when asked to.

    One at a time: another one would give the nodes other ports and configurations as they run.
    """
    lock = take_lock(FailStopVfs(OsVfs()), str(directory))
    try:
        _run_locked(directory, nodes, port, streams)
    finally:
        lock.release()


def _run_locked(directory: Path, nodes: int | None, port: int | None, streams: int) -> None:
    layout = _layout(directory, nodes, port)
    plan = plan_of(layout, directory)
    running = nodes_of(layout, plan)
    check_ports(running)
    save_layout(layout, directory)
    with _stopped_by_signals() as stop:
        try:
            for node in running:
                node.start()
            _wait_until_ready(running, stop)
            if not stop.is_set():
                _make_topic(running, streams)
                click.echo(_advice(directory, running))
                _watch(running, stop)
        finally:
            _stop(running)
            plan.lifeline.close()


def _layout(directory: Path, nodes: int | None, port: int | None) -> Layout:
    """The cluster that is there, with more nodes if they are asked for; or a new one."""
    if port == 0:
        raise BadOption("--port 0 is for --embedded: name the first port of the first node")
    found = load_layout(directory)
    if found is None:
        count = nodes or NODES
        ports = row_of_ports(port or DEFAULT_PORT, count)
        return new_layout(new_cluster_id(), [HOST] * count, ports)
    count = nodes or len(found.places)
    if count < len(found.places):
        raise BadOption(
            f"the cluster in {directory} has {len(found.places)} nodes: to remove one, drain it "
            "and let it go with `tidelog node`"
        )
    ports = row_of_ports(port or found.places[0].clients, count)
    places = [
        replace(place, clients=each.clients, http=each.http, peers=each.peers)
        for place, each in zip(found.places, ports, strict=False)
    ]
    places += [
        Place(HOST, each.clients, each.http, each.peers, "storage,operator", False)
        for each in ports[len(places) :]
    ]
    return replace(found, places=tuple(places))


@contextmanager
def _stopped_by_signals() -> Iterator[Event]:
    stop = Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _wait_until_ready(nodes: list[LocalNode], stop: Event) -> None:
    deadline = monotonic() + _READY_SECONDS
    for node in nodes:
        while not node.is_ready and not stop.wait(_LOOK_SECONDS):
            if not node.is_running:
                raise Failure(_trouble(node, f"ended with code {node.exit_code}"))
            if monotonic() > deadline:
                state = node.page("/readyz")[1].strip()
                raise Failure(_trouble(node, f"is not ready: {state}"), ExitCode.BUSY)


def _trouble(node: LocalNode, what: str) -> str:
    return f"node {node.number} {what}; the end of {node.log}:\n{node.log_tail()}"


def _make_topic(nodes: list[LocalNode], streams: int) -> None:
    tidelog.connect(_url(nodes), topic=_TOPIC, create=True, streams=streams).close()


def _url(nodes: list[LocalNode]) -> str:
    return "tidelog://" + ",".join(f"{node.host}:{node.ports.clients}" for node in nodes)


def _advice(directory: Path, nodes: list[LocalNode]) -> str:
    url, last = _url(nodes), nodes[-1]
    lines = [
        f"Tidelog runs {len(nodes)} nodes at {url}, with its data in {directory}",
        "",
    ]
    lines += [
        f"  node {node.id}  {node.url}  {node.http}/metrics  process {node.pid}  {node.log}"
        for node in nodes
    ]
    lines += [
        "",
        "Try, in another terminal:",
        f"  export TIDELOG_DATA={url}",
        "  seq 1 1000 | tidelog append",
        "  tidelog tail --from -5",
        "  tidelog status",
        f"  python -c \"import tidelog; print(tidelog.connect('{url}').append(b'hello'))\"",
    ]
    if len(nodes) > 2:
        lines += [
            f"  kill -9 {last.pid}    # appends go on; back again:",
            f"  {Path(sys.executable).name} -m tidelog node start --config {last.config}",
        ]
    return "\n".join([*lines, "", "Ctrl-C stops it."])


def _watch(nodes: list[LocalNode], stop: Event) -> None:
    """Tell of nodes that end; nothing is started again."""
    ended: set[int] = set()
    while not stop.wait(_LOOK_SECONDS):
        for node in nodes:
            if not node.is_running and node.number not in ended:
                ended.add(node.number)
                click.echo(f"node {node.number} ended with code {node.exit_code}: see {node.log}")
        if len(ended) == len(nodes):
            raise Failure("all nodes have ended")


def _stop(nodes: list[LocalNode]) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.stop()
