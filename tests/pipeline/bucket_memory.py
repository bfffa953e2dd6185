"""A child process: judges a bucket of keys with little memory.  Arguments: rows, rows at a time."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

from tidelog.core.compaction.explain import KIND_PUT
from tidelog.formats.key_rows import KeyRows
from tidelog.limits import MIB
from tidelog.pipeline.compaction_plan.judging import Basis, Bucket

ROOM = 160 * MIB
KEYS = 20_000
PART = 50_000


def rows_from(first_llsn: int) -> KeyRows:
    llsns = np.arange(first_llsn, first_llsn + PART, dtype=np.uint64)
    keys = llsns * np.uint64(0x9E3779B97F4A7C15) % np.uint64(KEYS)
    zeros = np.zeros(PART, dtype=np.uint64)
    kinds = np.full(PART, KIND_PUT, dtype=np.uint8)
    return KeyRows(keys, keys, zeros, zeros, llsns, llsns, kinds, np.zeros(PART, np.uint32))


def main() -> None:
    count, rows_max = map(int, sys.argv[1:])
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bucket = Bucket(Basis(1 << 62, {}, rows_max))
    for first_llsn in range(1, count, PART):
        bucket.add(1, rows_from(first_llsn))
    print(sum(batch.num_rows for batch in bucket.verdicts()), len(bucket))


if __name__ == "__main__":
    main()
