"""Files of certificates and keys: what is wrong with them is told at the start, with a remedy."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.security.material import PLAIN, TLS, client, pem, server
from tests.server.raw import socket_path
from tidelog.errors import BadOption, LogError
from tidelog.net.endpoint import parse_endpoint, parse_url
from tidelog.net.security import ClientSecurity, ServerSecurity

Contexts = Callable[[], ssl.SSLContext | None]


def nowhere(name: str = "missing.pem") -> str:
    return str(Path(pem("ca")).parent / name)


@pytest.mark.parametrize(
    ("security", "what"),
    [
        (ServerSecurity(cert=nowhere(), key=pem("server.key")), "cannot read .*missing.pem"),
        (ServerSecurity(cert=pem("server"), key=nowhere()), "cannot read .*missing.pem"),
        (ServerSecurity(cert=pem("server"), key=pem("client.key")), "is not the key of"),
        (ServerSecurity(cert=pem("server")), "no certificate and key in PEM"),
        (ServerSecurity(cert=pem("server.key"), key=pem("server.key")), "in PEM"),
        (ServerSecurity(cert=nowhere("make.sh"), key=pem("server.key")), "in PEM"),
        (ServerSecurity(cert=pem("server"), key=nowhere("make.sh")), "in PEM"),
        (ServerSecurity(cert=pem("server"), key=pem("encrypted.key")), "the key is encrypted"),
        (ServerSecurity(cert="/"), "cannot read /"),
        (ServerSecurity(cert="a\0b"), "cannot read"),
    ],
)
def test_a_server_tells_what_is_wrong_with_its_files(security: ServerSecurity, what: str) -> None:
    with pytest.raises(BadOption, match=what):
        security.ssl_context()


@pytest.mark.parametrize(
    ("path", "what"),
    [(nowhere(), "cannot read"), (nowhere("make.sh"), "no certificates of CAs"), ("/", "cannot")],
)
def test_a_ca_that_is_none_is_told(path: str, what: str) -> None:
    asking = ServerSecurity(cert=pem("server"), key=pem("server.key"), client_ca=path)
    for security in (asking, ClientSecurity(tls=True, ca=path)):
        with pytest.raises(BadOption, match=what):
            security.ssl_context()


def test_a_client_tells_what_is_wrong_with_its_files() -> None:
    with pytest.raises(BadOption, match="is not the key of"):
        ClientSecurity(tls=True, cert=pem("client"), key=pem("server.key")).ssl_context()
    with pytest.raises(BadOption, match="needs its certificate"):
        ClientSecurity(key=pem("client.key"))


def test_certificate_and_key_may_share_a_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text(Path(pem("server")).read_text() + Path(pem("server.key")).read_text())
    assert ServerSecurity(cert=str(both)).ssl_context() is not None


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_a_key_that_everybody_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    key = tmp_path / "key.pem"
    key.write_text(Path(pem("server.key")).read_text())
    key.chmod(mode)
    ServerSecurity(cert=pem("server"), key=str(key)).ssl_context()
    assert ("can be read by everybody" in caplog.text) == warned


def test_addresses_and_certificate_must_fit() -> None:
    with pytest.raises(BadOption, match="needs a certificate and its key"):
        ServerSecurity().context_for((PLAIN, TLS))
    with pytest.raises(BadOption, match="of no use without a tls:// address"):
        server().context_for((PLAIN,))
    with pytest.raises(BadOption, match="needs a certificate"):
        ServerSecurity(client_ca=pem("ca"))
    with pytest.raises(BadOption, match="needs a certificate"):
        ServerSecurity(key=pem("server.key"))
    assert ServerSecurity().context_for((PLAIN,)) is None
    assert server().context_for((PLAIN, TLS)) is not None


def test_contexts_check_certificates_and_names() -> None:
    context = client().for_endpoint(TLS).ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    asking = server(client_ca="ca").ssl_context()
    assert asking is not None
    assert asking.verify_mode is ssl.CERT_REQUIRED
    assert asking.minimum_version is ssl.TLSVersion.TLSv1_2
    plain = server().ssl_context()
    assert plain is not None
    assert plain.verify_mode is ssl.CERT_NONE


def test_the_address_decides_about_tls_unless_it_is_insisted_on(tmp_path: Path) -> None:
    assert ClientSecurity().for_endpoint(TLS).tls
    assert not ClientSecurity(ca=nowhere()).for_endpoint(PLAIN).tls
    assert ClientSecurity(ca=nowhere()).for_endpoint(PLAIN).ssl_context() is None
    for endpoint in (PLAIN, socket_path(tmp_path)):
        with pytest.raises(BadOption, match="is without TLS"):
            ClientSecurity(tls=True).for_endpoint(endpoint)


def test_the_environment_names_files() -> None:
    given = {
        "TIDELOG_TLS_CA": pem("ca"),
        "TIDELOG_TLS_CERT": pem("client"),
        "TIDELOG_TLS_KEY": pem("client.key"),
        "TIDELOG_TLS_SERVER_NAME": "localhost",
    }
    found = ClientSecurity.from_environment(given)
    assert found == client("client", server_name="localhost")
    assert ClientSecurity.from_environment({}) == ClientSecurity()


def test_addresses_with_tls_are_read_and_written() -> None:
    endpoint = parse_endpoint("tls://[::1]:7447")
    assert endpoint.tls
    assert str(endpoint) == "tls://[::1]:7447"
    url = parse_url("tidelog+tls://a:1,b:2/t%20t")
    assert [one.tls for one in url.endpoints] == [True, True]
    assert (str(url), url.topic) == ("tidelog+tls://a:1,b:2/t%20t", "t t")
    for text in ("tls:/h", "tls://", "tidelog+tls://", "tidelog+ssl://h/t"):
        with pytest.raises(LogError, match="write"):
            parse_url(text) if text.startswith("tidelog") else parse_endpoint(text)
