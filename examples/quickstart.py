"""Tidelog in two minutes: a durable, totally ordered, compacting log in one process.

Run it with ``make quickstart``.  It appends from several threads, reads all of it in one order,
kills a copy of itself in the middle of appending, and shows that nothing acknowledged was lost.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tidelog


def say(text: str) -> None:
    print(text, flush=True)


def order(directory: Path) -> None:
    """Four writers, two log streams, one order."""
    say("\n1. Four threads append to a topic with two log streams; every append is fsynced.")
    with tidelog.open(directory, streams=2) as log:
        start = time.perf_counter()

        def write(name: int) -> None:
            for number in range(500):
                log.append(f"writer {name}, record {number}".encode())

        threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - start
        frames = log.log_stats().wal_frames
        glsns = [record.glsn for record in log.read()]
        say(f"   2,000 durable appends in {seconds:.2f} s with {frames:,} fsyncs (group commit)")
        say(
            f"   read back in total order: GLSN {glsns[0]} to {glsns[-1]}, none missing: "
            f"{glsns == list(range(1, 2001))}"
        )

        start = time.perf_counter()
        for _ in range(100):
            log.append_batch([b"x" * 100] * 1000)
        seconds = time.perf_counter() - start
        say(f"   100,000 records of 100 B in batches of 1,000: {100_000 / seconds:,.0f} records/s")


def keys(directory: Path) -> None:
    """Keys, deletes and compaction."""
    say("\n2. A keyed topic: only the newest write of each key is kept.")
    options = tidelog.Options(wal_file_bytes=4 << 20, snapshot_bytes=2 << 20)
    with tidelog.open(directory, topic="accounts", options=options) as log:
        for turn in range(40):
            log.put_batch((f"account-{n}".encode(), f"{turn}".encode() * 50) for n in range(2000))
        log.delete(b"account-7")
        before = sum(1 for _ in log.read())
        result = log.compact(full=True)
        after = sum(1 for _ in log.read())
        record = log.get(b"account-8")
        say(
            f"   80,001 writes of 2,000 keys; readable records before / after compaction: "
            f"{before:,} / {after:,} ({result.reclaimed_bytes:,} bytes reclaimed)"
        )
        say(
            f"   account-8 is {record.value[:2]!r}, account-7 is {log.get(b'account-7')}"
            if record
            else "   account-8 is missing"
        )
        say(f"   why account-8 is kept: {log.explain(b'account-8')[-1]}")


def crash(directory: Path) -> None:
    """kill -9 in the middle of appending."""
    say(
        "\n3. A second process appends and tells us what was acknowledged; we kill it with SIGKILL."
    )
    child = subprocess.Popen(
        [sys.executable, __file__, "--append", str(directory)], stdout=subprocess.PIPE, text=True
    )
    output = child.stdout
    if output is None:
        raise SystemExit("the child has no output")
    acknowledged = []
    for line in output:
        acknowledged.append(int(line))
        if len(acknowledged) == 500:
            child.send_signal(signal.SIGKILL)
            break
    acknowledged += [int(line) for line in output if line.endswith("\n")]
    child.wait()
    output.close()
    with tidelog.open(directory) as log:
        found = {record.glsn for record in log.read()}
        lost = [glsn for glsn in acknowledged if glsn not in found]
        say(f"   {len(acknowledged)} appends acknowledged, {len(found)} found, {len(lost)} lost")
        say(f"   every file verified: {all(not finding.problem for finding in log.verify())}")
    if lost:
        raise SystemExit("acknowledged records were lost")


def append_for_ever(directory: str) -> None:
    with tidelog.open(directory) as log:
        while True:
            print(log.append(b"acknowledged means durable").glsn, flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--append"]:
        append_for_ever(sys.argv[2])
    root = Path(tempfile.mkdtemp(prefix="tidelog-"))
    say(f"Tidelog {tidelog.__version__} in {root}")
    try:
        order(root / "order")
        keys(root / "keys")
        crash(root / "crash")
    finally:
        shutil.rmtree(root)
    say("\nNext: `tidelog --help`, docs/architecture.md, and tests/ for how it is proven.")


if __name__ == "__main__":
    main()
