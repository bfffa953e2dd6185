"""Promises of the log, held against what writers were told and readers were shown.  No state.

C1  acknowledged records are there, at the GLSNs that their receipts name
C2  no record is there twice
C3  nothing is there that was refused for good, or that nobody appended
C4  GLSNs ascend and are dense: those that no reader sees were taken by control entries
C5  all readers are shown the same
C6  real time: an append that was acknowledged before another was invoked has the lower GLSN
C7  the acknowledged appends of a writer to one log stream are in the order of their calls
C8  the records of an append have neighbouring GLSNs, all or none
C9  a subscriber is shown what a reader is shown, without gap or repetition

Each check returns what it found wrong, a few words for each; nothing found is an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise
from math import inf

from tests.cluster.history import Append, Outcome, Seen, named

PROBLEMS_MAX = 5
"""Of one kind; more say nothing new."""


def check_acknowledged(appends: Iterable[Append], read: Seen) -> list[str]:
    """C1."""
    found = dict(read.pairs())
    return _few(
        f"{append}: {_what_is_at(found, glsn)} is at {glsn}"
        for append in appends
        if append.outcome is Outcome.ACKNOWLEDGED
        for glsn, ident in zip(range(append.glsn, append.glsn_end), append.idents(), strict=True)
        if found.get(glsn) != ident
    )


def _what_is_at(found: dict[int, int], glsn: int) -> str:
    return named(found[glsn]) if glsn in found else "nothing"


def check_once(read: Seen) -> list[str]:
    """C2."""
    places: dict[int, int] = {}
    return _few(
        f"{named(ident)} is there twice: at {places[ident]} and {glsn}"
        for glsn, ident in read.pairs()
        if places.setdefault(ident, glsn) != glsn
    )


def check_nothing_else(appends: Iterable[Append], read: Seen) -> list[str]:
    """C3."""
    allowed: set[int] = set()
    refused: set[int] = set()
    for append in appends:
        kept = refused if append.outcome is Outcome.REFUSED else allowed
        kept.update(append.idents())
    return _few(
        f"{named(ident)} is at {glsn}, but "
        + ("was refused" if ident in refused else "nobody appended it")
        for glsn, ident in read.pairs()
        if ident not in allowed
    )


def check_dense(read: Seen, *, end: int, hidden: int) -> list[str]:
    """C4.  ``end``: the first GLSN that was not issued; ``hidden``: entries that are not shown."""
    problems = _few(
        f"GLSN {after} is shown behind {before}"
        for before, after in pairwise(read.glsns)
        if after <= before
    )
    missing = end - 1 - len(set(read.glsns))
    if missing > hidden:
        known = set(read.glsns)
        first = list(islice((glsn for glsn in range(1, end) if glsn not in known), PROBLEMS_MAX))
        problems.append(
            f"{missing} GLSNs below {end} name nothing, {hidden} may be hidden; first {first}"
        )
    if read.glsns and (read.glsns[0] < 1 or read.glsns[-1] >= end):
        problems.append(f"GLSNs from {read.glsns[0]} to {read.glsns[-1]} of a topic up to {end}")
    return problems


def check_same(reads: Sequence[Seen]) -> list[str]:
    """C5."""
    first = reads[0]
    return [_difference(first, other) for other in reads[1:] if not _is_same(first, other)]


def check_subscriber(read: Seen, subscriber: Seen) -> list[str]:
    """C9, for a subscriber from the first record on that has caught up."""
    return [] if _is_same(read, subscriber) else [_difference(read, subscriber)]


def _is_same(one: Seen, other: Seen) -> bool:
    return one.glsns == other.glsns and one.idents == other.idents


def _difference(one: Seen, other: Seen) -> str:
    for (glsn, ident), (other_glsn, other_ident) in zip(one.pairs(), other.pairs(), strict=False):
        if (glsn, ident) != (other_glsn, other_ident):
            return (
                f"{one.name} is shown {named(ident)} at {glsn}, "
                f"{other.name} {named(other_ident)} at {other_glsn}"
            )
    return f"{one.name} is shown {len(one)} records, {other.name} {len(other)}"


def check_real_time(appends: Iterable[Append], read: Seen) -> list[str]:
    """C6.  An append of unknown outcome that shows up has returned at no time."""
    problems: list[str] = []
    earliest_return_above, above = inf, "nothing"
    for append in sorted(placed(appends, read), key=lambda append: append.glsn, reverse=True):
        if earliest_return_above < append.invoked_at:
            problems.append(f"{append} began after {above} had returned")
        if append.acknowledged_at < earliest_return_above:
            earliest_return_above, above = append.acknowledged_at, str(append)
    return problems[:PROBLEMS_MAX]


def placed(appends: Iterable[Append], read: Seen) -> list[Append]:
    """Appends with the GLSNs of their first records; without those that did not happen."""
    places = {ident: glsn for glsn, ident in read.pairs()}
    found: list[Append] = []
    for append in appends:
        if append.outcome is Outcome.ACKNOWLEDGED:
            found.append(append)
        elif glsn := places.get(append.idents()[0]):
            shown = Append(append.writer, append.number, append.count, append.invoked_at)
            shown.glsn, shown.outcome = glsn, append.outcome
            found.append(shown)
    return found


def check_writers(appends: Iterable[Append]) -> list[str]:
    """C7."""
    lanes: dict[tuple[int, int], list[Append]] = {}
    for append in appends:
        if append.outcome is Outcome.ACKNOWLEDGED:
            lanes.setdefault((append.writer, append.stream), []).append(append)
    return _few(
        f"{later} lies before {earlier}"
        for lane in lanes.values()
        for earlier, later in pairwise(sorted(lane, key=lambda append: append.number))
        if later.glsn < earlier.glsn_end
    )


def check_whole(appends: Iterable[Append], read: Seen) -> list[str]:
    """C8, for those of unknown outcome; C1 is about the others."""
    places = {ident: glsn for glsn, ident in read.pairs()}
    problems: list[str] = []
    for append in appends:
        if append.outcome is Outcome.ACKNOWLEDGED:
            continue
        found = [places[ident] for ident in append.idents() if ident in places]
        if found and found != list(range(found[0], found[0] + append.count)):
            problems.append(f"{append} is there in part or apart: {found[:PROBLEMS_MAX]}")
    return problems[:PROBLEMS_MAX]


def check_all(
    appends: Sequence[Append],
    reads: Sequence[Seen],
    subscribers: Sequence[Seen] = (),
    *,
    end: int,
    hidden: int,
) -> list[str]:
    """Everything, C1 to C9."""
    read = reads[0]
    checks: list[Callable[[], list[str]]] = [
        lambda: check_acknowledged(appends, read),
        lambda: check_once(read),
        lambda: check_nothing_else(appends, read),
        lambda: check_dense(read, end=end, hidden=hidden),
        lambda: check_same(reads),
        lambda: check_real_time(appends, read),
        lambda: check_writers(appends),
        lambda: check_whole(appends, read),
        *(lambda one=one: check_subscriber(read, one) for one in subscribers),
    ]
    return [problem for check in checks for problem in check()]


def _few(problems: Iterable[str]) -> list[str]:
    return list(islice(problems, PROBLEMS_MAX))
