"""Spark reads and writes over TLS with a token, and shows the token nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidelog
from tests.client.served import Node
from tests.client.served import node as serving
from tests.process.children import ROOT
from tests.security.material import NEXT_TOKEN, TOKEN, WRONG_TOKEN, client, pem, server
from tidelog.errors import BadOption
from tidelog.spark.options import batch_options, stream_options

DRIVER_SECONDS = 120.0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Node]:
    """A node that wants a certificate and a token of everybody."""
    security = server(client_ca="ca", tokens=(TOKEN, NEXT_TOKEN))
    with serving(tmp_path / "log", "tls://127.0.0.1:0", security=security) as running:
        yield running


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "writers.token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    return file


def options(url: str, token_file: str) -> dict[str, str]:
    return {
        "endpoint": url,
        "tls.ca": pem("ca"),
        "tls.cert": pem("client"),
        "tls.key": pem("client.key"),
        "tokenFile": token_file,
    }


def test_rows_go_over_tls_and_the_token_shows_nowhere(
    spark: SparkSession, guarded: Node, token_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = options(guarded.url, str(token_file))
    rows = spark.range(1000).selectExpr("cast(id as string) as value")
    rows.write.format("tidelog").options(**given).mode("append").save()
    frame = spark.read.format("tidelog").options(**given, minPartitions="4").load()
    assert sorted(int(row.value) for row in frame.collect()) == list(range(1000))
    frame.explain(extended=True)
    shown = capfd.readouterr()
    assert "tidelog" in shown.out
    assert TOKEN not in shown.out + shown.err
    with tidelog.connect(guarded.url, security=client("client", token=TOKEN)) as log:
        assert log.high_watermark == 1000


def test_a_stream_goes_over_tls(
    spark: SparkSession, guarded: Node, token_file: Path, tmp_path: Path
) -> None:
    security = client("client", token=NEXT_TOKEN)
    with tidelog.connect(guarded.url, security=security) as log:
        log.create_topic("from").append_batch([b"%d" % number for number in range(100)])
        log.create_topic("to")
        given = options(guarded.url, str(token_file))
        query = (
            spark.readStream.format("tidelog")
            .options(**given, topic="from", startingOffsets="earliest")
            .load()
            .select("value")
            .writeStream.format("tidelog")
            .options(**given, topic="to", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert [record.value for record in log.topic("to").read()] == [
            b"%d" % number for number in range(100)
        ]
        for checkpointed in (tmp_path / "checkpoint").rglob("*"):
            assert checkpointed.is_dir() or TOKEN.encode() not in checkpointed.read_bytes()


@pytest.mark.soak
def test_the_token_is_in_no_page_no_event_and_no_log_of_a_driver(
    guarded: Node, token_file: Path, tmp_path: Path
) -> None:
    with tidelog.connect(guarded.url, security=client("client", token=TOKEN)) as log:
        log.create_topic("from", streams=2)
        log.create_topic("to")
    place = tmp_path / "driver"
    place.mkdir()
    arguments = [str(place), json.dumps(options(guarded.url, str(token_file)))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.secret_job", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=DRIVER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    written = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for kind in ("pages", "events", "driver.log"):
        found = b"".join(text for path, text in written.items() if kind in path.parts)
        assert b"tidelog" in found, f"no plan of the source was looked at in {kind}"
    assert b"tidelog" in done.stdout
    assert any("checkpoint" in path.parts for path in written)
    shows = [path for path, text in written.items() if TOKEN.encode() in text]
    assert shows == []
    assert TOKEN.encode() not in done.stdout + done.stderr


def test_a_file_that_spark_ships_is_told_by_its_name(
    spark: SparkSession, guarded: Node, token_file: Path
) -> None:
    spark.sparkContext.addFile(str(token_file))
    with tidelog.connect(guarded.url, security=client("client", token=TOKEN)) as log:
        log.create_topic("shipped").append_batch([b"1", b"2", b"3"])
    given = options(guarded.url, token_file.name)
    frame = spark.read.format("tidelog").options(**given, topic="shipped").load()
    assert frame.count() == 3


def test_a_wrong_token_fails_the_query_with_the_reason_but_not_the_token(
    spark: SparkSession, guarded: Node, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text(WRONG_TOKEN)
    frame = spark.read.format("tidelog").options(**options(guarded.url, str(wrong))).load()
    with pytest.raises(PySparkException, match="the token is not known here") as caught:
        frame.collect()
    assert WRONG_TOKEN not in str(caught.value)


@pytest.mark.parametrize("name", ["token", "Token", "auth.token", "password", "tls.keyPassword"])
def test_a_secret_itself_is_no_option(name: str) -> None:
    """What is refused is told how it is done, and the secret is not told again."""
    given = {"endpoint": "tidelog+tls://h", name: TOKEN}
    for parse in (batch_options, stream_options):
        with pytest.raises(BadOption, match="name a file with 'tokenFile'") as caught:
            parse(given)
        assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("name", ["tls.ca", "tls.cert", "tls.key", "tls.serverName"])
def test_an_option_about_tls_needs_an_endpoint_with_tls(name: str) -> None:
    with pytest.raises(BadOption, match=r"tidelog\+tls://"):
        batch_options({"endpoint": "tidelog://h", name: "x"})
