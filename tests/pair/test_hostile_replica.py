"""A replica that answers nonsense: the master stops, in time, and tells nobody that all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.datastore.stores import LONG, SMALL, Notices, commit, open_store, put
from tests.pair.forked import Nursery
from tests.pair.frame_proxy import FrameProxy
from tests.pair.pair import ReplicaProcess
from tidelog.core.session.messages import Ack, Answer, Error, ErrorCode, SessionBegun
from tidelog.core.session.output import CONTROL, Durability
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.errors import LogError, ReplicationFailed
from tidelog.formats.messages import Refused, encode_message
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import decode_header, encode_frame

IMPATIENT = replace(SMALL, ack_timeout_seconds=1.0, close_timeout_seconds=2.0)
LIMITS = {"message_max": 1 << 32, "attachment_max": 1 << 32}

Nonsense = Callable[[int], bytes]
"""The frame instead of the answer to the request of this number."""


def answered(answer: Answer) -> Nonsense:
    return lambda number: encode_frame(encode_session_message(answer), request=number)


def with_lengths(message: int, attachment: int) -> Nonsense:
    def frame(number: int) -> bytes:
        head = bytearray(encode_frame(b"", request=number, attachment_bytes=attachment))
        head[8:12] = message.to_bytes(4, "little")
        return bytes(head)

    return frame


NONSENSE: dict[str, Nonsense] = {
    "garbage": lambda _: b"garbage" * 100,
    "not a message": lambda number: encode_frame(b"\xff\xff", request=number),
    "an empty message": lambda number: encode_frame(b"", request=number),
    "another number": lambda number: encode_frame(
        encode_session_message(Ack()), request=number + 1
    ),
    "half a frame": lambda number: encode_frame(encode_session_message(Ack()), request=number)[:-1],
    "an endless message": with_lengths((1 << 32) - 1, 0),
    "an endless attachment": with_lengths(0, (1 << 32) - 1),
    "an unknown error": answered(Error(999, "?")),
    "a known error": answered(Error(ErrorCode.WRITE_FAILED, "no")),
    "another answer": answered(SessionBegun("secret")),
    "a farewell": lambda _: encode_frame(encode_message(Refused("Busy", "bye")), request=0),
    "nothing": lambda _: b"",
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def proxy(tmp_path: Path, nursery: Nursery) -> Iterator[FrameProxy]:
    """Between a master and a replica that is new and knows nobody."""
    replica = ReplicaProcess(nursery, tmp_path / "replica")
    with FrameProxy(replica.address) as between:
        yield between
    replica.stop()


def forge(proxy: FrameProxy, nonsense: Nonsense, lane: int) -> None:
    def forged(at: int, answer: Answer, frame: bytes) -> bytes:
        return nonsense(decode_header(frame, **LIMITS).request) if at == lane else frame

    proxy.forge = forged


@pytest.mark.parametrize("nonsense", [n for n in NONSENSE if n != "another answer"])
def test_a_session_does_not_begin_with_nonsense(
    tmp_path: Path, proxy: FrameProxy, nonsense: str
) -> None:
    store = Datastore(tmp_path / "master", replicas=proxy.endpoint, options=IMPATIENT)
    store.create_channel()
    forge(proxy, NONSENSE[nonsense], CONTROL)
    with pytest.raises(LogError):
        store.ready()
    store.close()


@pytest.mark.parametrize("nonsense", NONSENSE)
@pytest.mark.parametrize("lane", ["control", "log"])
def test_nonsense_in_a_session_stops_the_master_and_nothing_is_propagated(
    tmp_path: Path, proxy: FrameProxy, lane: str, nonsense: str
) -> None:
    notices = Notices()
    store, [channel] = open_store(
        tmp_path / "master", replicas=[proxy.endpoint], options=IMPATIENT, notices=notices
    )
    with store:
        store.switch_epoch(1)
        put(channel, b"key", b"value", 1 << 64)
        commit(store, 1)
        forge(proxy, NONSENSE[nonsense], CONTROL if lane == "control" else channel.number)
        with pytest.raises(ReplicationFailed):
            _commit_second(store, channel)
        with pytest.raises(ReplicationFailed):
            channel.begin_session()
    assert notices.epochs(Durability.PROPAGATED) == [1]


def _commit_second(store: Datastore, channel: LogChannel) -> None:
    put(channel, b"key", b"newer", 2 << 64)
    store.switch_epoch(3)
    store.wait_for(2, timeout=LONG)
