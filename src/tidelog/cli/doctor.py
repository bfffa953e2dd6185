"""``tidelog doctor``: what is, or may become, trouble, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelog.cli.options import is_url, output_option
from tidelog.cli.security_options import client_security_options

if TYPE_CHECKING:
    from tidelog.interface.cluster_figures import ClusterFinding


@click.command("doctor")
@click.option(
    "-d",
    "--data",
    "places",
    metavar="DIR|URL",
    multiple=True,
    required=True,
    envvar="TIDELOG_DATA",
    show_envvar=True,
    help="A directory of this machine, or the address of a node; may be given several times.",
)
@client_security_options
@output_option
@click.pass_context
def command(ctx: click.Context, places: tuple[str, ...], output: str) -> None:
    """Look for trouble: in a running cluster, or with a directory and its disk.

    Of a cluster: quorums, leaders, replicas, lag, clocks, disks, limits, damaged files.  Of a
    directory: how long its disk takes to sync, free room, limits of this shell.  Exit code 0 if
    there is nothing to do, 1 after a warning, 3 after an error.
    """
    from tidelog.cli.failures import ExitCode
    from tidelog.interface.cluster_figures import Severity
    from tidelog.interface.cluster_health import worst_of

    found: list[tuple[str, ClusterFinding]] = []
    facts: list[str] = []
    for place in places:
        told, findings = _cluster(place) if is_url(place) else _directory(place)
        facts += told
        found += [(place, finding) for finding in findings]
    _print(facts, found, output)
    worst = worst_of(tuple(finding for _, finding in found))
    codes = {Severity.WARNING: ExitCode.ERROR, Severity.ERROR: ExitCode.DAMAGED}
    ctx.exit(ExitCode.OK if worst is None else codes.get(worst, ExitCode.OK))


def _cluster(url: str) -> tuple[list[str], tuple[ClusterFinding, ...]]:
    from tidelog.cli.admin_session import administering
    from tidelog.interface.cluster_health import checkup_of, health_of

    with administering(url) as admin:
        status = admin.status()
    answering = [node for node in status.nodes if node.answers]
    offset = max((abs(node.clock_offset_seconds) for node in answering), default=0.0)
    facts = [
        f"{len(answering)} of {len(status.nodes)} nodes answer",
        f"clocks are at most {1000 * offset:.1f} ms apart from that of node {status.asked}",
    ]
    return facts, (*health_of(status), *checkup_of(status))


def _directory(path: str) -> tuple[list[str], tuple[ClusterFinding, ...]]:
    from pathlib import Path

    from tidelog.cli.directory_checks import check_directory
    from tidelog.cli.failures import ExitCode, Failure

    if not Path(path).is_dir():
        raise Failure(f"there is no directory {path}", ExitCode.NOT_FOUND)
    return check_directory(str(Path(path).absolute()))


def _print(facts: list[str], found: list[tuple[str, ClusterFinding]], output: str) -> None:
    if output == "json":
        import msgspec

        from tidelog.cli.output import print_json

        findings = [{"place": place, **msgspec.to_builtins(one)} for place, one in found]
        print_json({"facts": facts, "findings": findings})
        return
    from tidelog.cli.cluster_tables import finding_line

    for fact in facts:
        click.echo(f"ok: {fact}")
    for _, finding in found:
        click.echo(finding_line(finding))
    if not found:
        click.echo("nothing to do")
