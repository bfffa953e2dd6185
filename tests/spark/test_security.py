"""Spark reads and writes over TLS with a token, and shows the token nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import tidelog
from tests.client.served import Node
from tests.client.served import node as serving
from tests.security.material import NEXT_TOKEN, TOKEN, WRONG_TOKEN, client, pem, server
from tidelog.errors import BadOption
from tidelog.spark.options import batch_options


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


def test_a_token_itself_is_no_option() -> None:
    with pytest.raises(BadOption, match="tokenFile") as caught:
        batch_options({"endpoint": "tidelog+tls://h", "token": TOKEN})
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("name", ["tls.ca", "tls.cert", "tls.key", "tls.serverName"])
def test_an_option_about_tls_needs_an_endpoint_with_tls(name: str) -> None:
    with pytest.raises(BadOption, match=r"tidelog\+tls://"):
        batch_options({"endpoint": "tidelog://h", name: "x"})
