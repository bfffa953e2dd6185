"""RabbitMQ: three nodes in a cluster, with streams and with quorum queues.

A stream confirms a record when a majority has written it, and never syncs on purpose.  A quorum
queue (Raft) confirms when a majority has synced.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.peers.installing import Store, Unpacked
from bench.peers.interface import NODES, Client, Cluster, Variant
from bench.peers.processes import HOST, Processes, Unavailable, free_ports
from bench.peers.rabbitmq_queues import LeanQueue, StockQueue, declare_queue
from bench.peers.rabbitmq_streams import LeanStream, StockStream, create_stream
from tidelog.net.loops import run

COMMAND_SECONDS: Final = 120.0
_COOKIE: Final = "bench"
_LOOPBACK: Final = "-kernel inet_dist_use_interface {127,0,0,1}"
_NO_DAEMON: Final = "-start_epmd false"
"""Otherwise a node that finds none starts one, which nobody ends."""
_CONFIG: Final = """
listeners.tcp.1 = {host}:{port}
stream.listeners.tcp.1 = {host}:{stream}
stream.advertised_host = {host}
stream.advertised_port = {stream}
vm_memory_high_watermark.absolute = 2GB
disk_free_limit.absolute = 100MB
"""


class RabbitMq:
    """The peer."""

    name = "RabbitMQ"
    orders_streams = False
    variants = (
        Variant("stream", "written by a majority"),
        Variant("quorum queue", "synced by a majority", syncs=True),
    )

    def install(self, store: Store) -> None:
        self._unpacked = store.debian("rabbitmq-server")
        _relocate(self._unpacked)
        try:
            import pika  # noqa: F401
            import rstream  # noqa: F401
        except ImportError as error:
            raise Unavailable("rstream and pika are not installed") from error

    @contextmanager
    def start(self, variant: Variant, directory: Path) -> Iterator[RabbitMqCluster]:
        ports = free_ports(3 * NODES + 1)
        queues, streams, distribution = ports[:3], ports[3:6], ports[6:9]
        common = self._environment(directory, ports[9])
        nodes: list[dict[str, str]] = []
        with Processes(directory / "logs") as processes:
            daemon = self._unpacked.program("usr/lib/erlang/bin/epmd")
            processes.start("epmd", [daemon], environment=common)
            processes.wait_for_ports(ports[9:])
            for number in range(NODES):
                place = directory / f"n{number}"
                place.mkdir()
                config = place / "rabbitmq.conf"
                config.write_text(
                    _CONFIG.format(host=HOST, port=queues[number], stream=streams[number])
                )
                plugins = place / "enabled_plugins"
                plugins.write_text("[rabbitmq_stream].\n")
                environment = {
                    **common,
                    "RABBITMQ_NODENAME": f"bench{number}@localhost",
                    "RABBITMQ_DIST_PORT": str(distribution[number]),
                    "RABBITMQ_MNESIA_BASE": str(place / "data"),
                    "RABBITMQ_CONFIG_FILE": str(config),
                    "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
                    "RABBITMQ_PID_FILE": str(place / "pid"),
                }
                nodes.append(environment)
                server = self._program("rabbitmq-server")
                processes.start(f"n{number}", [server], environment=environment)
            processes.wait_for_ports([*queues, *streams])
            for environment in nodes[1:]:
                self._control(environment, "stop_app")
                self._control(environment, "join_cluster", nodes[0]["RABBITMQ_NODENAME"])
                self._control(environment, "start_app")
            processes.wait_for_ports([*queues, *streams])
            yield RabbitMqCluster(
                self._version, processes, directory, queues[0], streams[0], variant.syncs
            )

    @property
    def _version(self) -> str:
        (home,) = self._unpacked.root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")
        return home.name.rpartition("-")[2]

    def _environment(self, directory: Path, daemon_port: int) -> dict[str, str]:
        """What all nodes share; the home is where Erlang keeps the secret of the cluster."""
        home = directory / "home"
        home.mkdir()
        cookie = home / ".erlang.cookie"
        cookie.write_text(_COOKIE)
        cookie.chmod(0o400)
        return {
            **self._unpacked.environment,
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(daemon_port),
            "ERL_AFLAGS": _NO_DAEMON,
            "RABBITMQ_LOG_BASE": str(directory / "rabbitmq-logs"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _LOOPBACK,
            "RABBITMQ_CTL_ERL_ARGS": _LOOPBACK,
        }

    def _program(self, name: str) -> Path:
        return self._unpacked.program(f"usr/lib/rabbitmq/bin/{name}")

    def _control(self, environment: dict[str, str], *words: str) -> None:
        node = environment["RABBITMQ_NODENAME"]
        done = subprocess.run(
            [str(self._program("rabbitmqctl")), "-n", node, *words],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-500:]
            raise Unavailable(f"rabbitmqctl {words[0]} failed: {said}")


def _relocate(unpacked: Unpacked) -> None:
    """Erlang's start script knows where Debian installs it; say where it is."""
    home = unpacked.program("usr/lib/erlang")
    scripts = [home / "bin" / "erl", *home.glob("erts-*/bin/erl")]
    for script in scripts:
        if script.is_file() and not script.is_symlink():
            text = script.read_text(encoding="utf-8")
            lines = [
                f"{line.partition('ROOTDIR=')[0]}ROOTDIR={home}"
                if line.strip().startswith("ROOTDIR=")
                else line
                for line in text.splitlines()
            ]
            script.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(slots=True)
class RabbitMqCluster(Cluster):
    queue_port: int
    stream_port: int
    is_queue: bool

    def make_topic(self, name: str, streams: int) -> None:
        if streams > 1:
            return  # A super stream has no order, and needs a client that knows it.
        if self.is_queue:
            declare_queue(self.queue_port, name)
        else:
            run(create_stream(self.stream_port, name))

    def clients(self, topic: str) -> Sequence[Client]:
        if self.is_queue:
            return LeanQueue(self.queue_port, topic), StockQueue(self.queue_port, topic)
        return LeanStream(self.stream_port, topic), StockStream(self.stream_port, topic)
