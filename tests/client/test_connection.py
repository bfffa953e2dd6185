"""What a client makes of its connection: lost, refused, silent, wrong, or cut in the middle."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

import tidelog
from tests.client.proxy import Proxy, wait_until
from tests.client.served import Node, node, url_of
from tests.embedded.logs import no_waiting
from tidelog.client.retries import Reconnect
from tidelog.errors import (
    BadAddress,
    BadFrame,
    BadOption,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    TopicExists,
    UnknownTopic,
    Unreachable,
    WrongLog,
)

FAST = Reconnect(pause_max=0.05)


@pytest.fixture
def proxy(served: Node) -> Proxy:
    """A way to the node that can be cut; its user closes it."""
    return Proxy(served.endpoints[0])


# -- connecting -----------------------------------------------------------------------------------


def test_nobody_there_is_told_after_the_deadline() -> None:
    with pytest.raises(Unreachable, match="nothing was sent"):
        tidelog.connect("tidelog://127.0.0.1:1/", timeout=0.1)


@pytest.mark.parametrize("url", ["http://host/", "tidelog://", "tidelog://host:99999/"])
def test_a_bad_url_is_told_at_once(url: str) -> None:
    with pytest.raises(BadAddress):
        tidelog.connect(url)


def test_hosts_are_tried_in_turn(served: Node) -> None:
    address = served.endpoints[0].removeprefix("tcp://")
    with tidelog.connect(f"tidelog://127.0.0.1:1,{address}/") as log:
        assert log.append(b"a").glsn == 1


def test_a_topic_that_is_missing_is_made_only_if_asked_for(served: Node) -> None:
    url = url_of(served.endpoints[0], "events")
    with pytest.raises(UnknownTopic, match="create=True"):
        tidelog.connect(url)
    with tidelog.connect(url, create=True, streams=3, versions="explicit") as log:
        assert (log.name, len(log.streams), log.versions) == ("events", 3, "explicit")
    with tidelog.connect(served.url, topic="events") as log:
        assert log.name == "events"
    with pytest.raises(BadOption):
        tidelog.connect(url, topic="other")


def test_only_the_log_that_was_asked_for_will_do(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        log_id = log.log_id
    with tidelog.connect(served.url, log_id=log_id) as log:
        assert log.append(b"a").glsn == 1
    with pytest.raises(WrongLog):
        tidelog.connect(served.url, log_id=bytes(16))


def test_another_log_at_the_same_address_is_noticed(tmp_path: Path) -> None:
    with node(tmp_path / "one") as first:
        log = tidelog.connect(first.url, reconnect=FAST)
        log.append(b"a")
    with log, node(tmp_path / "two", first.endpoints[0]):
        with pytest.raises(WrongLog):
            log.position()
        with pytest.raises(WrongLog):
            log.append(b"b")


def test_something_else_than_a_node_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" * 4)

        pool.submit(greet)
        with pytest.raises(BadFrame):
            tidelog.connect(f"tidelog://127.0.0.1:{server.getsockname()[1]}/", timeout=10)


# -- deadlines ------------------------------------------------------------------------------------


def test_an_append_that_was_never_sent_certainly_had_no_effect(tmp_path: Path) -> None:
    with node(tmp_path / "log") as first:
        log = tidelog.connect(first.url, reconnect=FAST)
        log.append(b"before")
    with log:
        with pytest.raises(Unreachable) as caught:
            log.append(b"lost", timeout=0.1)
        assert caught.value.definite
        with node(tmp_path / "log", first.endpoints[0]):
            log.append(b"after")
            assert [record.value for record in log.read()] == [b"before", b"after"]


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_an_append_without_an_answer_may_have_had_an_effect(proxy: Proxy, direction: str) -> None:
    with proxy, tidelog.connect(proxy.url, reconnect=FAST) as log:
        setattr(proxy, f"swallow_{direction}", True)
        with pytest.raises(DeadlineExceeded) as caught:
            log.append(b"a", timeout=0.1)
        assert not caught.value.definite
        proxy.swallow_requests = proxy.swallow_answers = False
        proxy.cut()
        log.append(b"b")
        expected = [b"b"] if direction == "requests" else [b"a", b"b"]
        assert [record.value for record in log.read()] == expected


def test_every_call_has_its_deadline(proxy: Proxy) -> None:
    with proxy, tidelog.connect(proxy.url, timeout=0.2) as log:
        proxy.swallow_answers = True
        with pytest.raises(DeadlineExceeded):
            log.get(b"k")
        with pytest.raises(DeadlineExceeded):
            log.trim(1, timeout=0.05)
        with pytest.raises(DeadlineExceeded):
            list(log.subscribe(1, timeout=0))
        proxy.swallow_answers = False
        assert log.append(b"a").glsn == 1


def test_a_negative_timeout_is_refused(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        with pytest.raises(BadOption):
            log.append(b"a", timeout=-1)
        with pytest.raises(BadOption):
            tidelog.connect(served.url, timeout=0)
        assert log.high_watermark == 0


# -- lost connections -----------------------------------------------------------------------------


def test_a_silent_node_is_given_up_and_found_again(proxy: Proxy) -> None:
    quick = Reconnect(pause_max=0.05, keep_alive=0.05, attempt=0.5)
    with proxy, ThreadPoolExecutor(1) as pool, tidelog.connect(proxy.url, reconnect=quick) as log:
        proxy.swallow_answers = True
        appended = pool.submit(log.append, b"a")
        wait_until(lambda: proxy.connections > 1, "the silent connection is given up")
        proxy.swallow_answers = False
        assert appended.result(30).glsn == 1
        assert [record.value for record in log.read()] == [b"a"]


def test_a_long_wait_is_no_silence(served: Node) -> None:
    quick = Reconnect(keep_alive=0.02)
    with (
        tidelog.connect(served.url, reconnect=quick) as log,
        tidelog.connect(served.url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(lambda: list(islice(log.subscribe(1), 1)))
        assert list(other.subscribe(1, timeout=0.2)) == []
        other.append(b"a")
        assert [record.value for record in waiting.result(30)] == [b"a"]


def test_cut_connections_lose_and_double_nothing(proxy: Proxy) -> None:
    stopping = threading.Event()
    with (
        proxy,
        tidelog.connect(proxy.url, reconnect=FAST) as log,
        tidelog.connect(proxy.url, reconnect=FAST) as reader,
        ThreadPoolExecutor(2) as pool,
    ):

        def write() -> list[bytes]:
            values: list[bytes] = []
            with log.appender(bytes_max=10_000) as appender:
                while not stopping.is_set():
                    values.append(b"%d" % len(values))
                    appender.append(values[-1])
            log.append(b"end")
            return [*values, b"end"]

        heard = pool.submit(lambda: take_until(reader, b"end"))
        written = pool.submit(write)
        for _ in range(10):
            cut_and_wait(proxy)
        stopping.set()
        values = written.result(60)
        assert heard.result(60) == values
        assert [record.value for record in log.read()] == values


def take_until(log: tidelog.RemoteLog, last: bytes) -> list[bytes]:
    found: list[bytes] = []
    for record in log.subscribe(1):
        found.append(record.value)
        if record.value == last:
            break
    return found


def cut_and_wait(proxy: Proxy) -> None:
    seen = proxy.connections
    proxy.cut()
    wait_until(lambda: proxy.connections > seen, "clients come back")


def test_a_node_that_stops_in_order_and_comes_back_is_hardly_noticed(tmp_path: Path) -> None:
    with node(tmp_path / "log") as first:
        endpoint = first.endpoints[0]
        log = tidelog.connect(first.url, reconnect=FAST)
        stopping = threading.Event()

        def write() -> list[bytes]:
            written: list[bytes] = []
            while not stopping.is_set() or len(written) < 10:
                written.append(b"%d" % len(written))
                log.append(written[-1])
            return written

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            running = first
            for _ in range(3):
                wait_for_more(log)
                running.stop()
                running = Node(tmp_path / "log", [endpoint])
            stopping.set()
            written = writing.result(30)
        with log:
            assert [record.value for record in log.read()] == written
        running.stop()


def wait_for_more(log: tidelog.RemoteLog) -> None:
    seen = log.high_watermark
    wait_until(lambda: log.high_watermark > seen, "appends go on")


def test_a_topic_of_another_shape_is_not_taken_for_a_lost_answer(proxy: Proxy) -> None:
    with (
        proxy,
        tidelog.connect(proxy.url, reconnect=FAST) as log,
        ThreadPoolExecutor(1) as pool,
    ):
        log.create_topic("there", streams=2)
        proxy.swallow_answers = True
        made = pool.submit(log.create_topic, "there", streams=3)
        proxy.wait_until_swallowed()
        proxy.swallow_answers = False
        proxy.cut()
        with pytest.raises(TopicExists):
            made.result(30)


# -- processes and signals ------------------------------------------------------------------------


def test_an_interrupted_call_leaves_the_client_usable(proxy: Proxy) -> None:
    with proxy, tidelog.connect(proxy.url) as log, ThreadPoolExecutor(1) as pool:
        proxy.swallow_answers = True

        def interrupt() -> None:
            proxy.wait_until_swallowed()
            os.kill(os.getpid(), signal.SIGINT)

        for call in (lambda: log.get(b"k"), lambda: log.append(b"a")):
            proxy.swallowed = 0
            done = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                call()
            done.result(30)
        proxy.swallow_answers = False
        assert log.append(b"b").glsn == 2


def test_after_a_fork_the_child_is_told_to_connect_again(served: Node) -> None:
    with tidelog.connect(served.url) as log:
        log.append(b"a")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                log.append(b"from the child")
            except LogClosed as error:
                code = 0 if "fork" in str(error) else 2
                log.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        log.append(b"b")
        assert [record.value for record in log.read()] == [b"a", b"b"]


def test_after_a_fork_the_child_does_not_wait_for_what_its_parent_appended(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy, tidelog.connect(proxy.url) as log:
        appender = log.appender()
        proxy.swallow_answers = True
        future = appender.append(b"a")
        proxy.wait_until_swallowed()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            signal.alarm(10)  # Ends a child that waits for ever.
            try:
                appender.flush()
            except LogClosed as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        proxy.swallow_answers = False
        proxy.cut()
        appender.flush()
        assert future.result(0).glsn == 1


def test_an_appender_is_not_waited_for_in_a_callback_of_its_own_receipts(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy, tidelog.connect(proxy.url) as log:
        appender = log.appender()
        told: list[BaseException | None] = []

        def leave(_: object, error: BaseException | None = None) -> None:
            try:
                with no_waiting(), appender:
                    if error is not None:
                        raise error
            except (BadOption, KeyError) as raised:
                told.append(raised)

        def flush(_: object) -> None:
            try:
                with no_waiting():
                    appender.flush()
            except BadOption as raised:
                told.append(raised)

        proxy.swallow_answers = True
        future = appender.append(b"a")
        for callback in (flush, leave, partial(leave, error=KeyError("a mistake"))):
            future.add_done_callback(callback)
        proxy.wait_until_swallowed()
        proxy.swallow_answers = False
        proxy.cut()
        appender.flush()
        assert [type(error) for error in told] == [BadOption, BadOption, KeyError]
        assert appender.append(b"b").result(30).glsn == 2


def test_a_client_that_was_closed_still_tells_of_its_appenders_failures(served: Node) -> None:
    with Proxy(served.endpoints[0]) as proxy:
        log = tidelog.connect(proxy.url)
        appender = log.appender()
        proxy.swallow_answers = True
        future = appender.append(b"a")
        proxy.wait_until_swallowed()
        served.stop()
        log.close()
        assert future.exception(0) is not None
        with pytest.raises(ConnectionLost, match="closed"):
            appender.flush()
        appender.flush()


def test_a_blocking_call_in_a_callback_is_refused_before_it_waits_for_itself(served: Node) -> None:
    with tidelog.connect(served.url) as log, log.appender() as appender:
        told: list[BaseException] = []
        done = threading.Event()

        def on_done(_: object) -> None:
            for call in (lambda: log.append(b"b"), log.position, lambda: appender.append(b"c")):
                try:
                    with no_waiting():
                        call()
                except (BadOption, AssertionError) as error:
                    told.append(error)
            done.set()

        appender.append(b"a").add_done_callback(on_done)
        assert done.wait(30)
        assert [type(error) for error in told] == [BadOption] * 3
        assert log.append(b"d").glsn == 2


def test_a_program_that_forgets_to_close_ends_quietly(served: Node) -> None:
    code = f"import tidelog; log = tidelog.connect({served.url!r}); log.append(b'a')"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
