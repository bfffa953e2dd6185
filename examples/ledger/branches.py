"""Branches write their movements to the log, each from a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from typing import Final, Protocol

import tidelog
from examples.ledger.movements import Movement, Plan, rounds
from tidelog.formats.entry import Entry, Kind

BATCH: Final = 2_000
REPEAT_EVERY: Final = 5
ROUND_SECONDS_MAX: Final = 300.0


class Barrier(Protocol):
    """Of ``threading`` or of ``multiprocessing``."""

    def wait(self, timeout: float | None = None) -> int: ...


def entry_of(movement: Movement) -> Entry:
    """A movement as an entry of the log.

    Its write version is the account's own sequence number.  So the newest movement of an account
    wins in every table, however late or often an older one comes.
    """
    key, at_us = movement.account.encode(), movement.at_ms * 1000
    if movement.closes:
        return Entry(Kind.DELETE, b"", key, 0, movement.sequence, at_us)
    value = b'{"amount": %d, "balance": %d}' % (movement.amount, movement.balance)
    return Entry(Kind.PUT, value, key, 0, movement.sequence, at_us)


def write_branch(url: str, plan: Plan, branch: int, barrier: Barrier) -> None:
    """Write minute by minute; no branch is more than a minute ahead of another.

    Batches are numbered.  A branch that is started again sends its last batch once more, since it
    cannot know whether it arrived; here every fifth one is sent again, and the log notices.
    """
    number = 0
    with tidelog.connect(url) as log:
        for minute in rounds(plan, branch):
            for begin in range(0, len(minute), BATCH):
                number += 1
                entries = [entry_of(movement) for movement in minute[begin : begin + BATCH]]
                log.write(entries, producer=f"branch-{branch}", sequence=number)
                if number % REPEAT_EVERY == 0:
                    again = log.write(entries, producer=f"branch-{branch}", sequence=number)
                    assert all(receipt.duplicate for receipt in again)
            barrier.wait(ROUND_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class Branches:
    """Processes that write."""

    processes: Sequence[BaseProcess]

    @property
    def are_writing(self) -> bool:
        return any(process.is_alive() for process in self.processes)

    def check(self) -> None:
        """Raise ``SystemExit`` if one has failed."""
        failed = [process.name for process in self.processes if process.exitcode not in (None, 0)]
        if failed:
            raise SystemExit(f"{', '.join(failed)} failed")


@contextmanager
def branches_at_work(url: str, plan: Plan) -> Iterator[Branches]:
    """Start all branches; leaving waits for them."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(plan.branches)
    processes = [
        context.Process(
            target=write_branch, args=(url, plan, branch, barrier), name=f"branch {branch}"
        )
        for branch in range(plan.branches)
    ]
    branches = Branches(processes)
    for process in processes:
        process.start()
    try:
        yield branches
        for process in processes:
            process.join()
        branches.check()
    finally:
        for process in processes:
            process.kill()
            process.join()
