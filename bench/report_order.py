"""Figures of the order layer as Markdown.  No state."""

from __future__ import annotations

from typing import Final

from bench.tables import table

Figures = dict[str, dict[str, float]]


def order_section(figures: Figures) -> str:
    """What a cut costs, and how long a report takes to become a commit."""
    cut_note = (
        "*Cut*: the machine alone, in one process: one report of each of three replicas of every "
        "changed stream, then the cut over them. What is not changed costs nothing, whatever the "
        "number of streams."
    )
    cuts = [
        (
            name.removeprefix("cut, "),
            f"{found['microseconds']:,.0f}",
            f"{found['microseconds_per_stream']:,.1f}",
            f"{found['cuts_per_second']:,.1f}",
            f"{found['replica_reports_per_second']:,.0f}",
        )
        for name, found in figures.items()
        if name.startswith("cut, ")
    ]
    cut_headers = ("changed", "µs per cut", "µs per changed stream", "cuts/s", "replica reports/s")
    group_note = (
        "*Group*: three metadata nodes in one process, messages encoded and decoded as on the "
        "wire, every Raft write synced. From the reports of three storage nodes (ten streams "
        "each) until all of them have their commit results; the three nodes work and sync one "
        "after the other, so a real group, where they do so side by side, is faster."
    )
    groups = [
        (
            name.removeprefix("group, "),
            f"{found['p50_ms']:.2f}",
            f"{found['p99_ms']:.2f}",
            f"{found['rounds_per_second']:,.0f}",
        )
        for name, found in figures.items()
        if name.startswith("group, ")
    ]
    group_headers = ("group of", "p50 ms", "p99 ms", "rounds/s, one at a time")
    parts = [cut_note, table(cut_headers, cuts), group_note, table(group_headers, groups)]
    return "\n\n".join(parts + _nodes(figures))


_NODES_NOTE: Final = (
    "*Nodes*: the model of [docs/scaling.md](../docs/scaling.md) and the real core, for one cut: "
    "N storage nodes with ten log streams each, A streams with something to order, m metadata "
    "nodes; of the metadata node that leads. Storage nodes are made up; messages are encoded and "
    "decoded, but not sent, and nothing is synced. The model's constants are fitted to the rows "
    "without a star; those with one are foretold. *Quiet*: one full report of every storage node "
    "with nothing new, as it is asked for once a second."
)


def _nodes(figures: Figures) -> list[str]:
    """The model and the core, if they were measured."""
    sizes = {name: found for name, found in figures.items() if name.startswith("nodes, ")}
    if not sizes:
        return []
    headers = (
        "N × A × m",
        "messages in, out",
        "model",
        "entry bytes",
        "model",
        "bytes out",
        "model",
        "time ms",
        "model",
        "of it",
        "quiet ms",
        "snapshot KB",
        "snapshot ms",
    )
    model, message = figures["nodes: model"], figures["nodes: message"]
    constants = ", ".join(f"{name} = {value:.3g}" for name, value in model.items())
    text = (
        f"Constants, in bytes and µs: {constants}. Carrying a message between two processes, alone "
        f"in its write, costs each of them {message['microseconds']:.0f} µs more."
    )
    rows = [_node_row(name.removeprefix("nodes, "), found) for name, found in sizes.items()]
    return [_NODES_NOTE, table(headers, rows), text]


def _node_row(name: str, found: dict[str, float]) -> tuple[str, ...]:
    return (
        name + (" *" if found["foretold"] else ""),
        f"{found['messages_in']:,.0f}, {found['messages_out']:,.0f}",
        f"{found['model_messages_in']:,.0f}, {found['model_messages_out']:,.0f}",
        f"{found['entry_bytes']:,.0f}",
        f"{found['model_entry_bytes']:,.0f}",
        f"{found['bytes_out']:,.0f}",
        f"{found['model_bytes_out']:,.0f}",
        f"{found['leader_us'] / 1e3:,.2f}",
        f"{found['model_leader_us'] / 1e3:,.2f}",
        f"{found['model_leader_us'] / found['leader_us']:.0%}",
        f"{found['quiet_us'] / 1e3:,.1f}",
        f"{found['snapshot_bytes'] / 1e3:,.0f}",
        f"{found['snapshot_ms']:,.1f}",
    )
