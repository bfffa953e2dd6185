"""Arrow as Spark hands it to tasks, and as it wants it back.  No state.

A session may have strings and bytes with offsets of 64 bits
(``spark.sql.execution.arrow.useLargeVarTypes``).  The tasks of jobs reckon with the usual ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

_LARGE: Final = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
_USUAL: Final = {large: usual for usual, large in _LARGE.items()}


def usual(data: Any) -> Any:
    """A record batch or table with strings and bytes as the tasks of jobs want them."""
    return _cast(data, _USUAL)


def grouped(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``work`` as Spark can apply it to groups: what it makes has the types of what came.

    Every table that comes has a column of strings or bytes.
    """

    def applied(table: Any) -> Any:
        taken = usual(table)
        made = work(taken)
        return made if taken.schema == table.schema else _cast(made, _LARGE)

    return applied


def _cast(data: Any, types: dict[Any, Any]) -> Any:
    fields = [field.with_type(types.get(field.type, field.type)) for field in data.schema]
    schema = pa.schema(fields)
    return data if schema == data.schema else data.cast(schema)
