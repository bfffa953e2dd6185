"""What can be said about a write from Spark, and which columns it takes.  No state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.errors import BadOption
from tidelog.interface.arrow_appends import CHUNK_BYTES
from tidelog.limits import KIB, MIB
from tidelog.spark.option_values import OptionValues
from tidelog.spark.options import CONNECTION, Connection

BATCH: Final = (*CONNECTION, "batchBytes", "txnAppId", "txnVersion")
STREAM: Final = (*CONNECTION, "batchBytes", "writerId", "queryName", "checkpointLocation")
CHUNK_BYTES_MIN: Final = 64 * KIB
CHUNK_BYTES_MAX: Final = 8 * MIB

_BYTES: Final = (BinaryType, StringType)
_TAKEN: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "kind": (StringType,),
    "storage_id": (LongType, IntegerType),
    "write_version": (BinaryType, DecimalType, LongType, IntegerType),
    "timestamp": (TimestampType,),
    "blobs": (ArrayType,),
}
"""Columns that make an entry, and the types that they may have."""
_LEFT_OUT: Final[dict[str, tuple[type[DataType], ...]]] = {
    "glsn": (LongType,),
    "llsn": (LongType,),
    "stream": (LongType,),
    "rewritten": (BooleanType,),
}
"""What the log gives itself: rows that were read from a log may be written to one."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A write, before it began."""

    connection: Connection
    chunk_bytes: int
    writer: str
    """Who writes: a batch that this writer has published before is not published again."""
    batch: int = 0
    homes: tuple[int, ...] = ()
    """The log streams among which batches of rows without keys take turns."""


def batch_sink_options(given: Mapping[str, str], *, job: str) -> SinkOptions:
    """The options of ``df.write``; ``job`` names a writer that nobody else is."""
    values = OptionValues(given, BATCH, use="df.write.format('tidelog')")
    app, version = values.text("txnAppId"), values.text("txnVersion")
    if (app is None) != (version is None):
        raise BadOption("the options 'txnAppId' and 'txnVersion' go together: give both or none")
    if app == "":
        raise values.wrong("txnAppId", "give the writing application a name")
    return SinkOptions(
        connection=Connection.of(values),
        chunk_bytes=_chunk_bytes(values),
        writer=f"job:{job}" if app is None else f"app:{app}",
        batch=values.count("txnVersion", 0, least=0),
    )


def stream_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of ``df.writeStream``; the writer is empty if the query's id is to be it."""
    values = OptionValues(given, STREAM, use="df.writeStream.format('tidelog')")
    writer = values.text("writerId")
    if writer == "":
        raise values.wrong("writerId", "give the writer a name, or leave the option out")
    # The name of a query is no writer: with a new checkpoint the numbers of its batches begin
    # again, and they would be taken for those that were published before.
    return SinkOptions(
        connection=Connection.of(values),
        chunk_bytes=_chunk_bytes(values),
        writer=f"writer:{writer}" if writer else "",
    )


def check_sink_schema(schema: StructType) -> None:
    """Raise unless rows of this schema can be entries."""
    names = schema.fieldNames()
    if len(set(names)) < len(names):
        raise BadOption(f"the rows have a column twice: {', '.join(names)}")
    known = _TAKEN | _LEFT_OUT
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadOption(
            f"a log takes no column {', '.join(map(repr, unknown))}, only {', '.join(_TAKEN)}: "
            "put the others into value, for example with to_json(struct(*))"
        )
    for field in schema.fields:
        kinds = known[field.name]
        if not isinstance(field.dataType, (*kinds, NullType)) or _is_fraction(field.dataType):
            wanted = ", ".join(kind.typeName() for kind in kinds)
            raise BadOption(
                f"the column {field.name!r} is {field.dataType.simpleString()}: "
                f"cast it to one of {wanted}"
            )
    if "value" not in names and "kind" not in names:
        raise BadOption("the rows have no column 'value': only deletes, told by 'kind', need none")


def _is_fraction(kind: DataType) -> bool:
    return isinstance(kind, DecimalType) and kind.scale != 0


def _chunk_bytes(values: OptionValues) -> int:
    size = values.count("batchBytes", CHUNK_BYTES)
    if not CHUNK_BYTES_MIN <= size <= CHUNK_BYTES_MAX:
        raise values.wrong("batchBytes", f"give {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes")
    return size
