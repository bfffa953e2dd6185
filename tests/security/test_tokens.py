"""Tokens: who is let in with which, and that nobody sees them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

import tidelog
from tests.security.conftest import Run
from tests.security.material import (
    NEXT_TOKEN,
    PLAIN,
    TLS,
    TOKEN,
    WRONG_TOKEN,
    client,
    connect,
    server,
    url_of,
)
from tests.server.raw import Served, serving, socket_path, until
from tidelog.client.retries import Reconnect
from tidelog.errors import BadOption, ConnectionLost, Unauthorized
from tidelog.formats.messages import Describe, Hello, Refused, encode_message
from tidelog.net import security as security_module
from tidelog.net.endpoint import Endpoint, TcpEndpoint, UnixEndpoint
from tidelog.net.security import ClientSecurity, ServerSecurity, read_tokens
from tidelog.server.metrics import render_metrics

BOTH = ServerSecurity(tokens=frozenset((TOKEN, NEXT_TOKEN)))


def endpoint_of(kind: str, directory: Path) -> tuple[Endpoint, ServerSecurity]:
    tokens = (TOKEN, NEXT_TOKEN)
    match kind:
        case "tls":
            return TLS, server(tokens=tokens)
        case "unix":
            return socket_path(directory), BOTH
        case _:
            return PLAIN, BOTH


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_each_known_token_opens_the_door_and_no_other(
    run_in_loop: Run, tmp_path: Path, kind: str
) -> None:
    endpoint, security = endpoint_of(kind, tmp_path)

    async def main() -> None:
        async with serving(endpoints=[endpoint], security=security) as served:
            for token in (TOKEN, NEXT_TOKEN):
                async with await connect(served, client(token=token)) as log:
                    await log.append(b"works")
            with pytest.raises(Unauthorized, match="the token is not known here"):
                await connect(served, client(token=WRONG_TOKEN), timeout=600)
            with pytest.raises(Unauthorized, match="a token is needed here"):
                await connect(served, client(), timeout=600)
            assert served.node.parts.counters.refused["Unauthorized"] == 2

    run_in_loop(main())


def test_a_node_without_tokens_takes_any(run_in_loop: Run) -> None:
    async def main() -> None:
        async with (
            serving(endpoints=[PLAIN]) as served,
            await connect(served, ClientSecurity(token=TOKEN)) as log,
        ):
            await log.append(b"works")

    run_in_loop(main())


def test_a_refused_hello_gets_request_number_0_and_nothing_is_done_after_it(
    run_in_loop: Run,
) -> None:
    async def main() -> None:
        async with serving(endpoints=[PLAIN], security=BOTH) as served:
            raw = await served.client().connect()
            raw.send(Hello("test", token=WRONG_TOKEN))
            raw.send(Describe("default"))
            header, answer, _ = await raw.receive_frame()
            assert header.request == 0
            assert isinstance(answer, Refused)
            assert answer.error == "Unauthorized"
            with pytest.raises(ConnectionLost):
                await raw.receive_frame()
            await raw.close()
            assert "Describe" not in served.node.parts.counters.requests
            metrics = render_metrics(served.node.parts).decode()
            assert 'tidelog_refused_total{error="Unauthorized"} 1.0' in metrics

    run_in_loop(main())


def test_a_token_that_is_no_longer_known_is_refused_at_the_next_connection(
    run_in_loop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(endpoints=[PLAIN], security=BOTH) as served:
            log = await tidelog.connect_async(
                url_of(served.endpoints[0]),
                security=ClientSecurity(token=TOKEN),
                reconnect=Reconnect(pause_first=0.001),
            )
            await log.append(b"works")
            served.node.parts.security = ServerSecurity(tokens=frozenset((NEXT_TOKEN,)))
            await drop_connections(served)
            with pytest.raises(Unauthorized):
                await log.position()
            await log.close()

    run_in_loop(main())


async def drop_connections(served: Served) -> None:
    for session in list(served.node._reception._sessions):
        session.connection.abort()
    await until(lambda: not served.node._reception._sessions, "all are gone")


# --- nobody sees them ----------------------------------------------------------------------------


def test_a_token_is_in_no_text_that_an_object_shows() -> None:
    shown = [
        ServerSecurity(tokens=frozenset((TOKEN,))),
        ClientSecurity(token=TOKEN),
        Hello("client", token=TOKEN),
    ]
    for one in shown:
        assert TOKEN not in repr(one)
        assert TOKEN not in str(one)
    assert TOKEN.encode() in encode_message(Hello("client", token=TOKEN))


def test_a_token_is_in_no_log_line_and_no_error(
    run_in_loop: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with serving(endpoints=[PLAIN], security=BOTH) as served:
            with pytest.raises(Unauthorized) as caught:
                await connect(served, ClientSecurity(token=WRONG_TOKEN))
            assert WRONG_TOKEN not in str(caught.value)
            async with await connect(served, ClientSecurity(token=TOKEN)) as log:
                await log.append(b"works")

    run_in_loop(main())
    assert "Unauthorized" in caplog.text or "the token is not known here" in caplog.text
    for token in (TOKEN, NEXT_TOKEN, WRONG_TOKEN):
        assert token not in caplog.text


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_token_is_compared_with_every_known_one_wherever_it_is_found(
    monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(security_module, "compare_digest", compare)
    known = ServerSecurity(tokens=frozenset((TOKEN, NEXT_TOKEN, WRONG_TOKEN)))
    assert known.admits(sorted(known.tokens)[place])
    assert len(compared) == 3
    assert len({len(value) for pair in compared for value in pair}) == 1
    assert not known.admits("")
    assert not known.admits("ä\ud800" * 100)
    assert len(compared) == 9


# --- where they come from ------------------------------------------------------------------------


def test_a_file_has_one_token_in_each_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# of the writers\n  {TOKEN}  \n\n# of the readers\n{NEXT_TOKEN}\n")
    assert read_tokens(str(file)) == [TOKEN, NEXT_TOKEN]
    assert ServerSecurity.from_files(token_file=str(file)).tokens == {TOKEN, NEXT_TOKEN}
    assert ClientSecurity.from_files(token_file=str(file)).token == TOKEN


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"# nothing\n\n", "has no token in it"),
        (b"short\n", "has 5 characters"),
        (b"x" * 2000, "has 2000 characters"),
        (b"two words are no good token\n", "signs other than"),
        ("schlüssel-mit-umlauten".encode(), "signs other than"),
        (b"\xff\xfe" * 20, "is no file of tokens"),
        (b"x" * (2 << 20), "has more than"),
    ],
    ids=["empty", "short", "long", "space", "umlaut", "bytes", "large"],
)
def test_a_file_of_tokens_that_is_not_good_is_told_at_once_without_its_content(
    tmp_path: Path, content: bytes, what: str
) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    with pytest.raises(BadOption, match=what) as caught:
        ServerSecurity.from_files(token_file=str(file))
    text = content.decode(errors="replace").strip()
    assert text.startswith("#") or text not in str(caught.value)


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False), (0o640, False)])
def test_a_file_of_tokens_that_everybody_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    file.chmod(mode)
    read_tokens(str(file))
    assert ("can be read by everybody" in caplog.text) == warned
    assert TOKEN not in caplog.text


def test_the_environment_gives_a_token_to_clients_and_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDELOG_TOKEN", TOKEN)
    assert ClientSecurity.from_environment().token == TOKEN
    assert ServerSecurity.from_files().tokens == {TOKEN}
    file = tmp_path / "tokens"
    file.write_text(NEXT_TOKEN)
    monkeypatch.setenv("TIDELOG_TOKEN_FILE", str(file))
    assert ClientSecurity.from_environment().token == NEXT_TOKEN
    assert ServerSecurity.from_files(token_file=str(file)).tokens == {NEXT_TOKEN}


@pytest.mark.parametrize("name", ["TIDELOG_TOKEN", "TIDELOG_TOKEN_FILE"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_secret_of_the_environment_is_not_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    for read in (ClientSecurity.from_environment, ServerSecurity.from_files):
        with pytest.raises(BadOption, match=f"{name} is set, but empty"):
            read()
    file = tmp_path / "tokens"
    file.write_text(TOKEN)
    assert ServerSecurity.from_files(token_file=str(file)).tokens == {TOKEN}


def test_a_client_takes_its_token_from_the_environment(
    run_in_loop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with serving(endpoints=[PLAIN], security=BOTH) as served:
            url = url_of(served.endpoints[0])
            with pytest.raises(Unauthorized):
                await tidelog.connect_async(url)
            monkeypatch.setitem(os.environ, "TIDELOG_TOKEN", TOKEN)
            async with await tidelog.connect_async(url) as log:
                await log.append(b"works")

    run_in_loop(main())


@pytest.mark.parametrize(
    ("endpoint", "warned"),
    [
        (TcpEndpoint("10.1.2.3", 1), True),
        (TcpEndpoint("10.1.2.3", 1, tls=True), False),
        (TcpEndpoint("127.0.0.1", 1), False),
        (TcpEndpoint("localhost", 1), False),
    ],
)
def test_tokens_that_travel_in_plain_text_are_warned_of(
    caplog: pytest.LogCaptureFixture, endpoint: TcpEndpoint, warned: bool
) -> None:
    ClientSecurity(token=TOKEN).for_endpoint(endpoint)
    assert ("in plain text" in caplog.text) == warned
    caplog.clear()
    security = server(tokens=(TOKEN,)) if endpoint.tls else BOTH
    security.context_for((endpoint,))
    assert ("in plain text" in caplog.text) == warned


@pytest.mark.parametrize(
    ("endpoint", "security", "warned"),
    [
        (TcpEndpoint("10.0.0.1", 1), ServerSecurity(), True),
        (TcpEndpoint("10.0.0.1", 1, tls=True), server(), True),
        (TcpEndpoint("10.0.0.1", 1, tls=True), server(client_ca="ca"), False),
        (TcpEndpoint("10.0.0.1", 1, tls=True), server(tokens=(TOKEN,)), False),
        (TcpEndpoint("::1", 1), ServerSecurity(), False),
        (UnixEndpoint("/run/socket"), ServerSecurity(), False),
    ],
)
def test_a_door_that_stands_open_to_other_machines_is_warned_of(
    caplog: pytest.LogCaptureFixture, endpoint: Endpoint, security: ServerSecurity, warned: bool
) -> None:
    security.context_for((endpoint,))
    assert ("may do everything" in caplog.text) == warned


def test_certificates_guard_no_plain_door_beside_the_one_with_tls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, guarded = TcpEndpoint("10.0.0.1", 1), TcpEndpoint("10.0.0.1", 2, tls=True)
    server(client_ca="ca").context_for((guarded, plain))
    assert f"whoever reaches {plain} may do everything" in caplog.text
    assert str(guarded) not in caplog.text
