"""Figures of clients and of Spark as Markdown.  No state."""

from __future__ import annotations

from bench.tables import table

Figures = dict[str, dict[str, float]]


def client_section(figures: Figures) -> str:
    note = (
        "One client and one node on this machine, each in its process, over a Unix socket. Values "
        "of 100 B; every append is durable when it is answered. *Many in flight*: 100 tasks."
    )
    rows = [
        (name, f"{found['records_per_second']:,.0f}")
        for name, found in figures.items()
        if "records_per_second" in found
    ]
    if "memory" in figures:
        rows.append(("memory of the node", f"{figures['memory']['node_megabytes']:.0f} MB"))
    return f"{note}\n\n{table(('work', 'records/s'), rows)}"


def spark_section(figures: Figures) -> str:
    return _spark_tables(_SPARK_NOTE, figures)


def spark_cluster_section(figures: Figures) -> str:
    """The same with three nodes, then the jobs."""
    text = _spark_tables(_CLUSTER_NOTE, figures)
    jobs = [
        (
            name.removeprefix("job "),
            f"{found['entries'] / found['seconds']:,.0f} entries/s",
            f"{found['seconds']:.1f} s",
            *(f"{found[key]:,.0f} MB" for key in _MEMORY),
        )
        for name, found in figures.items()
        if name.startswith("job ")
    ]
    headers = ("job", "rate", "time", "nodes", "JVM", "Python workers")
    return f"{text}\n\n{table(headers, jobs)}" if jobs else text


_SPARK_NOTE = (
    "Spark on two cores of this machine, the node beside it. *Read*: rows of 100 B, all "
    "columns, to nowhere; the same rows in uncompressed Parquet. *Ceiling*: a Python source "
    "that hands the same columns to Spark without making them. *Trigger*: ten rows, against "
    "the rate source of Spark. *Write*: rows from Parquet, durable in the log when the write "
    "returns; the Parquet writer of Spark syncs nothing. *Settled*: until all of the log's "
    "rolled WAL files are in segments too."
)
_CLUSTER_NOTE = (
    "Three nodes, Spark and its workers, all on the two cores of this machine; every log stream "
    "has three replicas, and what is written is durable on two of them and ordered. The work is "
    "that of one node above. *Jobs*: over PUTs of 100 B to random keys, each of about five times; "
    "times include Spark's planning, not its start. Memory is what is resident after the job."
)


def _spark_tables(note: str, figures: Figures) -> str:
    rows: list[tuple[str, str, str, str, str]] = []
    if "batch read" in figures:
        read = figures["batch read"]
        ours, theirs = read["tidelog_rows_per_second"], read["parquet_none_rows_per_second"]
        rows.append(_share("batch read", ours, theirs, 0.65))
        ceiling = read["ceiling_rows_per_second"]
        text = f"{ours / ceiling:.0%} of the ceiling, which is {ceiling / theirs:.0%} of Parquet"
        rows.append(("batch read, to its ceiling", "", f"{ceiling:,.0f} rows/s", text, ""))
    if "triggers" in figures:
        found = figures["triggers"]
        text = f"{found['times']:.2f} × (goal ≤ 1.5)"
        mine, rate = f"{found['tidelog_ms']:.0f} ms", f"{found['rate_ms']:.0f} ms"
        rows.append(("trigger", mine, rate, text, _yes(found["times"] <= 1.5)))
    if "latency" in figures:
        found = figures["latency"]
        text = f"p50 {found['p50_ms']:.0f} ms (goal ≤ 120), p95 {found['p95_ms']:.0f} ms"
        rows.append(("append to foreachBatch", text, "", "", _yes(found["p50_ms"] <= 120)))
    for name in ("batch write", "keyed batch write"):
        if name in figures:
            wrote = figures[name]
            ours, theirs = wrote["tidelog_rows_per_second"], wrote["parquet_rows_per_second"]
            rows.append(_share(name, ours, theirs, 0.5))
            settled = wrote["settled_rows_per_second"]
            text = f"{settled / theirs:.0%} of Parquet"
            rows.append((f"{name}, settled", f"{settled:,.0f} rows/s", "", text, ""))
    text = f"{note}\n\n{table(('work', 'Tidelog', 'peer', 'ratio', 'met'), rows)}"
    memory = [
        (title, *(f"{figures[part][key]:,.0f} MB" for key in _MEMORY))
        for title, part in (("after reading", "memory"), ("after writing", "write memory"))
        if part in figures
    ]
    if memory:
        text += "\n\n" + table(("memory", "node", "JVM", "Python workers"), memory)
    return text


_MEMORY = ("node_megabytes", "jvm_megabytes", "workers_megabytes")


def _share(name: str, ours: float, theirs: float, goal: float) -> tuple[str, str, str, str, str]:
    share = ours / theirs
    return (
        name,
        f"{ours:,.0f} rows/s",
        f"{theirs:,.0f} rows/s",
        f"{share:.0%} of Parquet (goal ≥ {goal:.0%})",
        _yes(share >= goal),
    )


def _yes(met: bool) -> str:
    return "yes" if met else "no"
