"""The process that gets killed: several threads write, and tell of what was acknowledged.

Arguments: directory of the log, round, the producer's last acknowledged sequence.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

import tidelog
from tests.process import kill_plan as plan
from tests.process.kill_plan import STEP, Place, Told
from tidelog.invariants import check

SWITCH_SECONDS = 0.0002
"""Threads take turns often, so that a kill meets all of them at work."""
READ_PAUSE_SECONDS = 0.02


def tell(told: Told) -> None:
    """One line in one write: lines of this length are never mixed or cut in a pipe."""
    os.write(1, msgspec.json.encode(told) + b"\n")


def places_of(receipts: Sequence[tidelog.Receipt]) -> list[Place]:
    return [(r.stream, r.llsn, r.glsn, r.count) for r in receipts]


def append_values(log: tidelog.Log, writer: str, begin: int) -> None:
    for number in count(begin):
        receipt = log.append(plan.value_of(writer, number))
        tell(Told(writer, number, places_of([receipt])))


def put_keys(log: tidelog.Log, begin: int) -> None:
    for number in count(begin):
        key, value = plan.put_of(number)
        receipt = log.delete(key) if value is None else log.put(key, value)
        tell(Told(plan.PUTTER, number, places_of([receipt])))


def put_batches(log: tidelog.Log, begin: int) -> None:
    for number in count(begin):
        tell(Told(plan.BATCHER, number, places_of(log.put_batch(plan.batch_of(number)))))


def produce(log: tidelog.Log, acknowledged: int) -> None:
    """Begin with what was acknowledged last, as if the answer had been lost."""
    for sequence in count(max(acknowledged, 1)):
        value = plan.value_of(plan.PRODUCER, sequence)
        receipt = log.append(value, producer=plan.PRODUCER, sequence=sequence)
        tell(Told(plan.PRODUCER, sequence, places_of([receipt]), receipt.duplicate))


def keep_ring(ring: tidelog.Topic, begin: int) -> None:
    for number in count(begin):
        receipt = ring.append_batch([plan.value_of(plan.RING, number)])
        tell(Told(plan.RING, number, places_of([receipt])))
        if number % 20 == 0 and receipt.glsn > plan.RING_KEPT:
            before = receipt.glsn - plan.RING_KEPT
            tell(Told(plan.RING_TRIM_TRY, before))
            ring.trim(before)
            tell(Told(plan.RING_TRIM, before))


def report(log: tidelog.Log) -> None:
    """Read it all now and then, which pins files, and tell what the worker did."""
    pause = threading.Event()
    while not pause.wait(READ_PAUSE_SECONDS):
        entries = sum(1 for _ in log.read())
        stats = log.log_stats()
        figures = {
            "flushes": stats.flushes,
            "snapshots": stats.snapshots,
            "deleted": stats.deleted_segments,
            "rewritten": stats.rewritten_segments,
            "failures": stats.compaction_failures,
        }
        tell(Told(plan.FIGURES, entries, figures=figures))


def main(path: str, round_: int, acknowledged: int) -> None:
    check(callable(tidelog.open), "all is imported before the opening begins")
    tell(Told(plan.OPENING, round_))
    log, ring = plan.open_log(path, background=True)
    sys.setswitchinterval(SWITCH_SECONDS)
    begin = round_ * STEP
    works: list[Callable[[], None]] = [
        *(lambda w=writer: append_values(log, w, begin) for writer in plan.APPENDERS),
        lambda: put_keys(log, begin),
        lambda: put_batches(log, begin),
        lambda: produce(log, acknowledged),
        lambda: keep_ring(ring, begin),
        lambda: report(log),
    ]
    for work in works:
        threading.Thread(target=run, args=(work,), daemon=True).start()
    threading.Event().wait()


def run(work: Callable[[], None]) -> None:
    """No work ends by itself: an error ends the process, and the parent sees it."""
    try:
        work()
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
