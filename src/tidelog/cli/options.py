"""Options that several commands share.  No state."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any, Final, TypeVar

import click

from tidelog.cli.security_options import client_security_options

F = TypeVar("F", bound=Callable[..., Any])

LOCK_WAIT_SECONDS: Final = 1.0
AMOUNT_MAX: Final = 1_000_000_000
"""Of seconds: 31 years."""


def is_url(where: str) -> bool:
    """Whether this is the address of a served log, not a directory."""
    return where.startswith(("tidelog://", "tidelog+tls://", "tidelog+unix://"))


def _topic(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    """The topic that --topic names, or else the URL, or else the default one."""
    if value == "":
        raise click.BadParameter("a topic has a name; without --topic it is the default one")
    where = ctx.params.get("data") or ""
    if value is None and is_url(where):
        from tidelog.net.endpoint import parse_url

        value = parse_url(where).topic
    return value or "default"


class AmountRange(click.FloatRange):
    """Numbers that timers can take; ``nan``, which is in no range nor out of it, is refused."""

    def __init__(self, min: float, *, min_open: bool = False) -> None:
        super().__init__(min=min, max=AMOUNT_MAX, min_open=min_open)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


_data_option = click.option(
    "-d",
    "--data",
    metavar="DIR|URL",
    required=True,
    is_eager=True,
    envvar="TIDELOG_DATA",
    show_envvar=True,
    help="The log's directory, or the address of a node that serves it.",
)


def data_option(function: F) -> F:
    """Where the log is, and how to show to a node who we are."""
    return _data_option(client_security_options(function))


directory_option = click.option(
    "-d",
    "--data",
    metavar="DIR",
    required=True,
    envvar="TIDELOG_DATA",
    show_envvar=True,
    help="The log's directory.",
)

topic_option = click.option(
    "-t",
    "--topic",
    metavar="NAME",
    callback=_topic,
    help="The topic.  [default: the URL's, or default]",
)

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for programs.",
)

wait_option = click.option(
    "--wait",
    metavar="SECONDS",
    type=AmountRange(min=0),
    default=LOCK_WAIT_SECONDS,
    show_default=True,
    help="How long to wait for a log that another process has open.",
)

storage_option = click.option(
    "--storage-id",
    type=click.IntRange(0, (1 << 64) - 1),
    default=0,
    show_default=True,
    help="The storage that the key belongs to.",
)

base64_option = click.option("--base64", "is_base64", is_flag=True, help="KEY is in base64.")


def read_options(function: F) -> F:
    """Of a command that only reads: directory and output."""
    return data_option(output_option(function))


def write_options(function: F) -> F:
    """Of a command that changes the log: directory, output, and waiting for its turn."""
    return data_option(output_option(wait_option(function)))


def key_bytes(text: str, is_base64: bool) -> bytes:
    """A key from the command line."""
    if not is_base64:
        return text.encode("utf-8", "surrogateescape")
    from base64 import b64decode

    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not base64: {error}") from error
