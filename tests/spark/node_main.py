"""Serves a log until it is stopped: ``python -m tests.spark.node_main DIRECTORY ENDPOINT``.

A third argument says after how many seconds staged batches are forgotten.
"""

from __future__ import annotations

import sys

from tidelog.net.loops import run
from tidelog.server.node import NodeOptions
from tidelog.server.serve import serve

CHECK_SECONDS = 0.1


def main() -> None:
    directory, endpoint, *seconds = sys.argv[1:]
    options = NodeOptions()
    if seconds:
        options = NodeOptions(stage_seconds=float(seconds[0]), stage_check_seconds=CHECK_SECONDS)
    run(serve(directory, [endpoint], node_options=options, ready=tell))


def tell(addresses: list[str]) -> None:
    print(*addresses, "ready", sep="\n", flush=True)


if __name__ == "__main__":
    main()
