"""Two stops in a row: the second one meets the recovery from the first, and what follows it.

What a recovery shows is as good as acknowledged: it may have been read and acted upon, so a second
stop must not take it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from tests.crash.checks import took_effect
from tests.crash.known import known_of
from tests.crash.repeatable import CHANCE
from tests.crash.scenarios import Scenario
from tests.crash.scribe import FrameAttempt, Scribe, open_log
from tidelog import Log
from tidelog.testing.crash import Check, Journal, Run, enumerate_crashes
from tidelog.testing.disk import SimDisk, SimulatedCrash, SimVfs, crash_outcomes


def go_on(scribe: Scribe) -> None:
    """What most users do after a restart."""
    scribe.append(b"written after the first stop")
    scribe.log.close()


class Nested:
    """The second stops of a scenario; equal disks with equal journals are checked once."""

    def __init__(
        self,
        scenario: Scenario,
        base: Journal,
        outcomes_max: int,
        following: Callable[[Scribe], None] = go_on,
    ) -> None:
        self.scenario = scenario
        self._base = base
        self._outcomes_max = outcomes_max
        self._following = following
        self._seen: dict[int, list[Journal]] = {}
        self.checked = 0

    def check_second_stops(self, disk: SimDisk, journal: Journal) -> None:
        """Open the log on ``disk``, go on, and check whatever a crash of that leaves."""
        enumerate_crashes(
            self._run(journal),
            self._check(),
            disk=disk,
            outcomes_max=self._outcomes_max,
        )

    def _run(self, before: Journal) -> Run:
        def run(vfs: SimVfs, journal: Journal) -> None:
            journal.attempted[:] = before.attempted
            journal.acknowledged[:] = before.acknowledged
            CHANCE.begin("resume")
            log = open_log(vfs, streams=self.scenario.streams, versions=self.scenario.versions)
            self._settle(log, journal)
            self._following(Scribe(log, journal))

        return run

    def _settle(self, log: Log, journal: Journal) -> None:
        """Note what became of the call that the first stop interrupted."""
        known, pending = known_of(self._base, journal, versions=self.scenario.versions)
        if pending is None:
            return
        if not took_effect(log, known, pending):
            journal.attempted.pop()
        elif isinstance(pending, FrameAttempt):
            after = known.after(pending)
            new = range(known.high_watermark + 1, after.high_watermark + 1)
            journal.acknowledged.extend(after.entries[glsn] for glsn in new)
        else:
            journal.acknowledged.append(pending)

    def _check(self) -> Check:
        check = self.scenario.quick_check(self._base)

        def check_once(vfs: SimVfs, journal: Journal) -> None:
            journals = self._seen.setdefault(vfs.disk.fingerprint(), [])
            if journal not in journals:
                journals.append(journal.copy())
                self.checked += 1
                check(vfs, journal)

        return check_once


def first_stops(
    disk: SimDisk, run: Run, points: range, outcomes_max: int
) -> Iterator[tuple[int, str, SimDisk, Journal]]:
    """What a stop behind each of the calls leaves: (call, how, disk, journal), equal ones once.

    A kill leaves all, and what was not synced can still be lost later.  A power loss leaves one
    of the first ``outcomes_max`` mixtures of what was not synced.
    """
    seen: dict[int, list[Journal]] = {}
    for point in points:
        left, journal = disk.copy(), Journal()
        left.crash_after(point)
        with suppress(SimulatedCrash):
            run(left.vfs(), journal)
        if left.operations < point:
            return
        effects = left.pending_effects()
        if effects:
            yield point, "kill", left.copy(), journal
        for choices in islice(crash_outcomes(effects, outcomes_max), outcomes_max):
            after = left.after_crash(choices)
            journals = seen.setdefault(after.fingerprint(), [])
            if journal not in journals:
                journals.append(journal)
                yield point, "power loss " + "".join(c.value for c in choices), after, journal
