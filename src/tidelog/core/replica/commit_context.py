"""The environment of a replica's last applied cut, and what may come after it.

Only the latest context of a stream is kept.  It is stored atomically with the
entries that it orders, so that it alone tells where the ordered part ends.

Invariants:
  X1  llsn_begin + length == LLSN of the last ordered entry + 1
  X2  contexts abut: the next one begins at the LLSN where this one ends
  X3  versions grow; high watermarks never go back
  X4  the GLSNs of a non-empty context lie above everything that the topic had
      issued before, and at or below its own high watermark
  X5  an empty context carries the stream's own last GLSN + 1, not the topic's
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from tidelog.invariants import check
from tidelog.types import FIRST_GLSN, FIRST_LLSN, NO_VERSION, Glsn, Llsn

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""A number that decoding refuses when it is negative."""


class CommitContext(
    msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True
):
    """The part of one cut that concerns one stream: ``length`` entries from ``llsn_begin`` on."""

    version: Natural
    high_watermark: Natural
    glsn_begin: Natural
    llsn_begin: Natural
    length: Natural

    @property
    def glsn_end(self) -> Glsn:
        """The first GLSN not included: the stream's own last GLSN + 1."""
        return Glsn(self.glsn_begin + self.length)

    @property
    def llsn_end(self) -> Llsn:
        """The LLSN of the next entry to be ordered."""
        return Llsn(self.llsn_begin + self.length)


NONE: Final = CommitContext(
    version=NO_VERSION,
    high_watermark=0,
    glsn_begin=FIRST_GLSN,
    llsn_begin=FIRST_LLSN,
    length=0,
)
"""The context of a stream that no cut has named yet."""


def flaw_in_context(context: CommitContext) -> str | None:
    """Say what is wrong with a context by itself; None if nothing is."""
    glsn, llsn, length = context.glsn_begin, context.llsn_begin, context.length
    if length < 0 or context.version < 0 or context.high_watermark < 0:
        return f"X1: a commit context has a negative number: {context}"
    if llsn < FIRST_LLSN or glsn < FIRST_GLSN:
        return f"X1: a commit context begins before the first position: {context}"
    if glsn + length - 1 > context.high_watermark:
        return f"X4: a commit context issues GLSNs above its high watermark: {context}"
    if glsn < llsn:
        return f"X4: a stream has more entries than its topic issued GLSNs: {context}"
    if context.version == NO_VERSION and context != NONE:
        return f"X3: a commit context has content but no version: {context}"
    return None


def flaw_in_following(context: CommitContext, following: CommitContext) -> str | None:
    """Say why ``following`` cannot be applied right after ``context``; None if it can.

    Versions may be skipped: a cut that did not name the stream left only an empty context.
    """
    flaw = flaw_in_context(following)
    if flaw is not None:
        return flaw
    if following.version <= context.version:
        return f"X3: version {following.version} after version {context.version}"
    if following.high_watermark < context.high_watermark:
        return (
            f"X3: high watermark {following.high_watermark} after {context.high_watermark}"
            f" at version {following.version}"
        )
    if following.llsn_begin != context.llsn_end:
        return (
            f"X2: version {following.version} begins at LLSN {following.llsn_begin},"
            f" but the ordered part ends at {context.llsn_end}"
        )
    if following.length == 0 and following.glsn_begin != context.glsn_end:
        return (
            f"X5: an empty context at version {following.version} carries GLSN"
            f" {following.glsn_begin} instead of the stream's own {context.glsn_end}"
        )
    if following.length > 0 and following.glsn_begin <= context.high_watermark:
        return (
            f"X4: version {following.version} issues GLSN {following.glsn_begin} again,"
            f" the high watermark was {context.high_watermark}"
        )
    return None


def follow(context: CommitContext, following: CommitContext) -> CommitContext:
    """Return ``following`` once it is proven to continue ``context``."""
    flaw = flaw_in_following(context, following)
    check(flaw is None, flaw or "")
    return following
