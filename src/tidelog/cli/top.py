"""``tidelog top``: a cluster at work, as it goes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Event
from typing import TYPE_CHECKING

import click

from tidelog.cli.admin_session import administering
from tidelog.cli.options import AmountRange, data_option

if TYPE_CHECKING:
    from tidelog.client.blocking_admin import Admin


@click.command("top")
@data_option
@click.option(
    "--interval",
    metavar="SECONDS",
    type=AmountRange(min=0.1),
    default=1.0,
    show_default=True,
    help="How often to look.",
)
@click.option("-n", "--count", type=click.IntRange(1), help="Look so many times, then end.")
@click.option("--plain", is_flag=True, help="One block after the other, also on a terminal.")
def command(data: str, interval: float, count: int | None, plain: bool) -> None:
    """Show what a cluster does: rates, leaders, lag; until Ctrl-C.

    Drawn in place with rich, where that is installed and this is a terminal.
    """
    with administering(data) as admin:
        views = _views(admin, interval, count)
        try:
            if plain or not sys.stdout.isatty() or not _draw(views):
                for lines in views:
                    click.echo("\n".join(lines) + "\n")
        except KeyboardInterrupt:
            return


def _views(admin: Admin, interval: float, count: int | None) -> Iterator[list[str]]:
    """What to show, again and again."""
    from itertools import count as numbers
    from time import monotonic

    from tidelog.cli.top_view import Glance, top_lines
    from tidelog.errors import LogError

    before: Glance | None = None
    pause = Event()
    for number in numbers(1):
        try:
            glance = Glance(monotonic(), admin.status())
        except LogError as error:
            if before is None:
                raise
            yield [f"the cluster does not answer: {error}"]
        else:
            yield list(top_lines(glance, before))
            before = glance
        if number == count:
            return
        pause.wait(interval)


def _draw(views: Iterator[list[str]]) -> bool:
    """Draw in place; False if rich is not installed."""
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return False
    with Live(auto_refresh=False, screen=True) as live:
        for lines in views:
            live.update(Text("\n".join(lines), no_wrap=True), refresh=True)
    return True
