"""``python -m bench``: measure everything, print it, and with ``--write`` keep it.

What was measured takes the place of the same parts of the page; the others stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench import (
    appends,
    client,
    failover,
    large,
    order,
    pair,
    scaling,
    spans,
    spark_cluster,
    spark_read,
    spark_write,
)
from bench.machine import facts
from bench.page_cache import PageCache
from bench.peers import running as peers
from bench.peers import works as peer_works
from bench.plots import PLOTS
from bench.report import Results, merged, page
from bench.report_peers import peer_plots
from bench.report_scaling import scaling_plots

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "bench" / "RESULTS.md"
PARTS = (
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".bench", help="where to measure")
    parser.add_argument("--only", choices=PARTS, help="measure one part")
    parser.add_argument(
        "--peers",
        default=",".join(peers.PEERS),
        help="which systems the part of that name measures (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds", type=int, help="how often each of these systems has its turn (default: 3)"
    )
    parser.add_argument(
        "--cache", type=Path, default=ROOT / ".peers", help="where fetched peers are kept"
    )
    parser.add_argument("--quick", action="store_true", help="a small run: do the parts work?")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    if unknown := set(options.peers.split(",")) - set(peers.PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return options


def tell(text: str) -> None:
    sys.stderr.write(text + "\n")


def run(options: argparse.Namespace, directory: Path) -> Results:
    parts = PARTS if options.only is None else (options.only,)
    command = " ".join(("python -m bench", *sys.argv[1:]))
    results = Results(facts(directory), command)
    page_cache = PageCache(directory, 0 if options.quick else None)
    page_cache.fill()
    if "appends" in parts:
        scale = appends.QUICK if options.quick else appends.Scale()
        for figures in appends.measure_appends(directory, scale, page_cache.fill):
            results.appends.append(figures)
            rates = ", ".join(f"{f.engine} {f.records_per_second:,.0f}/s" for f in figures)
            tell(f"{figures[1].work.name}: {rates}")
    if "large" in parts:
        size = large.QUICK if options.quick else large.Scale()
        for name, measured in large.measure_large(directory, size):
            results.large[name] = measured
            tell_of(name, measured)
    if "client" in parts:
        for name, measured in client.measure_client(
            directory, client.QUICK if options.quick else client.Scale()
        ):
            results.client[name] = measured
            tell_of(name, measured)
    if "pair" in parts:
        of_pair = pair.QUICK if options.quick else pair.Scale()
        for name, measured in pair.measure_pair(directory, of_pair):
            results.pair[name] = measured
            tell_of(name, measured)
    if "spark" in parts:
        for name, measured in spark_figures(directory, quick=options.quick):
            results.spark[name] = measured
            tell_of(name, measured)
    if "spark-cluster" in parts:
        of_cluster = spark_cluster.QUICK if options.quick else spark_cluster.Scale()
        for name, measured in spark_cluster.measure_spark_on_cluster(directory, of_cluster):
            results.spark_cluster[name] = measured
            tell_of(name, measured)
    if "order" in parts:
        scale_of_order = order.QUICK if options.quick else order.Scale()
        for name, measured in order.measure_order(directory, scale_of_order):
            results.order[name] = measured
            tell_of(name, measured)
    if "failover" in parts:
        rounds = failover.QUICK if options.quick else failover.Scale()
        for name, measured in failover.measure_failover(directory, rounds):
            results.failover[name] = measured
            tell_of(name, measured)
    if "spans" in parts:
        of_spans = spans.QUICK if options.quick else spans.Scale()
        for name, measured in spans.measure_spans(directory, of_spans):
            results.spans[name] = measured
            tell_of(name, measured)
    if "scaling" in parts:
        of_scaling = scaling.QUICK if options.quick else scaling.Scale()
        for curve, point in scaling.measure_scaling(directory, of_scaling, page_cache.fill):
            results.scaling.setdefault(curve, []).append(point)
            tell_of(f"{curve.value}: {point.text}", point.figures)
    if "peers" in parts:
        works = peer_works.QUICK if options.quick else peer_works.Scale()
        works = replace(works, rounds=options.rounds or works.rounds)
        names = options.peers.split(",")
        results.peers = peers.measure_peers(
            directory, options.cache, works, names, tell, page_cache.fill
        )
    return results


def spark_figures(directory: Path, *, quick: bool) -> Iterator[tuple[str, dict[str, float]]]:
    yield from spark_read.measure_spark_reads(
        directory, spark_read.QUICK if quick else spark_read.Scale()
    )
    yield from spark_write.measure_spark_writes(
        directory, spark_write.QUICK if quick else spark_write.Scale()
    )


def tell_of(name: str, measured: dict[str, float]) -> None:
    tell(f"{name}: " + ", ".join(f"{k} {v:,.2f}" for k, v in measured.items()))


def write_plots(results: Results) -> None:
    plots = scaling_plots(results.scaling)
    if results.peers is not None:
        plots |= peer_plots(results.peers)
    place = PAGE.parent / PLOTS
    place.mkdir(exist_ok=True)
    for name, text in plots.items():
        (place / name).write_text(text, encoding="utf-8")


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = options.data.absolute()
    directory.mkdir(parents=True)
    try:
        results = run(options, directory)
    finally:
        shutil.rmtree(directory)
    sys.stdout.write(page(results))
    if options.write:
        known = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        PAGE.write_text(merged(known, results), encoding="utf-8")
        write_plots(results)


if __name__ == "__main__":
    main()
