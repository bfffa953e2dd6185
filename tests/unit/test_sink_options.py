"""What a write from Spark may say, and which columns it may have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tidelog.errors import BadOption
from tidelog.spark.schema import default_schema
from tidelog.spark.sink import make_stream_writer, make_writer
from tidelog.spark.sink_options import (
    batch_sink_options,
    check_sink_schema,
    stream_sink_options,
)

URL = "tidelog://localhost:7447/events"


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


VALUE = columns(value=StringType())


@pytest.mark.parametrize(
    "schema",
    [
        VALUE,
        default_schema(),
        columns(key=BinaryType(), kind=StringType()),
        columns(value=BinaryType(), write_version=DecimalType(38, 0), timestamp=TimestampType()),
        columns(value=BinaryType(), blobs=ArrayType(LongType()), storage_id=LongType()),
    ],
)
def test_entries_can_be_made_of_these_columns(schema: StructType) -> None:
    check_sink_schema(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (columns(value=StringType(), colour=StringType()), "takes no column 'colour'"),
        (columns(value=DoubleType()), "'value' is double"),
        (columns(key=StringType()), "no column 'value'"),
        (
            columns(value=StringType(), write_version=DecimalType(9, 2)),
            "'write_version' is decimal",
        ),
        (columns(value=StringType(), timestamp=TimestampNTZType()), "'timestamp' is timestamp_ntz"),
        (StructType([*VALUE.fields, *VALUE.fields]), "a column twice"),
    ],
)
def test_columns_that_do_not_fit_are_named(schema: StructType, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        check_sink_schema(schema)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'endpoint' is missing"),
        ({"endpoint": URL, "txnAppId": "a"}, "go together"),
        ({"endpoint": URL, "txnVersion": "1"}, "go together"),
        ({"endpoint": URL, "txnAppId": "", "txnVersion": "1"}, "'txnAppId' is ''"),
        ({"endpoint": URL, "txnAppId": "a", "txnVersion": "-1"}, "'txnVersion' is '-1'"),
        ({"endpoint": URL, "batchBytes": "1"}, "'batchBytes' is '1'"),
        ({"endpoint": URL, "txnAppIdd": "a"}, "did you mean 'txnAppId'"),
    ],
)
def test_wrong_options_of_a_batch_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(BadOption, match=message):
        batch_sink_options(options, job="1")


def test_a_batch_has_a_writer_of_its_own_unless_it_is_a_transaction() -> None:
    assert batch_sink_options({"endpoint": URL}, job="1").writer == "job:1"
    named = batch_sink_options({"endpoint": URL, "TXNAPPID": "a", "txnversion": "7"}, job="1")
    assert (named.writer, named.batch) == ("app:a", 7)


def test_a_query_writes_under_its_id_unless_it_says_otherwise() -> None:
    """Its name is not unique: a new checkpoint under an old name begins at batch 0 again."""
    assert stream_sink_options({"endpoint": URL, "queryName": "q"}).writer == ""
    assert stream_sink_options({"endpoint": URL, "writerId": "w"}).writer == "writer:w"
    with pytest.raises(BadOption, match="'writerId' is ''"):
        stream_sink_options({"endpoint": URL, "writerId": ""})


def test_a_log_cannot_be_overwritten() -> None:
    with pytest.raises(BadOption, match=r"mode\('append'\)"):
        make_writer({"endpoint": URL}, VALUE, overwrite=True)
    with pytest.raises(BadOption, match=r"outputMode\('append'\)"):
        make_stream_writer({"endpoint": URL}, VALUE, overwrite=True)
