"""Files for doors that nobody would close with them are refused, not passed over."""

from __future__ import annotations

import pytest

from tests.security.material import pem
from tidelog.errors import BadOption
from tidelog.runtime.config_sources import load_config
from tidelog.runtime.process_security import ProcessSecurity, process_security

CERT = {"cert": pem("server"), "key": pem("server.key")}
TLS_CLIENTS = {"TIDELOG_NODE__LISTEN": "tls://127.0.0.1:7447"}
TLS_PEERS = {"TIDELOG_NODE__PEERS": "tls://127.0.0.1:7449"}


def made(node: dict[str, str], **security: str) -> ProcessSecurity:
    environment = {f"TIDELOG_SECURITY__{name.upper()}": value for name, value in security.items()}
    loaded = load_config(None, {"TIDELOG_NODE__DATA": "d", **node, **environment})
    return process_security(loaded.config)


@pytest.mark.parametrize(
    ("node", "security", "words"),
    [
        ({}, {"client_ca": pem("ca")}, "client_ca is of no use without .* node.listen"),
        (TLS_PEERS, CERT | {"client_ca": pem("ca")}, "client_ca is of no use"),
        ({}, {"peer_ca": pem("ca")}, "peer_ca is of no use without .* node.peers"),
        (TLS_CLIENTS, CERT | {"peer_ca": pem("ca")}, "peer_ca is of no use"),
        ({}, {"peer_cert": pem("server")}, "peer_cert is of no use"),
        ({}, CERT, "security.cert is of no use"),
    ],
)
def test_files_that_protect_nothing_are_refused(
    node: dict[str, str], security: dict[str, str], words: str
) -> None:
    with pytest.raises(BadOption, match=words):
        made(node, **security)


def test_files_that_protect_something_are_taken() -> None:
    assert made(TLS_CLIENTS, **CERT, client_ca=pem("ca")).clients.client_ca
    assert made(TLS_PEERS, **CERT, peer_ca=pem("ca")).peers.client_ca
    shared = {"TIDELOG_NODE__ROLES": "metadata", **TLS_PEERS}
    assert not made(shared, **CERT, client_ca=pem("ca")).clients.cert
