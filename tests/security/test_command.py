"""`tidelog serve` and the commands that connect to it, with TLS and tokens, as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import ended, run, spawned
from tests.security.material import NEXT_TOKEN, TOKEN, WRONG_TOKEN, pem
from tidelog.cli.failures import ExitCode

SERVER = ("--tls-cert", pem("server"), "--tls-key", pem("server.key"))


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text(f"# of the tests\n{TOKEN}\n{NEXT_TOKEN}\n")
    file.chmod(0o600)
    return file


@contextmanager
def node(data: Path, *options: str | Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """`tidelog serve` with TLS; yields its URL."""
    arguments = ("--listen", "tls://127.0.0.1:0", "--http", "none", *SERVER, *options)
    with spawned("serve", "-d", data, *arguments) as process:
        assert process.stdout is not None
        word, address = process.stdout.readline().decode().split()
        assert word == "ready"
        yield address.replace("tls://", "tidelog+tls://"), process


def test_commands_work_over_tls_with_certificate_and_token(tmp_path: Path, tokens: Path) -> None:
    options = (
        *("--tls-ca", pem("ca"), "--tls-cert", pem("client"), "--tls-key", pem("client.key")),
        *("--token-file", str(tokens)),
    )
    asking = ("--tls-client-ca", pem("ca"), "--token-file", tokens)
    with node(tmp_path / "log", *asking) as (url, process):
        run("append", "-d", url, *options, stdin=b"a\nb\n")
        assert run("tail", "-d", url, *options, "--from", "1").stdout_bytes == b"a\nb\n"
        run("stats", "-d", url, *options)
        process.terminate()
        _, errors = ended(process)
    assert TOKEN.encode() not in errors


def test_commands_take_everything_from_the_environment(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node(tmp_path / "log", "--token-file", tokens) as (url, _):
        monkeypatch.setenv("TIDELOG_DATA", url)
        monkeypatch.setenv("TIDELOG_TLS_CA", pem("ca"))
        monkeypatch.setenv("TIDELOG_TOKEN", NEXT_TOKEN)
        run("append", stdin=b"a\n")
        monkeypatch.setenv("TIDELOG_TOKEN", WRONG_TOKEN)
        refused = run("append", stdin=b"b\n", code=ExitCode.ERROR)
        assert "the token is not known here" in refused.stderr
        assert WRONG_TOKEN not in refused.stderr


def test_a_node_may_be_given_its_token_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_TOKEN", TOKEN)
    with node(tmp_path / "log") as (url, process):
        run("append", "-d", url, "--tls-ca", pem("ca"), stdin=b"a\n")
        monkeypatch.delenv("TIDELOG_TOKEN")
        run("append", "-d", url, "--tls-ca", pem("ca"), stdin=b"a\n", code=ExitCode.ERROR)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert b"serve" in arguments
        assert TOKEN.encode() not in arguments


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--listen", "tls://127.0.0.1:0"), "needs a certificate"),
        (("--listen", "tcp://127.0.0.1:0", *SERVER), "without a tls:// address"),
        (("--listen", "tls://127.0.0.1:0", "--tls-cert", "missing.pem"), "cannot read missing.pem"),
        (("--token-file", "missing"), "cannot read missing"),
        (("--tls-client-ca", pem("ca")), "needs a certificate"),
    ],
)
def test_a_node_that_is_set_up_wrongly_does_not_start(
    tmp_path: Path, options: tuple[str, ...], what: str
) -> None:
    result = run("serve", "-d", tmp_path / "log", "--http", "none", *options, code=ExitCode.ERROR)
    assert what in result.stderr
    assert not (tmp_path / "log").exists()


def test_a_directory_needs_no_certificates(tmp_path: Path) -> None:
    arguments = ("append", "-d", str(tmp_path / "log"))
    environment = {"TIDELOG_TLS_CA": "missing.pem", "TIDELOG_TOKEN": "short"}
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        input=b"a\n",
        env=environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
