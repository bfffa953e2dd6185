"""Connects a command to a cluster, and shows how far it is with what takes long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from tidelog.cli.failures import Failure
from tidelog.cli.options import is_url, read_options

if TYPE_CHECKING:
    from tidelog.client.blocking_admin import AdminConnection
    from tidelog.client.procedures import Step

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """Of a command that asks a cluster: the address of a node, who we are, and the output."""
    return read_options(function)


@contextmanager
def administering(url: str) -> Iterator[AdminConnection]:
    """The cluster at an address."""
    if not is_url(url):
        raise click.UsageError(
            f"{url} is no address: give that of a node, or of several "
            "(tidelog://HOST:PORT,HOST:PORT)"
        )
    from tidelog.cli.security_options import client_security
    from tidelog.client.blocking_admin import connect_admin

    with connect_admin(url, security=client_security()) as admin:
        yield admin


def follow(steps: Iterator[Step], again: str, stream: TextIO | None = None) -> str:
    """Show how far something is until it is done; returns the last that was told of it.

    ``again``: what to do after an interrupt.
    """
    shower = _Shower(sys.stderr if stream is None else stream)
    last = ""
    try:
        for step in steps:
            last = step.text
            shower.show(step)
    except KeyboardInterrupt:
        raise Failure(f"not followed any more; what is under way goes on. {again}") from None
    finally:
        shower.end()
    return last


class _Shower:
    """One line that changes, on a terminal; elsewhere a line for everything new."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._draws = stream.isatty()
        self._width = 0
        self._last = ""

    def show(self, step: Step) -> None:
        text = f"log stream {step.stream}: {step.text}"
        if self._draws:
            if step.done is not None and step.total:
                share = min(100 * step.done // step.total, 100)
                text += f", {step.done:,} of {step.total:,} entries ({share} %)"
            self._stream.write("\r" + text.ljust(self._width))
            self._width = max(self._width, len(text))
            self._stream.flush()
        elif text != self._last:
            self._stream.write(text + "\n")
            self._last = text

    def end(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
