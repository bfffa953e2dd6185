"""A driver that shows all it can: ``python -m tests.spark.secret_job DIRECTORY OPTIONS``.

It reads and writes a topic, with its pages, its event log and a talkative log switched on; what
its pages and its REST interface say is in ``DIRECTORY/pages``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import SparkSession

from tests.spark.sessions import MASTER, SETTINGS

ROWS = 50
LOG4J = """
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n
logger.py4j.name = py4j
logger.py4j.level = info
"""
PAGES = ("", "jobs/", "stages/", "environment/", "executors/", "SQL/", "StreamingQuery/")
FIGURES = ("jobs", "stages", "environment", "executors", "sql?details=true&planDescription=true")
PAGE_SECONDS = 30.0


def main() -> None:
    directory, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    with talkative_session(directory) as spark:
        rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
        rows.write.format("tidelog").options(**options, topic="from").mode("append").save()
        query = (
            spark.readStream.format("tidelog")
            .options(**options, topic="from", startingOffsets="earliest")
            .load()
            .select("value")
            .writeStream.format("tidelog")
            .options(**options, topic="to", checkpointLocation=str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .queryName("copy")
            .start()
        )
        query.awaitTermination()
        print(query.lastProgress)
        copied = spark.read.format("tidelog").options(**options, topic="to").load()
        copied.explain(extended=True)
        assert copied.count() == ROWS
        (directory / "pages").mkdir()
        for number, (address, text) in enumerate(pages(spark)):
            (directory / "pages" / str(number)).write_text(f"{address}\n{text}")


def talkative_session(directory: Path) -> SparkSession:
    log4j = directory / "log4j2.properties"
    log4j.write_text(LOG4J.format(file=directory / "driver.log"))
    (directory / "events").mkdir()
    builder = SparkSession.builder.master(MASTER).appName("secrets")
    settings = {
        **SETTINGS,
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(directory / "events"),
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log4j} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        ),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def pages(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """All pages and figures, with one page for each query that ran."""
    context = spark.sparkContext
    root, figures = context.uiWebUrl, f"api/v1/applications/{context.applicationId}"
    executions = [f"SQL/execution/?id={number}" for number in range(4)]
    for path in (*PAGES, *executions, *(f"{figures}/{name}" for name in FIGURES)):
        address = f"{root}/{path}"
        with urlopen(address, timeout=PAGE_SECONDS) as answer:
            yield address, answer.read().decode()


if __name__ == "__main__":
    main()
