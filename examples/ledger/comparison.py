"""Compares what the pipeline made with the plain model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import tidelog
from examples.ledger.accounts import Finding
from examples.ledger.model import Minute, Model
from tidelog.pipeline import read_table


@dataclass(frozen=True, slots=True)
class Results:
    """All that came out, and up to which time of the movements minutes and findings go."""

    balances: dict[str, int]
    minutes: dict[int, Minute]
    minutes_ms: int
    findings: list[tuple[str, Finding]]
    findings_ms: int

    def differences(self, model: Model) -> list[str]:
        """What is not as the model says."""
        pairs = {
            "the table of accounts": (self.balances, model.balances),
            "the sums of the minutes": (self.minutes, model.minutes(self.minutes_ms)),
            "the findings": (sorted(self.findings), sorted(model.findings(self.findings_ms))),
        }
        return [name for name, (found, expected) in pairs.items() if found != expected]


def balances(spark: SparkSession, table: Path) -> dict[str, int]:
    """Account → balance, from the table."""
    line = f.from_json(f.col("value").cast("string"), "balance BIGINT")
    rows = read_table(spark, str(table)).select(f.col("key").cast("string"), line["balance"])
    found = [(account, balance) for account, balance in rows.collect()]
    assert len({account for account, _ in found}) == len(found), "an account is there twice"
    return dict(found)


def minutes(spark: SparkSession, directory: Path) -> dict[int, Minute]:
    """Begin of a minute → what was paid in it, from the Parquet files."""
    rows = spark.read.parquet(str(directory))
    found = rows.select(f.unix_millis("minute"), "movements", "paid_in", "paid_out").collect()
    assert len({begin for begin, *_ in found}) == len(found), "a minute is there twice"
    return {begin: Minute(*sums) for begin, *sums in found}


def findings(url: str) -> list[tuple[str, Finding]]:
    """What the check found, from its topic; what it wrote twice is there twice."""
    with tidelog.connect(url) as log:
        found = [json.loads(record.value) for record in log.read()]
    return [(one["account"], Finding(one["kind"], one["sequence"], one["detail"])) for one in found]
