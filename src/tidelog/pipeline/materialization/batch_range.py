"""Which part of the log a micro-batch holds, as Spark wrote it down before it began.

The rows alone do not tell: where compaction removed entries, the last row of a batch lies before
the batch's end.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from tidelog.errors import CorruptData


class BatchRange(NamedTuple):
    """Positions ``[glsn_begin, glsn_end)``."""

    glsn_begin: int
    glsn_end: int


def batch_range(checkpoint: Path, batch: int) -> BatchRange:
    """The range of a batch of the query with this checkpoint."""
    path = checkpoint / "offsets" / str(batch)
    try:
        offset = json.loads(path.read_text(encoding="utf-8").rstrip().rpartition("\n")[2])
        return BatchRange(int(offset["from"]), int(offset["glsn"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CorruptData(
            f"{path} does not tell the range of batch {batch} ({error!r}): "
            "delete the checkpoint, the table knows how far it is"
        ) from error
