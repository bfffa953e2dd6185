"""The root of the commands: finds their modules when needed, and turns errors into exit codes."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any, Final

import click

from tidelog import __version__
from tidelog.cli.failures import Failure, failure_of
from tidelog.cli.lazy_group import LazyGroup
from tidelog.errors import LogError

COMMANDS: Final = {
    "up": "tidelog.cli.up",
    "node": "tidelog.cli.node",
    "config": "tidelog.cli.config",
    "status": "tidelog.cli.status",
    "top": "tidelog.cli.top",
    "doctor": "tidelog.cli.doctor",
    "stream": "tidelog.cli.stream",
    "mr": "tidelog.cli.mr",
    "operator": "tidelog.cli.operator",
    "serve": "tidelog.cli.serve",
    "replica": "tidelog.cli.replica",
    "restore": "tidelog.cli.restore",
    "append": "tidelog.cli.append",
    "tail": "tidelog.cli.tail",
    "get": "tidelog.cli.get",
    "blob": "tidelog.cli.blob",
    "topic": "tidelog.cli.topic",
    "trim": "tidelog.cli.trim",
    "compact": "tidelog.cli.compact",
    "snapshot": "tidelog.cli.snapshot",
    "rewrite": "tidelog.cli.rewrite",
    "stats": "tidelog.cli.stats",
    "verify": "tidelog.cli.verify",
    "dump": "tidelog.cli.dump",
    "pipeline": "tidelog.cli.pipeline",
    "bench": "tidelog.cli.bench",
    "simulate": "tidelog.cli.simulate",
}
"""Name of each command → its module; the command in it is called ``command``."""


class Program(LazyGroup):
    """The root."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # Whoever read our output has enough of it.  The old stream still holds bytes that
            # nobody takes; with another one in its place nothing complains at the exit.
            sys.stdout = StringIO()
            ctx.exit(0)
        except (LogError, OSError) as error:
            raise failure_of(error) from error
        except UnicodeEncodeError as error:
            # Arguments and variables of the environment may be any bytes; names are text.
            raise Failure(f"{error.object!r} is not UTF-8") from error


@click.group(
    cls=Program, modules=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="tidelog")
def program() -> None:
    """One durable, totally ordered log for Python and Spark.

    Give the log's directory, or the URL of a node that serves it, with --data or in TIDELOG_DATA.
    """
