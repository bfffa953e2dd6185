"""From what a replica finds on its disk to what it may do next.  No state.

Input: ``Facts``.  Output: a ``Recovery``: one of five verdicts, and the sentence why.  Nothing is
ever removed here: the verdict says what the replica may claim, and a replica that is not usable
keeps its entries and stays silent.

Invariants:
  V1  a usable replica's ordered part ends exactly at the end of its commit context
  V2  unordered entries begin there, without gap; they stay, and are reported again
  V3  a replica that lacks anything it had ordered is never usable
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidelog.core.replica.commit_context import NONE, CommitContext, flaw_in_context
from tidelog.invariants import check
from tidelog.types import FIRST_LLSN, NO_VERSION


class Verdict(Enum):
    """What a replica is good for after a start."""

    NEW = "it holds nothing and never did"
    VALID = "it holds all that its commit context orders"
    FULLY_TRIMMED = "all that its commit context orders was trimmed"
    NEEDS_SYNC = "its context and its entries do not meet; a peer has to fill them up"
    DAMAGED = "entries are missing inside; it has to be rebuilt from a peer"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found.

    ``first_llsn`` is the first stored entry (None if there is none).  ``end_llsn`` is one past
    the last entry that is accounted for, be it stored or dead by a snapshot; 1 if there never
    was one.  ``missing_llsn`` is the first entry before ``end_llsn`` that should be stored and
    is not (None if there is none): an entry that was trimmed or compacted away is not missing.
    Entries below ``trim_llsn_end`` were trimmed, whether their bytes are still there or not.
    """

    context: CommitContext = NONE
    first_llsn: int | None = None
    end_llsn: int = FIRST_LLSN
    missing_llsn: int | None = None
    trim_llsn_end: int = FIRST_LLSN


@dataclass(frozen=True, slots=True)
class Recovery:
    """A verdict and its reason."""

    verdict: Verdict
    reason: str

    @property
    def usable(self) -> bool:
        """Whether the replica may report and serve what it has."""
        return self.verdict in (Verdict.NEW, Verdict.VALID, Verdict.FULLY_TRIMMED)


def recover(facts: Facts) -> Recovery:
    """Judge a replica by its first entry, its last entry and its commit context."""
    _check_facts(facts)
    flaw = flaw_in_context(facts.context)
    if flaw is not None:
        return Recovery(Verdict.DAMAGED, flaw)
    if facts.missing_llsn is not None:
        return Recovery(
            Verdict.DAMAGED, f"LLSN {facts.missing_llsn} should be stored, but is missing"
        )
    if facts.context.version == NO_VERSION:
        return _recover_without_context(facts)
    return _recover_with_context(facts)


def _recover_without_context(facts: Facts) -> Recovery:
    """Entries without a context can only be such that no cut has named yet."""
    if facts.trim_llsn_end > FIRST_LLSN:
        return Recovery(
            Verdict.NEEDS_SYNC,
            f"entries below LLSN {facts.trim_llsn_end} were trimmed, so they were ordered,"
            " but the commit context is missing",
        )
    if facts.first_llsn is None and facts.end_llsn == FIRST_LLSN:
        return _usable(facts, Verdict.NEW, "no commit context and no entry")
    if facts.first_llsn != FIRST_LLSN:
        return Recovery(
            Verdict.NEEDS_SYNC,
            f"the first stored LLSN is {facts.first_llsn}, so older ones were ordered,"
            " but the commit context is missing",
        )
    return _usable(facts, Verdict.VALID, "no cut yet, and all entries from the first on are there")


def _recover_with_context(facts: Facts) -> Recovery:
    ordered_end = facts.context.llsn_end
    if facts.trim_llsn_end > ordered_end:
        return Recovery(
            Verdict.NEEDS_SYNC,
            f"entries below LLSN {facts.trim_llsn_end} were trimmed, but the commit context"
            f" ends at {ordered_end}: a later one was lost",
        )
    if facts.end_llsn > ordered_end:
        if facts.first_llsn is None or facts.first_llsn > ordered_end:
            return Recovery(
                Verdict.DAMAGED, f"unordered entries do not begin at LLSN {ordered_end}"
            )
        return _usable(
            facts,
            Verdict.VALID,
            f"the commit context ends at LLSN {ordered_end},"
            f" unordered entries follow it up to {facts.end_llsn}",
        )
    if facts.trim_llsn_end == ordered_end:
        return _usable(
            facts, Verdict.FULLY_TRIMMED, f"all entries below LLSN {ordered_end} were trimmed"
        )
    if facts.end_llsn < ordered_end:
        return Recovery(
            Verdict.NEEDS_SYNC,
            f"the commit context ends at LLSN {ordered_end}, but entries end at"
            f" {facts.end_llsn}: a suffix was lost",
        )
    return _usable(
        facts, Verdict.VALID, f"commit context and entries both end at LLSN {ordered_end}"
    )


def _check_facts(facts: Facts) -> None:
    check(facts.end_llsn >= FIRST_LLSN, "V1: entries end before the first position")
    check(facts.trim_llsn_end >= FIRST_LLSN, "V1: the trim ends before the first position")
    if facts.first_llsn is not None:
        check(
            FIRST_LLSN <= facts.first_llsn < facts.end_llsn,
            f"V1: the first entry {facts.first_llsn} is not before the end {facts.end_llsn}",
        )
    if facts.missing_llsn is not None:
        check(
            facts.trim_llsn_end <= facts.missing_llsn < facts.end_llsn,
            f"V3: LLSN {facts.missing_llsn} cannot be missing: it was trimmed or never stored",
        )


def _usable(facts: Facts, verdict: Verdict, reason: str) -> Recovery:
    has_unordered = facts.end_llsn > facts.context.llsn_end
    check(facts.missing_llsn is None, "V3: a replica with missing entries was found usable")
    check(verdict is Verdict.VALID or not has_unordered, "V2: unordered entries were overlooked")
    return Recovery(verdict, reason)
