"""Tidelog's main job, end to end, on one machine: producers → log → Spark → table.

Run it with ``make run``.  It serves a log, has several processes write a million keyed events to
it, lets a Spark streaming job keep a table of the newest event of each key, checks the table
against the log, compacts the log, and stops everything.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tidelog
from tidelog.errors import Unavailable
from tidelog.pipeline import BatchProgress, materialize
from tidelog.pipeline.requirements import check_requirements

PRODUCERS = 4
BATCH = 2_000
STOP_SECONDS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    try:
        check_requirements(delta=True)
    except Unavailable as error:
        sys.exit(f"examples/pipeline.py: {error}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="tidelog-run-") as directory:
        table = Path(directory, "table")
        with served(Path(directory, "log")) as url:
            produce(url, options.events, options.keys)
            to_table(url, table)
            check(url, table)
            compact(url)
    say(f"\nEverything is stopped. {time.perf_counter() - started:.0f} s in all.")


@contextmanager
def served(data: Path) -> Iterator[str]:
    """A node of four log streams; yields its URL."""
    command = ["serve", "--data", str(data), "--listen", "tcp://127.0.0.1:0", "--http", "none"]
    node = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *command, "--streams", "4"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert node.stdout is not None
        word, _, address = node.stdout.readline().strip().partition(" ")
        if word != "ready":
            sys.exit("the node did not start")
        url = address.replace("tcp://", "tidelog://")
        say(f"1. A node serves a log of 4 log streams at {url}.")
        yield url
    finally:
        node.send_signal(signal.SIGTERM)
        node.wait(STOP_SECONDS)


def produce(url: str, events: int, keys: int) -> None:
    """Several processes put and delete keys, batch by batch; every batch is fsynced."""
    say(f"\n2. {PRODUCERS} processes write {events:,} events about {keys:,} keys.")
    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    shares = [
        (url, number, events // PRODUCERS + (number < events % PRODUCERS), keys)
        for number in range(PRODUCERS)
    ]
    with context.Pool(PRODUCERS) as pool:
        pool.starmap(write_events, shares)
    seconds = time.perf_counter() - started
    with tidelog.connect(url) as log:
        stats = log.stats()
    say(f"   {events / seconds:,.0f} events/s; the last one is GLSN {stats.high_watermark:,}.")


def write_events(url: str, producer: int, count: int, keys: int) -> None:
    """One producer: each key sees events of all producers, in an order that the log decides."""
    with tidelog.connect(url) as log:
        for begin in range(0, count, BATCH):
            numbers = range(begin, min(begin + BATCH, count))
            items = []
            for number in numbers:
                key = (number * 7919 + producer * 104_729) % keys
                event = {"order": key, "status": number % 5, "by": producer, "note": "x" * 40}
                items.append((b"order-%07d" % key, json.dumps(event).encode()))
            log.put_batch(items)
            log.delete(items[0][0])


def to_table(url: str, table: Path) -> None:
    """A streaming job that ends at the end of the log; run again, it would go on there."""
    say("\n3. A Spark streaming job turns the changes into a table.")

    def show(batch: BatchProgress) -> None:
        say(
            f"   batch {batch.batch}: GLSN {batch.glsn_begin:,} to {batch.glsn_end - 1:,}, "
            f"{batch.counts.entries / max(batch.seconds, 1e-9):,.0f} entries/s"
        )

    done = materialize(url, table, max_records_per_trigger=400_000, progress=show)
    counts = done.counts
    say(
        f"   {counts.puts:,} puts and {counts.deletes:,} deletes, all that compaction had not "
        f"dropped meanwhile, became {done.table_rows:,} rows in {done.seconds:.0f} s."
    )


def check(url: str, table: Path) -> None:
    """Replay the log in its total order, and compare."""
    from deltalake import DeltaTable  # noqa: PLC0415

    say("\n4. The log is replayed in its total order and compared with the table.")
    started = time.perf_counter()
    expected: dict[bytes, bytes] = {}
    count = 0
    with tidelog.connect(url) as log:
        for batch in log.read_arrow(columns=["kind", "key", "value"]):
            columns = (column.to_pylist() for column in batch.columns)
            for kind, key, value in zip(*columns, strict=True):
                if kind == "PUT":
                    expected[key] = value
                else:
                    expected.pop(key, None)
            count += batch.num_rows
    rows = DeltaTable(str(table)).to_pyarrow_table(columns=["key", "value"])
    found = dict(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
    if found != expected:
        sys.exit("   The table differs from the log: this is a bug, please report it.")
    seconds = time.perf_counter() - started
    say(f"   {count:,} entries read in {seconds:.0f} s: all {len(found):,} rows are equal.")


def compact(url: str) -> None:
    """What newer events replaced goes."""
    with tidelog.connect(url, timeout=STOP_SECONDS * 4) as log:
        log.compact(full=True)
        stats = log.stats()
    live = sum(stream.live_entries for stream in stats.streams)
    say(
        f"\n5. Compaction left {live:,} of {stats.high_watermark:,} entries: the newest of each "
        f"key, in {stats.segments} segments of {stats.segment_bytes / (1 << 20):.1f} MiB in all."
    )


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
