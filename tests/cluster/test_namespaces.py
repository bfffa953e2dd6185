"""The network of namespaces by itself: what is cut is lost, silently and in one direction."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.namespaces import Network, is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="needs root and ip netns")

PORT = 5000
LISTENER = """
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    print(receiver.recv(100).decode(), flush=True)
"""
SENDER = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
    sys.argv[3].encode(), (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(2) as made:
        yield made


class Listener:
    """Hears datagrams at a node."""

    def __init__(self, network: Network, number: int) -> None:
        command = [*network.prefix(number), sys.executable, "-c", LISTENER]
        command += [network.host(number), str(PORT)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.hear() == "ready"

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def send(network: Network, sender: int, target: int, text: str) -> None:
    command = [*network.prefix(sender), sys.executable, "-c", SENDER]
    subprocess.run([*command, network.host(target), str(PORT), text], check=True)


def test_a_way_that_is_cut_loses_what_is_sent_on_it_and_no_other_does(network: Network) -> None:
    listeners = [Listener(network, number) for number in range(2)]
    try:
        network.cut(0, 1)
        send(network, 0, 1, "lost")
        send(network, 1, 0, "other way")
        assert listeners[0].hear() == "other way"
        network.heal()
        send(network, 0, 1, "healed")
        assert listeners[1].hear() == "healed"
    finally:
        for listener in listeners:
            listener.close()
