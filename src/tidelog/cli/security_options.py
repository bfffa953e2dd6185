"""Options about TLS and tokens: of commands that connect, and of those that listen.  No state.

There is no option for a token itself: the arguments of a process can be seen by everybody on its
machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from tidelog.net.security import ClientSecurity

F = TypeVar("F", bound=Callable[..., Any])

_META: Final = "tidelog.security"
"""Where a command's context keeps what was given, for whoever connects."""


def _remember(ctx: click.Context, param: click.Parameter, value: str) -> None:
    ctx.meta.setdefault(_META, {})[param.name] = value


def _client_option(flag: str, text: str) -> Callable[[F], F]:
    return click.option(
        flag,
        metavar="FILE",
        default="",
        envvar=f"TIDELOG_{flag.strip('-').replace('-', '_').upper()}",
        show_envvar=True,
        expose_value=False,
        callback=_remember,
        help=text,
    )


def client_security_options(function: F) -> F:
    """Of a command that may connect to a node; ``client_security`` has what was given."""
    for flag, text in (
        ("--token-file", "The token for the node; else it is in TIDELOG_TOKEN."),
        ("--tls-key", "The key of --tls-cert, unless that holds it."),
        ("--tls-cert", "Our certificate, if the node asks for one."),
        ("--tls-ca", "CAs of the node's certificate, instead of the system's."),
    ):
        function = _client_option(flag, text)(function)
    return function


def client_security() -> ClientSecurity:
    """What the options of the running command and the environment say."""
    from tidelog.net.security import ClientSecurity

    ctx = click.get_current_context(silent=True)
    given: dict[str, str] = {} if ctx is None else ctx.meta.get(_META, {})
    return ClientSecurity.from_files(
        ca=given.get("tls_ca", ""),
        cert=given.get("tls_cert", ""),
        key=given.get("tls_key", ""),
        token_file=given.get("token_file", ""),
    )


def server_security_options(function: Callable[..., None]) -> Callable[..., None]:
    """Of a command that listens; it is called with a ``ServerSecurity`` named ``security``."""

    @wraps(function)
    def command(
        *args: Any, tls_cert: str, tls_key: str, tls_client_ca: str, token_file: str, **others: Any
    ) -> None:
        from tidelog.net.security import ServerSecurity

        security = ServerSecurity.from_files(
            cert=tls_cert, key=tls_key, client_ca=tls_client_ca, token_file=token_file
        )
        function(*args, security=security, **others)

    for flag, text in (
        ("--token-file", "Tokens, one in each line: clients must show one of them."),
        ("--tls-client-ca", "CAs: at tls:// clients must show a certificate of one of them."),
        ("--tls-key", "The key of --tls-cert, unless that holds it."),
        ("--tls-cert", "Our certificate and those up to its CA, in PEM, for tls:// addresses."),
    ):
        command = click.option(flag, metavar="FILE", default="", help=text)(command)
    return command
