"""What a configuration says about certificates and tokens, for each way into and out of a process.

No state.  Files are read now, so that a wrong one is told when the process starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.errors import BadOption
from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.config import Config, Role, client_endpoints, peer_endpoints


@dataclass(frozen=True, slots=True)
class ProcessSecurity:
    """``clients``, ``peers``: who may come in; the others: how to show who one is."""

    clients: ServerSecurity
    peers: ServerSecurity
    to_peers: ClientSecurity
    to_nodes: ClientSecurity
    """To where other nodes listen for clients."""


def process_security(config: Config) -> ProcessSecurity:
    """Read all files; BadOption says what is wrong with one."""
    given = config.security
    _refuse_needless(config)
    has_tls = any(endpoint.tls for endpoint in client_endpoints(config))
    peers_have_tls = any(endpoint.tls for endpoint in peer_endpoints(config))
    peer_cert = given.peer_cert or given.cert
    peer_key = given.peer_key if given.peer_cert else given.key
    peer_tokens = given.peer_token_file or given.token_file
    return ProcessSecurity(
        clients=ServerSecurity.from_files(
            cert=given.cert if has_tls else "",
            key=given.key if has_tls else "",
            client_ca=given.client_ca if has_tls else "",
            token_file=given.token_file,
        ),
        peers=ServerSecurity.from_files(
            cert=peer_cert if peers_have_tls else "",
            key=peer_key if peers_have_tls else "",
            client_ca=given.peer_ca if peers_have_tls else "",
            token_file=peer_tokens,
        ),
        to_peers=ClientSecurity.from_files(
            ca=given.peer_ca or given.ca,
            cert=peer_cert if peers_have_tls else "",
            key=peer_key if peers_have_tls else "",
            token_file=peer_tokens,
        ),
        to_nodes=ClientSecurity.from_files(
            ca=given.ca,
            cert=given.cert if given.client_ca else "",
            key=given.key if given.client_ca else "",
            token_file=given.token_file,
        ),
    )


def _refuse_needless(config: Config) -> None:
    """BadOption if files are named that nobody would ever be asked for: the door that they were
    to close stands open."""
    given = config.security
    has_clients = Role.STORAGE in config.node.roles
    clients_have_tls = any(endpoint.tls for endpoint in client_endpoints(config))
    peers_have_tls = any(endpoint.tls for endpoint in peer_endpoints(config))
    if given.client_ca and has_clients and not clients_have_tls:
        raise BadOption("security.client_ca is of no use without a tls:// address in node.listen")
    if (given.peer_ca or given.peer_cert) and not peers_have_tls:
        name = "peer_ca" if given.peer_ca else "peer_cert"
        raise BadOption(f"security.{name} is of no use without a tls:// address in node.peers")
    if given.cert and not (has_clients and clients_have_tls) and not peers_have_tls:
        raise BadOption(
            "security.cert is of no use without a tls:// address in node.listen or node.peers"
        )
