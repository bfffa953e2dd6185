"""``tidelog pipeline``: jobs that run on Spark, each in a module of its own."""

from __future__ import annotations

from typing import Final

import click

from tidelog.cli.lazy_group import LazyGroup

JOBS: Final = {
    "archive": "tidelog.cli.pipeline_archive",
    "audit": "tidelog.cli.pipeline_audit",
    "compact-plan": "tidelog.cli.pipeline_compact_plan",
    "materialize": "tidelog.cli.pipeline_materialize",
    "replay": "tidelog.cli.pipeline_replay",
}


@click.group("pipeline", cls=LazyGroup, modules=JOBS)
def command() -> None:
    """Jobs on Spark, between a served log and tables."""
