"""Processes of a cluster on this machine: ports, directories, configurations, start and stop.

L1  a process that was started here is gone when its node was stopped, when this program ends, and
    when it is killed: a node ends when its standard input does
L2  ports lie below those that the system gives to outgoing connections, so that a node that is
    started again finds its own free
"""

from __future__ import annotations

import atexit
import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

from tidelog.errors import BadAddress, Unreachable
from tidelog.runtime.config_sources import KEYS, written
from tidelog.runtime.identity import IDENTITY_NAME, Identity, founder, joiner, read_identity
from tidelog.runtime.new_node import make_node
from tidelog.storage.fail_stop import FailStopVfs
from tidelog.storage.os_vfs import OsVfs

ALL_ROLES: Final = "storage,metadata,operator"
_FREE_PORTS: Final = range(15_000, 32_000)
"""L2: the system's own begin at 32768."""
_PORT_TRIES: Final = 1_000
_STOP_SECONDS: Final = 20.0
_HTTP_SECONDS: Final = 2.0
_TAIL_LINES: Final = 15

_running: dict[int, LocalNode] = {}


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens."""

    clients: int
    http: int
    peers: int


class Lifeline:
    """A pipe whose one end is the standard input of all nodes of a cluster, and that ends with the
    program that holds the other (L1)."""

    def __init__(self) -> None:
        self._ends: tuple[int, int] | None = None

    def end_for_nodes(self) -> int:
        """The descriptor that nodes inherit."""
        if self._ends is None:
            self._ends = os.pipe()
        return self._ends[0]

    def close(self) -> None:
        """Let go of it, once all nodes have been stopped."""
        for end in self._ends or ():
            os.close(end)
        self._ends = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """What the nodes of one cluster have in common."""

    directory: Path
    cluster_id: bytes
    members: tuple[int, ...]
    """The first metadata nodes."""
    metadata: tuple[str, ...]
    """Where these are: ``1@tcp://host:port``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """``section.key`` → value, as in the environment: lists with commas."""
    lifeline: Lifeline = field(default_factory=Lifeline)


class LocalNode:
    """One process; it may be stopped, killed, started again."""

    def __init__(
        self,
        plan: LocalPlan,
        number: int,
        *,
        host: str,
        ports: Ports,
        roles: str = ALL_ROLES,
        is_founder: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.number = number
        """Its place among the nodes of this machine, from 1; its first id if it is a founder."""
        self.host = host
        self.ports = ports
        self.roles = roles
        self.directory = plan.directory / f"node-{number}"
        self.log = plan.directory / f"node-{number}.log"
        """What it writes to its standard error."""
        self.prefix: tuple[str, ...] = ()
        """Put before the command, such as ``ip netns exec NAME``."""
        self.environment: dict[str, str] = dict(environment or {})
        """More variables for the process."""
        self.should_run = False
        """Whether it was started, and neither stopped nor killed from here since."""
        self._plan = plan
        self._is_founder = is_founder
        self._process: subprocess.Popen[bytes] | None = None

    # -- what it is -------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        """Its NodeId, as its directory says; another one after ``wipe``."""
        return self.identity.node

    @property
    def identity(self) -> Identity:
        """Who it is; made at the first start."""
        return read_identity(FailStopVfs(OsVfs()), str(self.directory))

    @property
    def url(self) -> str:
        """For clients."""
        return f"tidelog://{self.host}:{self.ports.clients}"

    @property
    def http(self) -> str:
        """Where /metrics, /healthz and /readyz are."""
        return f"http://{self.host}:{self.ports.http}"

    @property
    def peers(self) -> str:
        """Where other processes of the cluster find it."""
        return f"tcp://{self.host}:{self.ports.peers}"

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether there is a process; one that is paused counts."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of the last process, if that ended."""
        return None if self._process is None else self._process.poll()

    def __repr__(self) -> str:
        return f"LocalNode({self.number}, {self.url}, pid={self.pid})"

    # -- what can be done to it --------------------------------------------------------------------

    def prepare(self) -> None:
        """Make its directory, if that has no identity yet, and write its configuration."""
        if not (self.directory / IDENTITY_NAME).exists():
            make_node(OsVfs(), str(self.directory), self._new_identity())
        self.config.write_text(self._config_text())

    def start(self) -> None:
        """Start the process; it is not ready yet when this returns."""
        self.should_run = True
        if self.is_running:
            return
        self.release()
        self.prepare()
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        command = [
            *self.prefix,
            *(("env", *variables) if variables else ()),
            *(sys.executable, "-m", "tidelog", "node", "start"),
            *("--config", str(self.config), "--until-eof"),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program.
                command,
                stdin=self._plan.lifeline.end_for_nodes(),
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=_environment(),
            )
        _running[self._process.pid] = self

    def ask_to_stop(self) -> None:
        """Let it begin to stop in order."""
        self.should_run = False
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Stop it in order; kill it if that takes too long."""
        self.ask_to_stop()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would; it is gone when this returns."""
        self.should_run = False
        self._signal(signal.SIGKILL)
        self.release()

    def release(self) -> None:
        """Wait for the end of the process, and forget it."""
        if self._process is None:
            return
        self._process.wait()
        _running.pop(self._process.pid, None)

    def pause(self) -> None:
        """Let it stand still, as a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Remove its data: from the next start on it is another node, which joins the cluster."""
        if self.is_running:
            raise Unreachable(f"node {self.number} runs: stop it before its data is removed")
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        self._is_founder = False

    @property
    def is_ready(self) -> bool:
        """Whether it serves, by its own page."""
        return self.page("/readyz")[0] == 200

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages; status 0 if it cannot be reached."""
        connection = HTTPConnection(self.host, self.ports.http, timeout=_HTTP_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def log_tail(self, lines: int = _TAIL_LINES) -> str:
        """The last lines of its log."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    # -- files ------------------------------------------------------------------------------------

    @property
    def config(self) -> Path:
        """Its configuration."""
        return self._plan.directory / f"node-{self.number}.toml"

    def _new_identity(self) -> Identity:
        if self._is_founder:
            return founder(self._plan.cluster_id, self.number, self._plan.members)
        return joiner(self._plan.cluster_id)

    def _config_text(self) -> str:
        values: dict[str, str] = {
            "node.data": str(self.directory.absolute()),
            "node.roles": self.roles,
            "node.listen": f"tcp://{self.host}:{self.ports.clients}",
            "node.peers": self.peers,
            "node.http": f"{self.host}:{self.ports.http}",
            "cluster.metadata": ",".join(self._plan.metadata),
            **self._plan.settings,
        }
        return config_text(values)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)


