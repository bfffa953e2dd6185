"""Tidelog's main job on this machine, end to end; run it with ``make run``.

Three nodes start.  Four branches of a bank write a million movements; a leader is killed meanwhile.
Spark turns the log into a table of accounts, sums of each minute, and findings of a check with
memory.  All of it is compared with a plain model, every replica is audited, and all is stopped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.ledger.filling import TOPIC, fill
from examples.ledger.model import Model
from examples.ledger.movements import Plan
from examples.ledger.saying import Murmur, say, step
from tidelog.errors import LogError
from tidelog.pipeline import audit
from tidelog.pipeline.requirements import check_requirements
from tidelog.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from examples.ledger.pipeline import Pipeline

FINDINGS: Final = "findings"
BATCHES: Final = 4
"""In as many micro-batches does each job read the log."""


def main() -> None:
    options = _options()
    try:
        check_requirements(delta=True)
        plan = Plan(options.events, options.accounts, seed=options.seed)
    except (LogError, ValueError) as error:
        sys.exit(f"examples/ledger: {error}")
    with _place(options.keep) as place:
        run(plan, place, options.master)
    say("Everything is stopped.")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m examples.ledger", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="movements of all branches")
    parser.add_argument("--accounts", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1, help="other numbers, other movements")
    parser.add_argument("--master", default="local[*]", help="where Spark runs")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all files, in this place")
    return parser.parse_args()


@contextmanager
def _place(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="ledger-") as directory:
        yield Path(directory)


def run(plan: Plan, place: Path, master: str) -> None:
    """All steps; every file is below ``place``."""
    # They import Spark, which takes a moment and may have been missing.
    from examples.ledger.pipeline import Pipeline, spark_session  # noqa: PLC0415

    step(1, "Three nodes start, each in its process, and find each other.")
    with LocalCluster(3, directory=place / "nodes") as cluster:
        say(f"ready at {cluster.url}")
        step(2, f"{plan.branches} branches write {plan.events:,} movements.")
        fill(cluster, plan)
        with cluster.connect() as log:
            log.create_topic(FINDINGS)
            records = -(-log.topic(TOPIC).high_watermark // BATCHES)
        url, findings_url = cluster.url_of(TOPIC), cluster.url_of(FINDINGS)
        step(3, "Spark starts.")
        with spark_session(master, place / "spark.log") as spark:
            process(plan, Pipeline(spark, url, findings_url, place, records))
            step(8, "Every replica is compared with every other one.")
            look_at_replicas(url, place / "audit.html", spark)


def process(plan: Plan, pipeline: Pipeline) -> None:
    """The jobs, and the comparison of their results."""
    from examples.ledger import comparison  # noqa: PLC0415

    step(4, "A Delta table keeps the newest movement of each account.")
    pipeline.keep_accounts()
    step(5, "Parquet files get the sums of each minute, by the time of the movements.")
    minutes_ms = pipeline.sum_minutes()
    step(6, "A check with memory looks for overdrawn accounts and for missing movements.")
    findings_ms = pipeline.check_balances()
    step(7, "A plain model says what should have come out.")
    results = comparison.Results(
        comparison.balances(pipeline.spark, pipeline.accounts),
        comparison.minutes(pipeline.spark, pipeline.minutes),
        minutes_ms,
        comparison.findings(pipeline.findings_url),
        findings_ms,
    )
    if wrong := results.differences(Model.of(plan)):
        sys.exit(f"{' and '.join(wrong)} differ from the model: please report this")
    kinds = Counter(finding.kind for _, finding in results.findings)
    say(f"{len(results.balances):,} balances are equal")
    say(f"{len(results.minutes)} minutes are equal; later ones may still change")
    say(f"{kinds['overdrawn']} overdrawn accounts and {kinds['gap']} gaps are those that were made")


def look_at_replicas(url: str, report: Path, spark: SparkSession) -> None:
    """The audit of all topics, with a report to look at."""
    murmur = Murmur()
    done = audit(url, report=report, progress=lambda found: murmur(found.what), spark=spark)
    if not (done.is_sound and done.is_complete):
        wrong = [finding.what for finding in done.findings] + [one.why for one in done.left_out]
        sys.exit(f"the audit is not content: {'; '.join(wrong)}")
    say(
        f"{done.entries:,} entries of {len(done.replicas)} replicas are sound; "
        f"{done.entries / done.seconds:,.0f} a second"
    )


if __name__ == "__main__":
    main()
