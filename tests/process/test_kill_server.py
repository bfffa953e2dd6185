"""SIGKILL of a serving process again and again, under load from clients that come back.

Nothing that was acknowledged is lost, nothing is there twice, and every reader sees the same order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from time import monotonic

import pytest

import tidelog
from tests.process.server_process import ServerProcess
from tidelog.client.retries import Reconnect
from tidelog.interface.records import Receipt, Record

ROUNDS = 20
APPENDED_MIN = 60
"""Acknowledged appends before each kill, so that each one meets a working node."""
APPENDED_MORE = 150
STREAMS = 3
WAIT_SECONDS = 60.0
RECONNECT = Reconnect(pause_max=0.1)


class Load:
    """Threads that write or listen until they are told to stop, and what they were told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.stopping = threading.Event()
        self.places: dict[bytes, int] = {}
        """Value → GLSN of all that was acknowledged."""
        self.heard: list[list[Record]] = []
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._listeners: list[threading.Thread] = []

    def write(self, work: Callable[[Load, tidelog.RemoteLog], None]) -> None:
        thread = threading.Thread(target=self._run, args=(work,))
        self._threads.append(thread)
        thread.start()

    def listen(self) -> None:
        heard: list[Record] = []
        self.heard.append(heard)
        thread = threading.Thread(target=self._run, args=(lambda _, log: listen(log, heard),))
        self._listeners.append(thread)
        thread.start()

    def _run(self, work: Callable[[Load, tidelog.RemoteLog], None]) -> None:
        try:
            with tidelog.connect(self._url, timeout=WAIT_SECONDS, reconnect=RECONNECT) as log:
                work(self, log)
        except BaseException as error:
            self.failures.append(error)

    def tell(self, values: Sequence[bytes], receipt: Receipt) -> None:
        assert receipt.count == len(values)
        for offset, value in enumerate(values):
            assert value not in self.places, f"{value!r} was acknowledged twice"
            self.places[value] = receipt.glsn + offset

    def wait_for(self, acknowledged: int) -> None:
        deadline = monotonic() + WAIT_SECONDS
        pause = threading.Event()
        while len(self.places) < acknowledged:
            assert not self.failures, self.failures
            assert monotonic() < deadline, "nothing is acknowledged any more"
            pause.wait(0.001)

    def stop(self) -> None:
        self.stopping.set()
        self._join(self._threads)

    def stop_listening(self) -> None:
        self._join(self._listeners)

    def _join(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


LAST = b"the last one"


def listen(log: tidelog.RemoteLog, heard: list[Record]) -> None:
    for record in log.subscribe(1):
        heard.append(record)
        if record.value == LAST:
            return


def append_singly(load: Load, log: tidelog.RemoteLog) -> None:
    name = threading.get_ident()
    for number in count():
        if load.stopping.is_set():
            return
        value = b"single %d %d" % (name, number)
        load.tell([value], log.append(value))


def append_batches(load: Load, log: tidelog.RemoteLog) -> None:
    for number in count():
        if load.stopping.is_set():
            return
        values = [b"batch %d %d" % (number, i) for i in range(5)]
        load.tell(values, log.append_batch(values))


def put_over_streams(load: Load, log: tidelog.RemoteLog) -> None:
    """Each batch goes to several log streams; all of it or none is there."""
    for number in count():
        if load.stopping.is_set():
            return
        items = [(b"key %d" % i, b"put %d %d" % (number, i)) for i in range(8)]
        receipts = log.put_batch(items)
        assert sum(receipt.count for receipt in receipts) == len(items)
        for _, value in items:
            load.places[value] = 0  # Which receipt is whose, only the routing knows.


def append_through(load: Load, log: tidelog.RemoteLog) -> None:
    """Many under way at once, which have to keep their order."""
    [stream, *_] = log.streams
    for number in count():
        if load.stopping.is_set():
            return
        with log.appender() as appender:
            values = [b"through %d %d" % (number, i) for i in range(50)]
            futures = [(value, appender.append(value, stream=stream)) for value in values]
        for value, future in futures:
            load.tell([value], future.result(0))


def produce(load: Load, log: tidelog.RemoteLog) -> None:
    """A producer that numbers its appends itself, and sends each one twice."""
    for number in count(1):
        if load.stopping.is_set():
            return
        value = b"produced %d" % number
        first = log.append(value, producer="producer", sequence=number)
        again = log.append(value, producer="producer", sequence=number)
        assert again.duplicate
        assert again.glsn == first.glsn
        load.tell([value], first)


def check(load: Load, records: list[Record]) -> None:
    found = [record.value for record in records]
    assert len(set(found)) == len(found), "an entry is there twice"
    glsns = {record.value: record.glsn for record in records}
    lost = [value for value in load.places if value not in glsns]
    assert not lost, f"acknowledged, but lost: {lost[:5]}"
    moved = [value for value, glsn in load.places.items() if glsn and glsns[value] != glsn]
    assert not moved, f"not where their receipts said: {moved[:5]}"
    extra = glsns.keys() - load.places.keys() - {LAST}
    assert not extra, f"nobody was told of these: {sorted(extra)[:5]}"
    assert [record.glsn for record in records] == list(range(1, len(records) + 1))
    through = [record.value for record in records if record.value.startswith(b"through")]
    assert through == sorted(through, key=lambda v: tuple(map(int, v.split()[1:])))
    for heard in load.heard:
        assert heard == records, "a subscriber saw something else than the reader"


@pytest.mark.slow
def test_a_node_is_killed_twenty_times_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    chance = random.Random(11)
    with ServerProcess(tmp_path / "log", streams=STREAMS) as server:
        load = Load(server.url)
        for work in (
            append_singly,
            append_singly,
            append_batches,
            put_over_streams,
            append_through,
            produce,
        ):
            load.write(work)
        load.listen()
        load.listen()
        try:
            for _ in range(ROUNDS):
                appended = len(load.places) + APPENDED_MIN + chance.randrange(APPENDED_MORE)
                load.wait_for(appended)
                server.kill()
                server.start()
        finally:
            load.stop()
        assert not load.failures, load.failures
        with tidelog.connect(server.url) as log:
            log.append(LAST)
            load.stop_listening()
            assert not load.failures, load.failures
            check(load, list(log.read()))
