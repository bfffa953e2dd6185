"""Who may talk to whom: certificates for TLS, and tokens.

Everything is read and checked when a process starts, so that a wrong file is told then and not by
the first connection.

Z1  a token is compared with every known one, in a time that tells nothing about any of them
Z2  a token is never part of a message, of what ``repr`` shows, or of a process's arguments
Z3  a client that asked for TLS never goes on without it
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from stat import S_IRWXO
from typing import Final, NoReturn

from tidelog.errors import BadOption, Unauthorized
from tidelog.limits import MIB, TOKEN_CHARS_MAX, TOKEN_FILE_BYTES_MAX
from tidelog.net.endpoint import Endpoint, TcpEndpoint

TOKEN_CHARS_MIN: Final = 16
"""Shorter ones can be guessed."""

_logger: Final = logging.getLogger(__name__)
_MAKE_ONE: Final = "make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """What a process that listens asks of those who connect."""

    cert: str = ""
    """File with its certificate and those between it and the CA, in PEM."""
    key: str = ""
    """File with the certificate's key; empty: it is in ``cert`` as well."""
    client_ca: str = ""
    """File with the CAs whose certificates clients must show; empty: they need none."""
    tokens: frozenset[str] = field(default=frozenset(), repr=False)
    """Of which clients must show one; empty: they need none."""

    def __post_init__(self) -> None:
        if not self.cert and (self.key or self.client_ca):
            raise BadOption("a key or a CA for clients needs a certificate: give that, too")
        for token in self.tokens:
            _check_token(token, "a token")

    @classmethod
    def from_files(
        cls, *, cert: str = "", key: str = "", client_ca: str = "", token_file: str = ""
    ) -> ServerSecurity:
        """Without a file of tokens that of ``TIDELOG_TOKEN_FILE`` counts, or else the token in
        ``TIDELOG_TOKEN``, if there is one."""
        tokens = _tokens_of(token_file, os.environ)
        return cls(cert=cert, key=key, client_ca=client_ca, tokens=frozenset(tokens))

    def ssl_context(self) -> ssl.SSLContext | None:
        """For those who listen with TLS; None without a certificate."""
        if not self.cert:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(context)
        context.num_tickets = 0  # Nobody resumes a session.
        _load_cert(context, self.cert, self.key)
        if self.client_ca:
            _load_ca(context, self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def context_for(self, endpoints: Sequence[Endpoint]) -> ssl.SSLContext | None:
        """The context to listen with at these addresses; BadOption unless they fit."""
        wanted = any(endpoint.tls for endpoint in endpoints)
        if wanted and not self.cert:
            raise BadOption("to listen at tls:// needs a certificate and its key: give both")
        if self.cert and not wanted:
            raise BadOption("a certificate is of no use without a tls:// address to listen at")
        for endpoint in endpoints:
            if self.tokens and _is_exposed(endpoint):
                _logger.warning("at %s tokens travel in plain text: listen at tls://", endpoint)
            asks = self.tokens or (self.client_ca and endpoint.tls)
            if not asks and not _is_of_machine(endpoint):
                _logger.warning("whoever reaches %s may do everything: ask for tokens", endpoint)
        return self.ssl_context()

    def admits(self, token: str) -> bool:
        """Whether a client with this token may come in (Z1)."""
        shown = _digest(token)
        found = False
        for known in self.tokens:
            found |= compare_digest(_digest(known), shown)
        return found or not self.tokens

    def check_token(self, token: str) -> None:
        """Unauthorized unless a client with this token may come in; says nothing of any (Z2)."""
        if self.admits(token):
            return
        how = "the token is not known here" if token else "a token is needed here"
        raise Unauthorized(
            f"{how}: set TIDELOG_TOKEN or give a token file, with a token that the server knows"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client makes sure whom it talks to, and shows who it is."""

    tls: bool = False
    """Insist on TLS; otherwise the address decides."""
    ca: str = ""
    """File with the CAs of servers, in PEM; empty: those that the system trusts."""
    cert: str = ""
    """File with the client's own certificate, if servers ask for one."""
    key: str = ""
    """File with the certificate's key; empty: it is in ``cert`` as well."""
    token: str = field(default="", repr=False)
    server_name: str = ""
    """The name in the server's certificate; empty: the host in the address."""

    def __post_init__(self) -> None:
        if self.key and not self.cert:
            raise BadOption("a client's key needs its certificate: give that, too")
        if self.token:
            _check_token(self.token, "the token")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> ClientSecurity:
        """``TIDELOG_TLS_CA``, ``_CERT``, ``_KEY`` and ``_SERVER_NAME``; ``TIDELOG_TOKEN_FILE``, or
        else ``TIDELOG_TOKEN``."""
        return cls.from_files(environment=environment)

    @classmethod
    def from_files(
        cls,
        *,
        ca: str = "",
        cert: str = "",
        key: str = "",
        server_name: str = "",
        token_file: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> ClientSecurity:
        """What is not given is looked for in the environment; of a file's tokens the first one
        counts."""
        given = os.environ if environment is None else environment
        tokens = _tokens_of(token_file, given)
        if not cert:  # A key belongs to its certificate.
            cert, key = given.get("TIDELOG_TLS_CERT", ""), given.get("TIDELOG_TLS_KEY", "")
        return cls(
            ca=ca or given.get("TIDELOG_TLS_CA", ""),
            cert=cert,
            key=key,
            server_name=server_name or given.get("TIDELOG_TLS_SERVER_NAME", ""),
            token=tokens[0] if tokens else "",
        )

    def for_endpoint(self, endpoint: Endpoint) -> ClientSecurity:
        """The same with ``tls`` as the address says; BadOption if TLS is insisted on (Z3)."""
        if self.tls and not endpoint.tls:
            raise BadOption(f"{endpoint} is without TLS: write tls:// or tidelog+tls://")
        if self.token and _is_exposed(endpoint):
            _logger.warning("the token travels to %s in plain text: use TLS", endpoint)
        return replace(self, tls=endpoint.tls)

    def ssl_context(self) -> ssl.SSLContext | None:
        """To connect with TLS; None if ``tls`` is not set."""
        if not self.tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # Checks certificate and host name.
        _harden(context)
        if self.ca:
            _load_ca(context, self.ca)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self.cert:
            _load_cert(context, self.cert, self.key)
        return context

    def name_of(self, endpoint: Endpoint) -> str:
        """The name that the server's certificate must have."""
        return self.server_name or (endpoint.host if isinstance(endpoint, TcpEndpoint) else "")


def read_tokens(path: str) -> list[str]:
    """The tokens in a file: one in each line, apart from empty lines and comments (``#``)."""
    try:
        data = _read(path, TOKEN_FILE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise BadOption(f"{path} is no file of tokens: write one token in each line") from None
    _warn_if_others_can_read(path)
    lines = [line.strip() for line in data.splitlines()]
    tokens = [line for line in lines if line and not line.startswith("#")]
    if not tokens:
        raise BadOption(f"{path} has no token in it: {_MAKE_ONE}")
    for number, token in enumerate(tokens, 1):
        _check_token(token, f"token {number} in {path}")
    return tokens


def _tokens_of(path: str, environment: Mapping[str, str]) -> list[str]:
    """Those in a file, or else those that the environment names."""
    path = path or _value_of("TIDELOG_TOKEN_FILE", environment)
    if path:
        return read_tokens(path)
    token = _value_of("TIDELOG_TOKEN", environment).strip()
    return [token] if token else []


def _value_of(name: str, environment: Mapping[str, str]) -> str:
    """Whoever names a secret that turns out to be empty did not want to go without one."""
    if name in environment and not environment[name].strip():
        raise BadOption(f"{name} is set, but empty: give it a value, or unset it")
    return environment.get(name, "")


def _check_token(token: str, what: str) -> None:
    """Raise unless this can be a token; says nothing of what it is (Z2)."""
    if not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
        raise BadOption(
            f"{what} has {len(token)} characters, not {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX}: "
            f"{_MAKE_ONE}"
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise BadOption(f"{what} has signs other than letters, digits and marks: {_MAKE_ONE}")


def _digest(token: str) -> bytes:
    """Of equal length for all tokens, so that not even their lengths show (Z1)."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_cert(context: ssl.SSLContext, cert: str, key: str) -> None:
    _read(cert)
    if key:
        _read(key)
    _warn_if_others_can_read(key or cert)
    try:
        context.load_cert_chain(cert, key or None, password=_refuse_password)
    except ssl.SSLError as error:
        raise BadOption(_cert_trouble(error, cert, key or cert)) from error


def _cert_trouble(error: ssl.SSLError, cert: str, key: str) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of the certificate in {cert}: give the key made with it"
    return (
        f"{cert} and {key} are no certificate and key in PEM ({error.reason or error}): "
        "give files that begin with -----BEGIN"
    )


def _refuse_password() -> NoReturn:
    """Without this OpenSSL would ask at the terminal."""
    raise BadOption("the key is encrypted: store it without a password, for its owner only")


def _load_ca(context: ssl.SSLContext, path: str) -> None:
    _read(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise BadOption(f"{path} holds no certificates of CAs in PEM: {error}") from error


def _read(path: str, bytes_max: int = MIB) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadOption(f"cannot read {path}: {reason}") from error
    if len(data) > bytes_max:
        raise BadOption(f"{path} has more than {bytes_max} bytes: is it the right file?")
    return data


def _warn_if_others_can_read(path: str) -> None:
    if Path(path).stat().st_mode & S_IRWXO:
        _logger.warning("%s can be read by everybody on this machine: chmod o-rwx it", path)


def _is_exposed(endpoint: Endpoint) -> bool:
    """Whether what is sent there may be read on the way."""
    return not endpoint.tls and not _is_of_machine(endpoint)


def _is_of_machine(endpoint: Endpoint) -> bool:
    """Whether only this machine can connect there."""
    if not isinstance(endpoint, TcpEndpoint):
        return True
    return endpoint.host in ("localhost", "::1") or endpoint.host.startswith("127.")
