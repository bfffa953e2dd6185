"""What a configuration says about certificates and tokens, for each way into and out of a process.

No state.  Files are read now, so that a wrong one is told when the process starts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.net.security import ClientSecurity, ServerSecurity
from tidelog.runtime.config import Config, client_endpoints, peer_endpoints


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
