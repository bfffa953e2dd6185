"""``tidelog status``: how a cluster is."""

from __future__ import annotations

import click

from tidelog.cli.admin_session import administering, cluster_options


@click.command("status")
@cluster_options
@click.pass_context
def command(ctx: click.Context, data: str, output: str) -> None:
    """Show the nodes, log streams, metadata repository and readers of a cluster.

    Exit code 1 if something is wrong: a node that does not answer, a log stream without a leader
    or with too few replicas, no quorum.
    """
    from tidelog.cli.cluster_tables import (
        NODE_HEADERS,
        STREAM_HEADERS,
        finding_line,
        metadata_line,
        node_row,
        status_fields,
        stream_row,
    )
    from tidelog.cli.output import print_json, print_table
    from tidelog.cli.reader_table import READER_HEADERS, reader_row
    from tidelog.interface.cluster_health import health_of

    with administering(data) as admin:
        status = admin.status()
    findings = health_of(status)
    fields = status_fields(status, findings)
    if output == "json":
        print_json(fields)
    else:
        click.echo(f"cluster {status.cluster_id}, as node {status.asked} sees it")
        click.echo(metadata_line(status.metadata) + "\n")
        print_table(NODE_HEADERS, [node_row(node) for node in status.nodes])
        click.echo()
        print_table(STREAM_HEADERS, [stream_row(stream) for stream in status.streams])
        if status.readers:
            click.echo()
            print_table(READER_HEADERS, [reader_row(reader) for reader in status.readers])
        if findings:
            click.echo()
        for finding in findings:
            click.echo(finding_line(finding))
    ctx.exit(0 if fields["healthy"] else 1)
