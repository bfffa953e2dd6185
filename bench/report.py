"""Figures as a page of Markdown.  No state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.appends import Figure, best_peer
from bench.peers.running import PeerResults
from bench.report_failover import failover_section
from bench.report_order import order_section
from bench.report_pair import pair_section
from bench.report_peers import peers_section
from bench.report_scaling import scaling_section
from bench.report_served import client_section, spark_cluster_section, spark_section
from bench.report_spans import spans_section
from bench.scaling import Curve, Point
from bench.tables import table

BATCHED_OF_DISK_MIN = 0.6
BATCHED_OF_PEERS_MIN = 3.0
SINGLE_OF_SYNC_MAX = 1.5
COMPACTION_MEGABYTES_MAX = 512 * 1.048576


TITLE = """# Results

Each part was measured in one run by the command that it names: engines took turns, and the median
of the repeats counts. Compare figures of one run with one another, never with those of another day
or machine."""
_PART = "<!-- part: {} -->"


@dataclass(slots=True)
class Results:
    facts: dict[str, str]
    command: str
    appends: list[list[Figure]] = field(default_factory=list)
    large: dict[str, dict[str, float]] = field(default_factory=dict)
    client: dict[str, dict[str, float]] = field(default_factory=dict)
    pair: dict[str, dict[str, float]] = field(default_factory=dict)
    spark: dict[str, dict[str, float]] = field(default_factory=dict)
    spark_cluster: dict[str, dict[str, float]] = field(default_factory=dict)
    order: dict[str, dict[str, float]] = field(default_factory=dict)
    failover: dict[str, dict[str, float]] = field(default_factory=dict)
    spans: dict[str, dict[str, float]] = field(default_factory=dict)
    scaling: dict[Curve, list[Point]] = field(default_factory=dict)
    peers: PeerResults | None = None


def page(results: Results) -> str:
    """What was measured, as a whole page."""
    return merged("", results)


def merged(known: str, results: Results) -> str:
    """A page with what was measured in place of the same parts of a known one."""
    parts = _parts_of(known) | _sections(results)
    order = (
        "appends",
        "large",
        "client",
        "pair",
        "spark",
        "spark-cluster",
        "order",
        "failover",
        "spans",
        "scaling",
        "peers",
    )
    text = [f"{_PART.format(name)}\n\n{parts[name]}" for name in order if name in parts]
    return "\n\n".join([TITLE, *text]) + "\n"


def _parts_of(known: str) -> dict[str, str]:
    before, after = _PART.split("{}")
    pieces = [piece.split(after, 1) for piece in known.split(before)[1:]]
    return {name: text.strip() for name, text in pieces}


def _sections(results: Results) -> dict[str, str]:
    run = f"Run: `{results.command}`\n\n{table(('machine', ''), results.facts.items())}"
    sections: dict[str, str] = {}
    if results.appends:
        goals = _targets(results.appends)
        sections["appends"] = f"## Appends\n\n{run}\n\n{goals}\n\n{_append_tables(results.appends)}"
    if results.large:
        sections["large"] = f"## Large logs\n\n{run}\n\n{_large(results.large)}"
    if results.client:
        sections["client"] = f"## Client and node\n\n{run}\n\n{client_section(results.client)}"
    if results.pair:
        text = pair_section(results.pair)
        sections["pair"] = f"## Datastore and replica\n\n{run}\n\n{text}"
    if results.spark:
        sections["spark"] = f"## Spark\n\n{run}\n\n{spark_section(results.spark)}"
    if results.spark_cluster:
        text = spark_cluster_section(results.spark_cluster)
        sections["spark-cluster"] = f"## Spark and a cluster\n\n{run}\n\n{text}"
    if results.order:
        sections["order"] = f"## Order layer\n\n{run}\n\n{order_section(results.order)}"
    if results.failover:
        text = failover_section(results.failover)
        sections["failover"] = f"## Cluster and fail-over\n\n{run}\n\n{text}"
    if results.spans:
        text = spans_section(results.spans)
        sections["spans"] = f"## Where a record's time goes\n\n{run}\n\n{text}"
    if results.scaling:
        sections["scaling"] = f"## Scaling\n\n{run}\n\n{scaling_section(results.scaling)}"
    if results.peers is not None:
        sections["peers"] = f"## Peers\n\n{run}\n\n{peers_section(results.peers)}"
    return sections


# ---- appends


def _targets(works: Sequence[list[Figure]]) -> str:
    rows = []
    for figures in works:
        disk, tidelog, peer = figures[0], _of(figures, "tidelog"), best_peer(figures)
        work = tidelog.work
        if work.threads > 1:
            continue
        if work.batch == 1:
            ratio = tidelog.p50_us / disk.p50_us
            of_peer = tidelog.records_per_second / peer.records_per_second
            rows.append(
                (
                    work.name,
                    f"{ratio:.2f} × one sync (goal ≤ {SINGLE_OF_SYNC_MAX})",
                    _yes(ratio <= SINGLE_OF_SYNC_MAX),
                    f"{of_peer:.2f} × {peer.engine}",
                    "",
                )
            )
            continue
        for figure in (tidelog, _of(figures, "appender")):
            share = figure.records_per_second / disk.records_per_second
            of_peer = figure.records_per_second / peer.records_per_second
            rows.append(
                (
                    f"{work.name}{', appender' if figure.engine == 'appender' else ''}",
                    f"{share:.0%} of the disk (goal ≥ {BATCHED_OF_DISK_MIN:.0%})",
                    _yes(share >= BATCHED_OF_DISK_MIN),
                    f"{of_peer:.2f} × {peer.engine} (goal ≥ {BATCHED_OF_PEERS_MIN:.0f})",
                    _yes(of_peer >= BATCHED_OF_PEERS_MIN),
                )
            )
    headers = ("work", "to the disk", "met", "to the best peer", "met")
    return "### Goals\n\n" + table(headers, rows)


def _yes(met: bool) -> str:
    return "yes" if met else "no"


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
        "Each call is durable when it returns; *appender*: when its future is done, and up to 8 "
        "MiB are under way. *disk*: the same bytes written to a file that has its blocks already, "
        "then fdatasync, by one thread. *disk-twice*: the same, and each full file is written to a "
        "new one meanwhile, as who moves a log into segments must. Tidelog's time runs until all "
        "rolled WAL files are in segments, the others' until the last call returned. SQLite: WAL, "
        "synchronous=FULL, one transaction for a batch; LMDB: synced commits, append mode for "
        "records without keys; RocksDB: one synced WriteBatch. Keys: 16 bytes, one of a million."
    )
    return f"### All figures\n\n{note}\n\n{table(headers, rows)}"


def _of(figures: Sequence[Figure], engine: str) -> Figure:
    return next(figure for figure in figures if figure.engine == engine)


# ---- large logs


def _large(large: dict[str, dict[str, float]]) -> str:
    sections: list[str] = []
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
