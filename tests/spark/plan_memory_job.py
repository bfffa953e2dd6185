"""A driver whose Python workers have little memory: ``python -m ... URL DIRECTORY ROWS_MAX``."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from tests.spark import sessions
from tidelog.errors import LogError
from tidelog.pipeline import compact_plan
from tidelog.pipeline.compaction_plan import planning

WORKER_MEMORY = "1700m"
"""Of addresses, of which a worker that has imported all takes 1.4 GiB."""


def main() -> None:
    url, directory, rows_max = sys.argv[1:]
    sessions.SETTINGS["spark.executor.pyspark.memory"] = WORKER_MEMORY
    with (
        patch.object(planning, "ROWS_MAX", int(rows_max)),
        sessions.spark_session(Path(directory)) as spark,
    ):
        try:
            summary = compact_plan(url, buckets=1, spark=spark)
        except LogError as error:
            sys.exit(str(error.__cause__))
    print(summary.live, summary.dead)


if __name__ == "__main__":
    main()
