"""A declarative pipeline between topics; run it with ``make pipeline``.

A log gets orders, ``spark-pipelines run`` turns them into tables and writes the large ones to
another topic.  More orders come, and a second run takes only those.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from tidelog.errors import LogError
from tidelog.pipeline.requirements import check_requirements
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from tidelog.client.blocking import RemoteLog

PROJECT: Final = Path(__file__).parent
STORAGE: Final = "file:///var/tmp/tidelog-orders"
CATALOG: Final = "spark.sql.catalogImplementation=hive"
"""Tables are known to the next run, too; Spark's default forgets them."""
EVENT: Final = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d): ((?:Flow|Run) .*)")
COUNTRIES: Final = ("DE", "FR", "JP", "US")
LARGE_CENTS: Final = 90_000

Order = dict[str, str | int]


def main() -> None:
    parser = argparse.ArgumentParser("python -m examples.declarative", description=__doc__)
    parser.add_argument("--orders", type=int, default=100_000, help="in each of two runs")
    options = parser.parse_args()
    try:
        check_requirements(delta=False)
    except LogError as error:
        sys.exit(f"examples/declarative: {error}")
    with tempfile.TemporaryDirectory(prefix="declarative-") as directory:
        run(Path(directory), options.orders)
    say("\nEverything is stopped.")


def run(place: Path, count: int) -> None:
    """Two runs of the pipeline, each after as many orders have come; all files in ``place``."""
    say("1. Three nodes start.")
    with LocalCluster(3, topic="orders") as cluster, cluster.connect() as log:
        log.create_topic("large-orders")
        found: list[Order] = []
        for number in (2, 3):
            say(f"\n{number}. {count:,} orders come, and `spark-pipelines run` takes them.")
            came = [order(len(found) + i) for i in range(count)]
            log.append_batch([json.dumps(one).encode() for one in came])
            found += came
            run_pipeline(place, cluster.url.removeprefix("tidelog://").partition("/")[0])
            compare(place, log, found)


def order(number: int) -> Order:
    """The same on every machine."""
    random = Random(number)  # noqa: S311 - no secrets here.
    country, cents = random.choice(COUNTRIES), random.randrange(100_000)
    return {"number": number, "country": country, "cents": cents}


def run_pipeline(place: Path, nodes: str) -> None:
    """What the command of the README does, but with all files in a place of its own."""
    spec = (PROJECT / "spark-pipeline.yml").read_text(encoding="utf-8")
    (place / "spark-pipeline.yml").write_text(spec.replace(STORAGE, f"file://{place}/storage"))
    shutil.copytree(PROJECT / "transformations", place / "transformations", dirs_exist_ok=True)
    program = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TIDELOG_NODES": nodes,
    }
    said = []
    with subprocess.Popen(
        [program, "--conf", CATALOG, "--conf", "spark.ui.showConsoleProgress=false", "run"],
        cwd=place,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if event := EVENT.match(line):
                say(f"   {event[1]}  {event[2]}")
    if process.returncode != 0:
        sys.exit("".join([*said, "spark-pipelines failed"]))


def compare(place: Path, log: RemoteLog, orders: Sequence[Order]) -> None:
    """Tables and topic are what plain Python makes of the same orders."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - not before it was found to be there.

    cents: Counter[str] = Counter()
    for one in orders:
        cents[str(one["country"])] += int(one["cents"])
    rows = pq.read_table(place / "spark-warehouse" / "revenue").to_pylist()
    large = sorted(one["number"] for one in orders if int(one["cents"]) >= LARGE_CENTS)
    sent = [json.loads(record.value)["number"] for record in log.topic("large-orders").read()]
    if {row["country"]: row["cents"] for row in rows} != cents or sorted(sent) != large:
        sys.exit("the tables differ from the log: please report this")
    say(f"   revenue of {len(rows)} countries is right: {sum(cents.values()) / 100:,.2f}")
    say(f"   {len(sent):,} large orders are in their topic, each once")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
