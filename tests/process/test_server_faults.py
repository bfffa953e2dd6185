"""SIGKILL of a serving process in the middle of each call, before and after it took effect.

Whatever the moment, the call ends as if nothing had happened once the node is back: what had taken
effect is not done again, what had not is done now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.client.proxy import Proxy, wait_until
from tests.process.server_process import ServerProcess
from tidelog import RemoteLog
from tidelog.client.retries import Reconnect
from tidelog.errors import ConnectionLost
from tidelog.formats.batch import encode_values
from tidelog.interface.appends import Part

pytestmark = pytest.mark.slow

RECONNECT = Reconnect(pause_max=0.05)


@dataclass(frozen=True)
class Case:
    """A call, and what is true of the log once it has taken effect, however often it was sent."""

    call: Callable[[RemoteLog], Any]
    done: Callable[[RemoteLog], bool]
    result: Callable[[Any], bool]


def values(log: RemoteLog) -> list[bytes]:
    return [record.value for record in log.read()]


def part(value: bytes) -> Part:
    return Part(1, encode_values([value], timestamp_us=1))


BEFORE = [b"0", b"1", b"2", b"3"]
CASES = {
    "append": Case(
        lambda log: log.append(b"x"),
        lambda log: values(log) == [*BEFORE, b"x"],
        lambda receipt: (receipt.glsn, receipt.duplicate) == (5, False),
    ),
    "append_batch": Case(
        lambda log: log.append_batch([b"x", b"y"]),
        lambda log: values(log) == [*BEFORE, b"x", b"y"],
        lambda receipt: (receipt.glsn, receipt.count) == (5, 2),
    ),
    "numbered": Case(
        lambda log: log.append(b"x", producer="p", sequence=1),
        lambda log: values(log) == [*BEFORE, b"x"],
        lambda receipt: receipt.glsn == 5,
    ),
    "put_batch": Case(
        lambda log: log.put_batch([(b"k%d" % i, b"%d" % i) for i in range(20)]),
        lambda log: sorted(values(log)[4:]) == sorted(b"%d" % i for i in range(20)),
        lambda receipts: sum(receipt.count for receipt in receipts) == 20,
    ),
    "read": Case(
        lambda log: list(log.read(2, 4)),
        lambda log: True,
        lambda records: [record.value for record in records] == BEFORE[1:3],
    ),
    "subscribe": Case(
        lambda log: list(islice(log.subscribe(1), 4)),
        lambda log: True,
        lambda records: [record.value for record in records] == BEFORE,
    ),
    "get": Case(
        lambda log: log.get(b"none"),
        lambda log: True,
        lambda record: record is None,
    ),
    "trim": Case(
        lambda log: log.trim(3),
        lambda log: log.first_available == 3,
        lambda first: first == 3,
    ),
    "create_topic": Case(
        lambda log: len(log.create_topic("made", streams=2).streams),
        lambda log: "made" in log.topics(),
        lambda streams: streams == 2,
    ),
    "publish": Case(
        lambda log: log.publish("writer", 1, [1]),
        lambda log: values(log) == [*BEFORE, b"staged"],
        lambda published: published.entries == 1 or published.duplicate,
    ),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "log", streams=2) as running:
        with tidelog.connect(running.url) as log:
            for value in BEFORE:
                log.append(value)
            assert log.stage([part(b"staged")]) == 1
        yield running


def run_through(
    server: ServerProcess, call: Callable[[RemoteLog], Any], *, answered: Callable[[], bool] | None
) -> Any:
    """Kill the node while ``call`` is under way: unheard, or ``answered`` but for the answer."""
    with (
        Proxy(server.endpoint) as proxy,
        ThreadPoolExecutor(1) as pool,
        tidelog.connect(proxy.url, reconnect=RECONNECT) as log,
    ):
        proxy.swallow_requests = answered is None
        proxy.swallow_answers = answered is not None
        running = pool.submit(call, log)
        proxy.wait_until_swallowed()
        if answered is not None:
            wait_until(answered, "the call takes effect")
        server.kill()
        proxy.swallow_requests = proxy.swallow_answers = False
        server.start()
        return running.result(30)


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_the_node_never_saw_is_made_once_it_is_back(
    server: ServerProcess, name: str
) -> None:
    case = CASES[name]
    assert case.result(run_through(server, case.call, answered=None))
    with tidelog.connect(server.url) as log:
        assert case.done(log)


@pytest.mark.parametrize("name", CASES)
def test_a_call_that_had_taken_effect_is_not_made_twice(server: ServerProcess, name: str) -> None:
    case = CASES[name]
    with tidelog.connect(server.url) as watching:
        result = run_through(server, case.call, answered=lambda: case.done(watching))
        assert case.result(result)
        assert case.done(watching)


@pytest.mark.parametrize("arrived", [False, True])
def test_streams_are_never_added_twice_so_a_lost_answer_is_told(
    server: ServerProcess, arrived: bool
) -> None:
    with tidelog.connect(server.url) as watching:
        answered = (lambda: len(watching.streams) == 3) if arrived else None
        with pytest.raises(ConnectionLost) as caught:
            run_through(server, lambda log: log.add_streams("default", 1), answered=answered)
        assert not caught.value.definite
        assert len(watching.streams) == (3 if arrived else 2)
