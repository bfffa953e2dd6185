"""What ``archive`` asks of a topic: a small part of what every handle of one offers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from tidelog.interface.positions import Position


class DeleteFigures(Protocol):
    """What a topic tells of deletes that compaction dropped (``core.compaction.horizon``)."""

    @property
    def first_available(self) -> int: ...

    @property
    def delete_horizon(self) -> int: ...

    @property
    def delete_mark(self) -> int: ...


class ArchivableTopic(Protocol):
    """A topic of an embedded log, of a served one, or of a cluster."""

    @property
    def name(self) -> str: ...

    @property
    def first_available(self) -> int: ...

    def stats(self) -> DeleteFigures: ...

    def position(self) -> Position: ...

    def find_time(self, timestamp_us: int) -> Position: ...

    def read_arrow(
        self,
        from_glsn: int | None = None,
        to_glsn: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Iterator[Any]: ...

    def trim(self, before_glsn: int) -> int: ...
