"""A process that wants a log for itself: tries until it gets it, then appends and tells.

Arguments: directory of the log, a name.  Lines: ``locked``, ``opened <values found>``, and each
value that was acknowledged.
"""

from __future__ import annotations

import os
import sys
import threading
from itertools import count

import tidelog
from tidelog.errors import LogLocked

RETRY_SECONDS = 0.01


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def open_when_free(path: str) -> tidelog.Log:
    pause = threading.Event()
    while True:
        try:
            return tidelog.open(path)
        except LogLocked:
            tell("locked")
            pause.wait(RETRY_SECONDS)


def main(path: str, name: str) -> None:
    log = open_when_free(path)
    tell(f"opened {sum(1 for _ in log.read())}")
    for number in count():
        value = f"{name}-{number}"
        log.append(value.encode())
        tell(value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
