"""What a client was told to be propagated or ordered is committed, at its place, with its bytes."""

from __future__ import annotations

from typing import Final

from tidelog.testing.checkers.stream_safety import StreamSafety
from tidelog.testing.violation import Violation
from tidelog.types import StreamId

NAME: Final = "acked_entries"


def check_acknowledged(safety: StreamSafety, stream: StreamId, llsn: int, data: bytes) -> None:
    """Check an append at the moment that its client is told.

    Whatever leads later has it: ``stream_safety`` sees to that.
    """
    if llsn > safety.committed(stream):
        raise Violation(NAME, f"entry {llsn} of stream {stream} is acknowledged, not committed")
    batch = safety.committed_batch(stream, llsn)
    if batch.data != data or batch.llsn_begin != llsn:
        raise Violation(NAME, f"{data!r} is acknowledged at {llsn} of stream {stream}: {batch}")
