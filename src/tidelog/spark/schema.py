"""The columns that Spark sees.  No state."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tidelog.errors import BadOption

DEFAULT_COLUMNS: Final[dict[str, DataType]] = {
    "glsn": LongType(),
    "llsn": LongType(),
    "stream": LongType(),
    "kind": StringType(),
    "storage_id": LongType(),
    "key": BinaryType(),
    "value": BinaryType(),
    "write_version": BinaryType(),
    "timestamp": TimestampType(),
}
COLUMNS: Final[dict[str, DataType]] = {
    **DEFAULT_COLUMNS,
    "blobs": ArrayType(LongType()),
    "rewritten": BooleanType(),
}
"""All that can be asked for; ``interface.arrow`` fills them."""


def default_schema() -> StructType:
    return StructType([StructField(name, kind) for name, kind in DEFAULT_COLUMNS.items()])


def chosen_columns(schema: StructType) -> tuple[str, ...]:
    """The names in a schema that a user gave; BadOption if it is not a choice of our columns."""
    if not schema.fields:
        raise BadOption("the schema has no column: name at least one of " + ", ".join(COLUMNS))
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            near = get_close_matches(field.name.lower(), COLUMNS, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise BadOption(
                f"the schema has a column {field.name!r}: {hint}there are {', '.join(COLUMNS)}"
            )
        if field.dataType != kind:
            raise BadOption(
                f"the schema says that {field.name!r} is {field.dataType.simpleString()}: it is "
                f"{kind.simpleString()}; cast it after the read"
            )
        if not field.nullable:
            raise BadOption(f"the schema says that {field.name!r} is never null: leave that out")
    names = tuple(schema.fieldNames())
    if len(set(names)) < len(names):
        raise BadOption(f"the schema names a column twice: {', '.join(names)}")
    return names
