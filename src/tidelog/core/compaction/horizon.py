"""The delete horizon: how a reader that lags behind compaction knows that it missed a delete.

A delete lives until nothing older than it is left (L3, L6).  Whoever has read what it deletes, but
not yet the delete, never learns of it once it is gone.  Compaction knows no readers; so it notes
which deletes went, and every reader can tell whether that concerns it.

  H1  A dead delete needs a note only if it dies *silently* (L9).  Otherwise a greater row of its
      key, or a greater delete of its storage, tells the same to whoever has not passed it.  If
      that one goes too, a still greater one tells, up to one that is live, one that died silently
      and is noted, or one that was trimmed: a reader that has not passed what was trimmed cannot
      read on.
  H2  A delete that its first snapshot finds dead has hidden nothing, and needs no note: of what was
      older than it, something else has told.  Nor does it tell for another one: while an older row
      of its key is there it is live, and of storage deletes only live ones tell (L9).  Only a trim
      takes entries without a word, so in a log stream that was trimmed it is noted all the same.
  H3  The horizon lies behind the GLSNs of all noted deletes, and ``dropped`` counts them.  Neither
      ever goes back.
  H4  The snapshot by which a delete is dead holds its note: that is durable before the delete, or
      anything else that is dead by this snapshot, goes.
  H5  A reader at ``position`` that began with nothing when ``dropped`` was ``begun`` has missed no
      delete if its position has reached the horizon, or if nothing was noted since.  For of what
      was noted before it began, nothing older was left to read; and what was noted since and lies
      before its position, it has met.  It must ask after it has read: an answer from before does
      not know what went meanwhile.

No state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from tidelog.invariants import check


@dataclass(frozen=True, slots=True)
class DeleteHorizon:
    """What is noted of dropped deletes, in a log stream or in all those of a topic (H3)."""

    glsn: int = 1
    """Behind the last of them; 1 if there was none."""
    dropped: int = 0
    """How many there were; for a reader, a number that changes with every further one."""

    def beyond(self, last_glsn: int, count: int) -> DeleteHorizon:
        """The horizon once ``count`` more deletes are noted, the last of them at ``last_glsn``."""
        check(count > 0 and last_glsn > 0, "H3: a noted delete has a GLSN")
        return DeleteHorizon(max(self.glsn, last_glsn + 1), self.dropped + count)

    def is_missed_by(self, position: int, begun: int) -> bool:
        """Whether a reader may have missed a delete, asked after it has read (H5)."""
        return position < self.glsn and self.dropped != begun


NOTHING_DROPPED: Final = DeleteHorizon()


def deletes_to_note(
    silent: BitMap64, previous_live: BitMap64, previous_index: int, *, trimmed: bool
) -> BitMap64:
    """Of the LLSNs of silently dead deletes those that were not dead before (H2)."""
    noted = silent & previous_live
    if trimmed:
        unseen = silent.copy()
        unseen.remove_range(0, previous_index + 1)
        noted |= unseen
    return noted
