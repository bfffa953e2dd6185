"""SIGKILL again and again: one log lives through all of it and loses nothing.

What the kernel has taken survives a killed process, so this is about the order of writes, about
recovery and about what is told to whom; what a lost power supply does is in tests/crash.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from tests.process import kill_plan as plan
from tests.process.children import Child
from tests.process.kill_ledger import Ledger
from tests.process.kill_plan import Told

ROUNDS = 18
SOAK_ROUNDS = 100
ACKNOWLEDGED_MIN = 40
ACKNOWLEDGED_MORE = 400
OPENING_SECONDS = 0.04
UPKEEP_SUFFIXES = (".compacting", ".tmp")
POLL_SECONDS = 0.0005


def upkeep_is_under_way(directory: Path) -> bool:
    """Whether a file is there that flush, snapshot or compaction is just writing."""
    places = (directory / "streams").glob("*/*")
    return any(path.suffix in UPKEEP_SUFFIXES for path in places)


def hear(ledger: Ledger, line: bytes) -> None:
    ledger.tell(msgspec.json.decode(line, type=Told))


def run_until_killed(path: Path, round_: int, ledger: Ledger, chance: random.Random) -> None:
    """Let a process write, kill it at some moment, and note what it acknowledged."""
    with Child("tests.process.kill_writer", str(path), str(round_), str(ledger.produced)) as child:
        opening, *others = child.wait_for_lines()
        assert msgspec.json.decode(opening, type=Told) == Told(plan.OPENING, round_)
        for line in others:
            hear(ledger, line)
        moment = chance.choice(("opening", "acknowledged", "acknowledged", "upkeep", "upkeep"))
        if moment == "opening":
            for line in child.lines(chance.random() * OPENING_SECONDS):
                hear(ledger, line)
        else:
            enough = ledger.acknowledged + ACKNOWLEDGED_MIN
            wait_for_acknowledgements(child, ledger, enough)
            more = enough + chance.randrange(ACKNOWLEDGED_MORE)
            if moment == "upkeep":
                more = enough + ACKNOWLEDGED_MORE
                wait_for_upkeep(child, ledger, path, more)
            else:
                wait_for_acknowledgements(child, ledger, more)
        for line in child.kill():
            hear(ledger, line)
    ledger.end_round(round_)


def wait_for_acknowledgements(child: Child, ledger: Ledger, enough: int) -> None:
    while ledger.acknowledged < enough:
        for line in child.wait_for_lines():
            hear(ledger, line)


def wait_for_upkeep(child: Child, ledger: Ledger, path: Path, enough: int) -> None:
    """Until a file in the making is seen; it may be gone too fast, so not without end."""
    while ledger.acknowledged < enough and not upkeep_is_under_way(path):
        for line in child.lines(POLL_SECONDS):
            hear(ledger, line)


def check_log(path: Path, ledger: Ledger) -> None:
    log, ring = plan.open_log(path, background=False)
    with log:
        ledger.check(log, ring)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rounds",
    [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(400)])],
)
def test_one_log_lives_through_kills_and_loses_or_doubles_nothing(
    tmp_path: Path, rounds: int
) -> None:
    path = tmp_path / "log"
    ledger = Ledger()
    chance = random.Random(7)
    for round_ in range(1, rounds + 1):
        run_until_killed(path, round_, ledger, chance)
        # Closing the log tidies it up; so most kills are followed by the next process at once.
        if chance.random() < 0.3:
            check_log(path, ledger)
    check_log(path, ledger)
    log, _ = plan.open_log(path, background=False)
    with log:
        problems = [finding for finding in log.verify() if finding.problem]
    assert not problems
    assert ledger.acknowledged > rounds * ACKNOWLEDGED_MIN // 2
    assert ledger.figures["failures"] == 0
    met = (
        ("flushes", "snapshots", "deleted", "rewritten") if rounds == SOAK_ROUNDS else ("flushes",)
    )
    for work in met:
        assert ledger.figures[work] > 0, f"no {work}: the kills did not meet what they should"
