"""A network of namespaces in which any way between two nodes can be cut, silently, one by one.

Every node has a namespace with one interface on a bridge; this process is at the bridge's address.
A way is cut by a false entry in the sender's table of neighbours: its packets go to an address
that nobody has, and vanish.  That needs root and ``ip``, but neither filters nor queues.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from types import TracebackType
from typing import Final, Self

from tests.cluster.ways import Ways

NOBODY: Final = "02:00:00:00:00:fe"
COMMAND_SECONDS: Final = 20.0


class Network(Ways):
    """Namespaces for ``count`` nodes, numbered from 0; they are gone when it is closed."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._tag = f"{os.getpid():x}"[-6:]
        self._subnet = f"10.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
        self._cut: set[tuple[int, int]] = set()
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> tuple[str, ...]:
        """The address of every node."""
        return tuple(self.host(number) for number in range(self.count))

    def host(self, number: int) -> str:
        return f"{self._subnet}.{number + 1}"

    def namespace(self, number: int) -> str:
        return f"tl{self._tag}n{number}"

    def prefix(self, number: int) -> tuple[str, ...]:
        """What a command begins with that is to run at a node."""
        return ("ip", "netns", "exec", self.namespace(number))

    # -- cutting ------------------------------------------------------------------------------

    def cut(self, sender: int, target: int) -> None:
        """Lose all that ``sender`` sends to ``target`` from now on; answers get through."""
        self._cut.add((sender, target))
        where = ["dev", "eth0"]
        false = [
            "neigh",
            "replace",
            self.host(target),
            "lladdr",
            NOBODY,
            *where,
            "nud",
            "permanent",
        ]
        _ip("-n", self.namespace(sender), *false)

    def join(self, sender: int, target: int) -> None:
        """Let it through again."""
        self._cut.discard((sender, target))
        _ip("-n", self.namespace(sender), "neigh", "del", self.host(target), "dev", "eth0")

    def heal(self) -> None:
        for sender, target in sorted(self._cut):
            self.join(sender, target)

    # -- making -------------------------------------------------------------------------------

    def _make(self) -> None:
        bridge = self._bridge
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.254/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(self.count):
            namespace, outside = self.namespace(number), f"tl{self._tag}v{number}"
            _ip("netns", "add", namespace)
            _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", outside, "master", bridge, "up")
            _ip("-n", namespace, "addr", "add", f"{self.host(number)}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    @property
    def _bridge(self) -> str:
        return f"tl{self._tag}br"

    def close(self) -> None:
        """Harmless if something is not there."""
        for number in range(self.count):
            _ip("netns", "del", self.namespace(number), check=False)
            _ip("link", "del", f"tl{self._tag}v{number}", check=False)
        _ip("link", "del", self._bridge, check=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@cache
def is_possible() -> bool:
    """Whether this machine lets us make such a network."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        with Network(1):
            return True
    except subprocess.CalledProcessError:
        return False


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(
        ["ip", *arguments], check=check, capture_output=True, timeout=COMMAND_SECONDS, text=True
    )
