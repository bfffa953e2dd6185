"""Figures as a page of Markdown.  No state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.appends import Figure, best_peer

BATCHED_OF_DISK_MIN = 0.6
BATCHED_OF_PEERS_MIN = 3.0
SINGLE_OF_SYNC_MAX = 1.5
COMPACTION_MEGABYTES_MAX = 512 * 1.048576


@dataclass(slots=True)
class Results:
    facts: dict[str, str]
    command: str
    appends: list[list[Figure]] = field(default_factory=list)
    large: dict[str, dict[str, float]] = field(default_factory=dict)


def page(results: Results) -> str:
    sections = [_head(results)]
    if results.appends:
        sections += [_targets(results.appends), _append_tables(results.appends)]
    if results.large:
        sections.append(_large(results.large))
    return "\n\n".join(sections) + "\n"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [_line(headers), _line(["---"] * len(headers))]
    return "\n".join(lines + [_line(row) for row in rows])


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _head(results: Results) -> str:
    return "\n\n".join(
        (
            "# Results",
            f"Written by `{results.command}`. All figures are of one run: engines took turns, the "
            "median of the repeats counts. Compare figures of one run with one another, never "
            "with those of another day or machine.",
            table(("machine", ""), results.facts.items()),
        )
    )


# ---- appends


def _targets(works: Sequence[list[Figure]]) -> str:
    rows = []
    for figures in works:
        disk, tidelog = figures[0], _of(figures, "tidelog")
        work = tidelog.work
        peer = best_peer(figures)
        if work.threads > 1:
            continue
        of_peer = tidelog.records_per_second / peer.records_per_second
        if work.batch == 1:
            ratio = tidelog.p50_us / disk.p50_us
            goal = f"{ratio:.2f} × one sync (goal ≤ {SINGLE_OF_SYNC_MAX})"
            met = ratio <= SINGLE_OF_SYNC_MAX
        else:
            ratio = tidelog.records_per_second / disk.records_per_second
            goal = f"{ratio:.0%} of the disk (goal ≥ {BATCHED_OF_DISK_MIN:.0%})"
            goal += f", {of_peer:.1f} × {peer.engine} (goal ≥ {BATCHED_OF_PEERS_MIN:.0f})"
            met = ratio >= BATCHED_OF_DISK_MIN and of_peer >= BATCHED_OF_PEERS_MIN
        rows.append((work.name, goal, f"{of_peer:.2f} × {peer.engine}", "yes" if met else "no"))
    return "## Goals\n\n" + table(("work", "Tidelog", "to the best peer", "met"), rows)


def _append_tables(works: Sequence[list[Figure]]) -> str:
    headers = ("work", "engine", "records/s", "MB/s", "p50 µs", "p99 µs", "of disk", "Tidelog is")
    rows = []
    for figures in works:
        disk, tidelog = figures[0], _of(figures, "tidelog")
        for figure in figures:
            share = figure.records_per_second / disk.records_per_second
            times = tidelog.records_per_second / figure.records_per_second
            rows.append(
                (
                    tidelog.work.name,
                    figure.engine,
                    f"{figure.records_per_second:,.0f}",
                    f"{figure.megabytes_per_second:,.1f}",
                    f"{figure.p50_us:,.0f}",
                    f"{figure.p99_us:,.0f}",
                    f"{share:.0%}",
                    "" if figure is tidelog else f"{times:.2f} ×",
                )
            )
    note = (
        "Each call is durable when it returns. *disk*: the same bytes written to a file that has "
        "its blocks already, then fdatasync, by one thread. Tidelog's time runs until all rolled "
        "WAL files are in segments, the others' until the last call returned. SQLite: WAL, "
        "synchronous=FULL, one transaction for a batch; LMDB: synced commits, append mode for "
        "records without keys; RocksDB: one synced WriteBatch. Keys: 16 bytes, one of a million."
    )
    return f"## Appends\n\n{note}\n\n{table(headers, rows)}"


def _of(figures: Sequence[Figure], engine: str) -> Figure:
    return next(figure for figure in figures if figure.engine == engine)


# ---- large logs


def _large(large: dict[str, dict[str, float]]) -> str:
    sections = ["## Large logs"]
    if "start" in large:
        start, built = large["start"], large["build"]
        sections.append(
            table(
                (f"log of {built['entries']:,.0f} entries of 100 B", ""),
                (
                    ("appended in", f"{built['seconds']:.1f} s, batches of 1,000"),
                    ("segments", f"{start['segments']:.0f}"),
                    ("start-up", f"{1e3 * start['open_seconds']:.0f} ms"),
                    (
                        "memory after start-up",
                        f"{start['resident_megabytes']:.0f} MB "
                        f"({start['import_megabytes']:.0f} MB of it before opening)",
                    ),
                    ("first read in the middle", f"{start['first_read_ms']:.1f} ms"),
                    ("read in order", f"{start['records_per_second']:,.0f} records/s"),
                ),
            )
        )
    for name, figures in large.items():
        if name.startswith("compact "):
            sections.append(_compaction(name.removeprefix("compact "), figures, large))
    return "\n\n".join(sections)


def _compaction(size: str, figures: dict[str, float], large: dict[str, dict[str, float]]) -> str:
    before, after = large[f"get before compaction {size}"], large[f"get after compaction {size}"]
    met = "yes" if figures["peak_megabytes"] <= COMPACTION_MEGABYTES_MAX else "no"
    return table(
        (f"major compaction, values of {size} B, half of it dead", ""),
        (
            (
                "size",
                f"{figures['bytes_before'] / 1e6:,.0f} → {figures['bytes_after'] / 1e6:,.0f} MB, "
                f"{figures['entries']:,.0f} → {figures['live_entries']:,.0f} entries",
            ),
            ("live set", f"{figures['snapshot_seconds']:.1f} s"),
            ("compaction", f"{figures['compaction_seconds']:.1f} s"),
            (
                "peak memory",
                f"{figures['peak_megabytes']:.0f} MB (live set "
                f"{figures['snapshot_peak_megabytes']:.0f}, before both "
                f"{figures['idle_peak_megabytes']:.0f}); at most 512 MiB: {met}",
            ),
            ("get, before", f"p50 {before['p50_us']:,.0f} µs, p99 {before['p99_us']:,.0f} µs"),
            ("get, after", f"p50 {after['p50_us']:,.0f} µs, p99 {after['p99_us']:,.0f} µs"),
        ),
    )
