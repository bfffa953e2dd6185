"""What users may say about a read, and how they are told that something is wrong.  No Spark."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tidelog.errors import BadAddress, BadOption
from tidelog.interface import arrow
from tidelog.spark.offsets import EARLIEST, LATEST, Anchor, Offset, Place, parse_place, parse_time
from tidelog.spark.options import BATCH, STREAM, batch_options, stream_options
from tidelog.spark.partitions import GlsnRange, plan_partitions
from tidelog.spark.schema import COLUMNS, DEFAULT_COLUMNS, chosen_columns, default_schema

URL = "tidelog://localhost:7447/orders"


def test_the_defaults_read_all_of_a_batch_and_what_comes_next_of_a_stream() -> None:
    batch = batch_options({"endpoint": URL})
    assert (batch.start, batch.end) == (EARLIEST, LATEST)
    assert batch.connection.topic == "orders"
    assert batch.fail_on_data_loss
    stream = stream_options({"endpoint": URL})
    assert stream.start == LATEST
    assert (stream.records_per_trigger, stream.bytes_per_trigger) == (0, 0)
    assert stream.fetch_wait == 0.5
    assert stream.connection.timeout == 120


def test_every_option_is_understood_in_any_case() -> None:
    options = stream_options(
        {
            "URL": "tidelog://h:1",
            "TOPIC": "t",
            "startingoffsets": "17",
            "MAXRECORDSPERTRIGGER": "10",
            "maxbytespertrigger": "20",
            "minPartitions": "3",
            "maxRecordsPerPartition": "7",
            "failOnDataLoss": "False",
            "fetchWaitMs": "0",
            "READERNAME": " report ",
            "timeoutMs": "1500",
            "connectTimeoutMs": "250",
        }
    )
    assert options.connection.topic == "t"
    assert options.start == Place(Anchor.GLSN, 17)
    assert (options.records_per_trigger, options.bytes_per_trigger) == (10, 20)
    assert (options.partitions_min, options.records_per_partition) == (3, 7)
    assert options.reader == "report"
    assert not options.fail_on_data_loss
    assert (options.fetch_wait, options.connection.timeout) == (0.0, 1.5)
    assert options.connection.connect_timeout == 0.25


def test_a_topic_may_be_in_the_url_or_an_option_or_left_out() -> None:
    assert batch_options({"endpoint": "tidelog://h"}).connection.topic == "default"
    assert batch_options({"endpoint": "tidelog://h/a", "topic": "a"}).connection.topic == "a"
    with pytest.raises(BadOption, match="'topic' says 'b', but 'endpoint' says 'a'"):
        batch_options({"endpoint": "tidelog://h/a", "topic": "b"})


@pytest.mark.parametrize(
    ("given_options", "says"),
    [
        ({}, "'endpoint' is missing"),
        ({"endpoint": URL, "url": URL}, "are the same"),
        ({"endpoint": URL, "startingOffset": "1"}, "did you mean 'startingOffsets'"),
        (
            {"endpoint": URL, "path": "x"},
            "has no option 'path': there are archive, connectTimeoutMs, ",
        ),
        ({"endpoint": URL, "startingOffsets": "soon"}, "'soon': give earliest, latest, a GLSN"),
        ({"endpoint": URL, "startingOffsets": "0"}, "'0': give earliest"),
        ({"endpoint": URL, "startingOffsets": "-2"}, "'-2': give earliest"),
        ({"endpoint": URL, "startingOffsets": '{"orders":{"0":1}}'}, "give earliest"),
        ({"endpoint": URL, "startingOffsets": "true"}, "give earliest"),
        ({"endpoint": URL, "startingOffsets": "1", "startingTimestamp": "1"}, "exclude each other"),
        ({"endpoint": URL, "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"endpoint": URL, "failOnDataLoss": "no"}, "give true or false"),
        ({"endpoint": URL, "minPartitions": "0"}, "'minPartitions' is '0': give a whole number"),
        ({"endpoint": URL, "maxRecordsPerPartition": "many"}, "give a whole number from 1 on"),
        ({"endpoint": URL, "timeoutMs": "-1"}, "give a whole number from 1 on"),
        ({"endpoint": URL, "timeoutMs": "9" * 30}, "give a whole number from 1 on"),
    ],
)
def test_wrong_options_of_both_uses_are_refused_with_a_remedy(
    given_options: dict[str, str], says: str
) -> None:
    for parse in (batch_options, stream_options):
        with pytest.raises(BadOption) as caught:
            parse(given_options)
        assert says in str(caught.value)


@pytest.mark.parametrize(
    ("given_options", "says"),
    [
        ({"maxRecordsPerTrigger": "5"}, "'maxRecordsPerTrigger' is for spark.readStream only"),
        ({"fetchWaitMs": "5"}, "'fetchWaitMs' is for spark.readStream only"),
        ({"readerName": "x"}, "'readerName' is for spark.readStream only"),
        ({"startingOffsets": "latest"}, "a batch from there on has no rows"),
        ({"endingOffsets": "earliest"}, "a batch up to there has no rows"),
        ({"endingOffsets": "1", "endingTimestamp": "1"}, "exclude each other"),
    ],
)
def test_options_that_make_no_sense_for_a_batch(given_options: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption) as caught:
        batch_options({"endpoint": URL, **given_options})
    assert says in str(caught.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(BadOption, match=r"'endingOffsets' is for spark\.read only"):
        stream_options({"endpoint": URL, "endingOffsets": "latest"})


def test_a_wrong_url_says_how_to_write_one() -> None:
    with pytest.raises(BadAddress, match="write tidelog://host:port/topic"):
        batch_options({"endpoint": "localhost:7447"})


def test_every_option_is_in_one_of_the_lists_once() -> None:
    assert len(set(BATCH)) == len(BATCH)
    assert len(set(STREAM)) == len(STREAM)


# -- offsets -------------------------------------------------------------------------------------


def test_places_are_words_numbers_or_offsets_of_a_progress() -> None:
    assert parse_place("Earliest") == EARLIEST
    assert parse_place("latest") == LATEST
    assert parse_place("42") == Place(Anchor.GLSN, 42)
    assert parse_place('{"glsn":42,"from":7}') == Place(Anchor.GLSN, 42)
    for wrong in ("", "[1]", "1.5", '{"glsn":"1"}', '{"glsn":0}', "{", "NaN", str(1 << 63)):
        assert parse_place(wrong) is None


def test_times_are_milliseconds_or_iso_8601() -> None:
    assert parse_time("1700000000001") == Place(Anchor.TIME, 1_700_000_000_001_000)
    assert parse_time("-1") == Place(Anchor.TIME, -1000)
    wanted = Place(Anchor.TIME, 1_700_000_000_000_001)
    assert parse_time("2023-11-14T22:13:20.000001Z") == wanted
    assert parse_time("2023-11-14 22:13:20.000001") == wanted
    assert parse_time("2023-11-15T00:13:20.000001+02:00") == wanted
    for wrong in ("", "now", "1.5", "9" * 30):
        assert parse_time(wrong) is None


@given(st.integers(1, 1 << 62), st.integers(0, 1 << 61))
def test_an_offset_survives_its_way_through_spark(begin: int, count: int) -> None:
    offset = Offset(begin + count, begin, "0a1b", "orders")
    assert Offset.of(offset.as_dict()) == offset


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"offset": 3},
        {"glsn": 3, "from": 4, "log": "0a1b", "topic": "orders"},
        {"glsn": 0, "log": "0a1b", "topic": "orders"},
        {"glsn": "3", "log": "0a1b", "topic": "orders"},
        {"glsn": 3, "from": 3},
    ],
)
def test_an_offset_of_something_else_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(BadOption, match="belongs to another source"):
        Offset.of(found)


# -- partitions ----------------------------------------------------------------------------------


@given(
    st.integers(1, 1 << 40),
    st.integers(0, 5_000),
    st.lists(st.integers(1, 50), min_size=1, max_size=9, unique=True),
    st.integers(1, 5_000),
    st.integers(1, 40),
)
def test_every_entry_is_in_exactly_one_partition(
    begin: int, rows: int, streams: list[int], records_max: int, count_min: int
) -> None:
    found = plan_partitions(
        begin, begin + rows, streams, records_max=records_max, count_min=count_min
    )
    assert found, "Spark would make a partition of its own"
    for stream in streams:
        mine = [part for part in found if stream in (part.streams or streams)]
        assert mine[0].begin == begin
        assert mine[-1].end == begin + rows
        assert all(a.end == b.begin for a, b in pairwise(mine))
    assert [part.begin for part in found] == sorted(part.begin for part in found)
    assert len(found) >= min(count_min, max(rows, 1))


def test_a_small_range_is_one_partition_in_total_order() -> None:
    found = plan_partitions(10, 20, [1, 2, 3], records_max=1000, count_min=1)
    assert found == [GlsnRange(10, 20)]


def test_a_large_range_is_cut_by_stream_and_by_glsn() -> None:
    found = plan_partitions(1, 4001, [1, 2], records_max=1000, count_min=1)
    assert found == [
        GlsnRange(1, 2001, (1,), turn=0),
        GlsnRange(1, 2001, (2,), turn=1),
        GlsnRange(2001, 4001, (1,), turn=1),
        GlsnRange(2001, 4001, (2,), turn=2),
    ]


def test_partitions_of_a_log_stream_take_turns_from_where_the_query_begins() -> None:
    found = plan_partitions(1, 4001, [1, 2], records_max=500, count_min=1, turn=7)
    for stream in (1, 2):
        turns = [part.turn for part in found if part.streams == (stream,)]
        assert turns == list(range(turns[0], turns[0] + 4))
    assert found[0].turn == 7


def test_few_partitions_share_many_streams() -> None:
    found = plan_partitions(1, 2001, [1, 2, 3], records_max=1000, count_min=1)
    assert found == [GlsnRange(1, 2001, (1, 3), turn=0), GlsnRange(1, 2001, (2,), turn=1)]


# -- schema --------------------------------------------------------------------------------------


def test_spark_and_arrow_agree_about_the_columns() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])
    assert to_arrow_schema(schema, timezone="UTC") == arrow.arrow_schema(list(COLUMNS))
    assert tuple(DEFAULT_COLUMNS) == arrow.DEFAULT_COLUMNS
    assert chosen_columns(default_schema()) == arrow.DEFAULT_COLUMNS


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (StructType([]), "has no column"),
        (StructType([StructField("vlaue", BinaryType())]), "did you mean 'value'"),
        (StructType([StructField("offset", LongType())]), "there are glsn, llsn"),
        (StructType([StructField("GLSN", LongType())]), "did you mean 'glsn'"),
        (StructType([StructField("glsn", IntegerType())]), "'glsn' is int: it is bigint; cast"),
        (StructType([StructField("value", StringType())]), "is string: it is binary"),
        (StructType([StructField("glsn", LongType(), nullable=False)]), "leave that out"),
        (StructType([StructField("glsn", LongType()), StructField("glsn", LongType())]), "twice"),
    ],
)
def test_a_schema_that_is_no_choice_of_columns_is_refused(schema: StructType, says: str) -> None:
    with pytest.raises(BadOption) as caught:
        chosen_columns(schema)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "9", "endingOffsets": "8"},
        {"startingTimestamp": "2026-01-02", "endingTimestamp": "2026-01-01"},
    ],
)
def test_a_batch_that_ends_before_it_begins_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(BadOption, match="ends before it begins"):
        batch_options({"endpoint": URL} | given)
    batch_options({"endpoint": URL, "startingOffsets": "8", "endingOffsets": "8"})


def test_numbers_of_any_length_are_refused_like_others() -> None:
    """Python itself reads no more than 4,300 digits."""
    with pytest.raises(BadOption, match="give a whole number from 1 on"):
        batch_options({"endpoint": URL, "minPartitions": "9" * 5000})
    for digits in (20, 5000):
        assert parse_time("-" + "9" * digits) is None
    assert parse_time("9223372036854775") == Place(Anchor.TIME, 9223372036854775000)