def _environment() -> dict[str, str]:
    """That of this program, but for what would make each node another one, or all of them one."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TIDELOG_NODE__", "TIDELOG_CLUSTER__"))
    }


def config_text(values: Mapping[str, str]) -> str:
    """A configuration in TOML; a value of a list has commas."""
    sections: dict[str, list[str]] = {}
    for path, text in values.items():
        section, _, name = path.partition(".")
        key = KEYS.get(path)
        value: object = tuple(text.split(",")) if key is not None and key.is_list else text
        if key is not None and isinstance(key.default, int | float):
            shown = text
        else:
            shown = written(value)
        sections.setdefault(section, []).append(f"{name} = {shown}")
    return "\n".join(f"[{name}]\n" + "\n".join(lines) + "\n" for name, lines in sections.items())


# -- ports -----------------------------------------------------------------------------------------


def free_ports(host: str, others: Iterable[Ports] = ()) -> Ports:
    """Three ports of this machine that nobody listens at, and that are none of ``others``."""
    taken = {port for one in others for port in (one.clients, one.http, one.peers)}
    found: list[int] = []
    for _ in range(_PORT_TRIES):
        port = secrets.choice(_FREE_PORTS)
        if port not in taken and port not in found and is_free(host, port):
            found.append(port)
            if len(found) == 3:
                return Ports(*found)
    raise BadAddress(f"no free ports were found at {host} from {_FREE_PORTS[0]} on")


def is_free(host: str, port: int) -> bool:
    """Whether one can listen there now; True for a host that is not of this machine (yet)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRNOTAVAIL
    return True


class TemporaryPlace:
    """A directory that is given, or one that is made now and removed later."""

    def __init__(self, given: Path | None) -> None:
        self._made = None if given is not None else tempfile.mkdtemp(prefix="tidelog-cluster-")
        self.path = Path(self._made) if given is None and self._made else Path(given or ".")
        self.path.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """Remove it, if it was made here."""
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


# -- L1 --------------------------------------------------------------------------------------------


def _end_all() -> None:
    for node in list(_running.values()):
        node.kill()


atexit.register(_end_all)
