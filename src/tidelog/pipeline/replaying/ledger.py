"""How far a replay is, remembered by the log that it writes to.

The log itself knows every chunk that was published, by the writer's name and the chunk's number, so
none is there twice, whatever is noted here.  The note saves work, and holds what must not change
between runs: into how large chunks the table is cut.

  B1  the size of chunks is noted before the first of them is published, and holds for all runs
  B2  a chunk is noted after it was published
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog.errors import RevisionConflict

if TYPE_CHECKING:
    from tidelog.interface.handles import TopicHandle

_DONE_BITS: Final = 31
CHUNKS_END: Final = 1 << _DONE_BITS


@dataclass(frozen=True, slots=True)
class Note:
    """What is stored, as one number under the replay's name."""

    chunk_rows: int
    done: int
    revision: int

    @property
    def number(self) -> int:
        """Positions begin with 1."""
        return (self.chunk_rows << _DONE_BITS | self.done) + 1


class Ledger:
    """The notes on one replay."""

    def __init__(self, topic: TopicHandle, name: str) -> None:
        self._topic = topic
        self._name = name

    def open(self, chunk_rows: int) -> Note:
        """What is noted; if nothing is, note the size of chunks now (B1)."""
        note = self._read()
        if note is None:
            self._write(Note(chunk_rows, 0, 0))
            note = self._read()
        if note is None:
            raise RevisionConflict(f"what was noted on {self._name} is gone again")
        return note

    def done(self, note: Note, chunks: int) -> Note:
        """Note that so many chunks are in the log (B2); another run may have come further."""
        self._write(Note(note.chunk_rows, chunks, note.revision))
        return self._read() or note

    def _read(self) -> Note | None:
        found = self._topic.position_of(self._name)
        if not found.revision:
            return None
        number = found.glsn - 1
        return Note(number >> _DONE_BITS, number & (CHUNKS_END - 1), found.revision)

    def _write(self, note: Note) -> None:
        try:
            self._topic.store_position(self._name, note.number, expected=note.revision)
        except RevisionConflict:
            pass  # Another run of the same replay was here; what it noted is as good.
