"""Peers that are slow, silent, greedy or strangers: all others are served."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from tests.client.proxy import wait_until
from tests.replica_service.local_replica import LocalReplica
from tests.replica_service.raw_master import Connection, RawMaster
from tests.replica_service.replica_process import ReplicaProcess
from tests.security.material import TOKEN, WRONG_TOKEN
from tidelog.core.session.messages import Ack, BlobWrite, LogChannelFlush
from tidelog.errors import ConnectionLost
from tidelog.formats.messages import Hello, Refused, decode_answer, encode_message
from tidelog.formats.session_messages import encode_session_message
from tidelog.formats.wire import encode_frame
from tidelog.limits import ATTACHMENT_BYTES_MAX, HELLO_BYTES_MAX, KIB, MIB
from tidelog.net.connection import Patience
from tidelog.net.security import ServerSecurity
from tidelog.replica_service.service import ServiceOptions

IMPATIENT = ServiceOptions(patience=Patience(hello=0.2, frame=0.2, write=0.2, close=0.2))


def last_words(connection: Connection) -> str:
    """The name of the error with which a connection is turned away."""
    answer = decode_answer(connection.receive())
    assert isinstance(answer, Refused)
    assert connection.is_hung_up
    return answer.error


def is_served(replica: LocalReplica) -> bool:
    with RawMaster(replica) as master:
        return isinstance(master.write(0, replica.epoch + 1, b"a"), Ack)


@pytest.mark.parametrize("greet", [False, True])
def test_whoever_asks_for_nothing_in_time_is_turned_away(greet: bool) -> None:
    """Before and after the hello: nobody holds a connection without a purpose."""
    with LocalReplica(options=IMPATIENT) as replica:
        with Connection(replica.address, greet=greet) as connection:
            connection.receive()
            assert connection.is_hung_up
        assert is_served(replica)


def test_a_master_with_a_session_may_be_silent() -> None:
    with LocalReplica(options=IMPATIENT) as replica, RawMaster(replica) as master:
        master.lane()
        with Connection(replica.address, greet=False) as other:
            other.receive()  # Its deadline has passed, and with it those of the master.
        assert isinstance(master.write(0, 1, b"a"), Ack)
        assert isinstance(master.commit(1), Ack)


def test_a_frame_that_never_ends_breaks_its_connection_alone() -> None:
    with LocalReplica(options=IMPATIENT) as replica:
        with RawMaster(replica) as master:
            frame = encode_frame(
                encode_session_message(BlobWrite(1, 0, MIB)), request=2, attachment_bytes=MIB
            )
            master.lane().send_bytes(frame + b"only this")
            wait_until(lambda: replica.state == "broken", "the deadline")
            master.finish()
        assert is_served(replica)


@pytest.mark.parametrize("greet", [False, True])
@pytest.mark.parametrize(
    ("message", "attached"), [(HELLO_BYTES_MAX + 1, 0), (10, 1), (0, 2**32 - 1)]
)
def test_before_it_is_a_log_channel_a_connection_cannot_send_much(
    greet: bool, message: int, attached: int
) -> None:
    with LocalReplica() as replica:
        with Connection(replica.address, greet=greet) as connection:
            frame = encode_frame(b"x" * message, request=1, attachment_bytes=attached)
            connection.send_bytes(frame)
            connection.receive()
            assert connection.is_hung_up
        assert is_served(replica)


def test_no_more_connections_are_taken_than_there_may_be() -> None:
    options = ServiceOptions(connections_max=3)
    with LocalReplica(options=options) as replica, RawMaster(replica) as master:
        master.lane(0)
        master.lane(1)
        with Connection(replica.address, greet=False) as fourth:
            assert last_words(fourth) == "Busy"
        assert isinstance(master.write(0, 1, b"a"), Ack)


def test_large_frames_share_their_room_and_all_get_through() -> None:
    """Eight channels with 1 MiB each, and room for two of them."""
    options = ServiceOptions(in_flight_bytes_max=2 * MIB + 64 * KIB)
    part = b"x" * MIB
    with LocalReplica(options=options) as replica, RawMaster(replica, channels=8) as master:
        lanes = [master.lane(channel) for channel in range(8)]
        for number, lane in enumerate(lanes):
            head = encode_frame(
                encode_session_message(BlobWrite(number, 0, MIB)),
                request=2,
                attachment_bytes=MIB,
            )
            lane.send_bytes(head + part[:KIB])
            lane._numbers = 2
        wait_until(lambda: replica.service._room.held > 2 * MIB, "two have room")
        for number in (0, 1):
            lanes[number].send_bytes(part[KIB:])
            lanes[number].ack_now()
        for number in range(2, 8):
            lanes[number].send_bytes(part[KIB:])
        for number in range(2, 8):
            lanes[number].ack_now()
        assert replica.service._room.held == 0


def test_a_master_that_vanishes_in_the_middle_of_a_frame_gives_its_room_back() -> None:
    options = ServiceOptions(in_flight_bytes_max=MIB)
    with LocalReplica(options=options) as replica:
        with RawMaster(replica) as master:
            head = encode_frame(
                encode_session_message(BlobWrite(1, 0, MIB)), request=2, attachment_bytes=MIB
            )
            master.lane(0).send_bytes(head + b"x")
            wait_until(lambda: replica.service._room.held > 0, "it has room")
            master.lane(1).send_bytes(head + b"x")
        wait_until(lambda: replica.service._room.held == 0, "it was given back")
        with RawMaster(replica) as master:
            master.blob(0, 1, b"x" * MIB)


def test_a_peer_that_reads_no_answers_is_given_up(tmp_path: Path) -> None:
    endpoint = f"unix://{tmp_path / 'socket'}"  # Its buffers are small.
    with LocalReplica(options=IMPATIENT, endpoint=endpoint) as replica:
        with RawMaster(replica) as master:
            lane = master.lane()
            flush = encode_session_message(LogChannelFlush())
            frames = b"".join(encode_frame(flush, request=n) for n in range(2, 40_000))
            with suppress(OSError):
                lane.send_bytes(frames)
            wait_until(lambda: replica.state == "broken", "it is given up")
            master.finish()
        assert is_served(replica)


def test_a_token_is_asked_for() -> None:
    options = ServiceOptions(security=ServerSecurity(tokens=frozenset({TOKEN})))
    with LocalReplica(options=options) as replica:
        for token in ("", WRONG_TOKEN):
            with Connection(replica.address, greet=False) as stranger:
                hello = encode_message(Hello("stranger", token=token))
                stranger.send_bytes(encode_frame(hello, request=0))
                assert last_words(stranger) == "Unauthorized"
        with RawMaster(replica, token=TOKEN) as master:
            assert isinstance(master.write(0, 1, b"a"), Ack)


def test_a_master_that_looks_for_another_log_is_told_so() -> None:
    with LocalReplica() as replica, RawMaster(replica) as master:
        with Connection(replica.address, greet=False) as lost:
            hello = encode_message(Hello("lost", bytes(16)))
            lost.send_bytes(encode_frame(hello, request=0))
            assert last_words(lost) == "WrongLog"
        with Connection(replica.address, greet=False) as found:
            hello = encode_message(Hello("found", bytes.fromhex(master.configuration)))
            found.send_bytes(encode_frame(hello, request=0))
            found.receive()


def test_memory_stays_bounded_whatever_is_announced(tmp_path: Path) -> None:
    """Twenty log channels announce the largest frames there are, and send a byte of each."""
    with ReplicaProcess(tmp_path / "data") as replica, RawMaster(replica, channels=21) as master:
        before = replica.peak_bytes
        head = encode_frame(
            encode_session_message(BlobWrite(1, 0, ATTACHMENT_BYTES_MAX)),
            request=2,
            attachment_bytes=ATTACHMENT_BYTES_MAX,
        )
        for channel in range(20):
            master.lane(channel).send_bytes(head + b"x")
        assert isinstance(master.write(20, 1, b"served"), Ack)
        assert isinstance(master.commit(1), Ack)
        assert replica.peak_bytes - before < 64 * MIB


def test_a_node_client_that_comes_by_mistake_is_told_something() -> None:
    from tidelog.formats.messages import Ping

    with LocalReplica() as replica, Connection(replica.address) as client:
        client.send_bytes(encode_frame(encode_message(Ping()), request=1))
        client.receive()
        assert client.is_hung_up
        with pytest.raises(ConnectionLost):
            client.receive()
