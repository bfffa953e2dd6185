"""Options, addresses of replicas and write versions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.core.session.options import FlushAt
from tidelog.datastore.endpoints import ENVIRONMENT, find_replicas
from tidelog.datastore.options import DatastoreOptions, Sending
from tidelog.datastore.write_version import WriteVersion
from tidelog.errors import BadAddress, BadEntry, BadOption


def test_choices_may_be_written_as_words() -> None:
    options = DatastoreOptions(sending="immediate", flush_at="group commit")
    assert options.sending is Sending.IMMEDIATE
    assert options.for_master().flush_at is FlushAt.GROUP_COMMIT


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sending", lambda: DatastoreOptions(sending="sometimes")),
        ("flush_at", lambda: DatastoreOptions(flush_at="never")),
        ("ack_timeout_seconds", lambda: DatastoreOptions(ack_timeout_seconds=0)),
        ("ack_timeout_seconds", lambda: DatastoreOptions(ack_timeout_seconds=float("inf"))),
        ("connect_timeout_seconds", lambda: DatastoreOptions(connect_timeout_seconds=-1)),
        ("close_timeout_seconds", lambda: DatastoreOptions(close_timeout_seconds=float("nan"))),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_its_name(
    name: str, make: Callable[[], DatastoreOptions]
) -> None:
    with pytest.raises(BadOption, match=name):
        make()


def test_without_the_variable_a_datastore_stands_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    assert find_replicas(None) == ()
    monkeypatch.setenv(ENVIRONMENT, "")
    assert find_replicas(None) == ()


def test_the_variable_names_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "tcp://one:7001, tls://[::1]:7002,unix:///run/three")
    found = [str(endpoint) for endpoint in find_replicas(None)]
    assert found == ["tcp://one:7001", "tls://[::1]:7002", "unix:///run/three"]


def test_named_replicas_win_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "tcp://one:7001")
    assert find_replicas([]) == ()
    assert [str(endpoint) for endpoint in find_replicas("tcp://two:1")] == ["tcp://two:1"]


@pytest.mark.parametrize(
    "text",
    ["garbage", "tcp://", "tcp://one:99999", "http://one:1", ",", "tcp://one:1,,tcp://two:2"],
)
def test_garbage_in_the_variable_is_told_and_not_taken_for_no_replica(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT, text)
    with pytest.raises(BadAddress, match="tcp://host:port"):
        find_replicas(None)


def test_a_replica_named_twice_is_a_mistake() -> None:
    with pytest.raises(BadAddress, match="twice"):
        find_replicas(["tcp://one:1", "tcp://two:1", "tcp://one:1"])


def test_replicas_are_bounded() -> None:
    with pytest.raises(BadAddress, match="at most"):
        find_replicas([f"tcp://replica:{port}" for port in range(1, 100)])


def test_a_write_version_is_a_number_with_two_halves() -> None:
    version = WriteVersion(3, 7)
    assert version == 3 * 2**64 + 7
    assert (version.major, version.minor, str(version)) == (3, 7, "3.7")
    assert WriteVersion.of(int(version)) == version
    assert WriteVersion(3) < version < WriteVersion(4)


@pytest.mark.parametrize(("major", "minor"), [(-1, 0), (0, -1), (1 << 64, 0), (0, 1 << 64)])
def test_a_half_of_a_write_version_has_64_bits(major: int, minor: int) -> None:
    with pytest.raises(BadEntry):
        WriteVersion(major, minor)
