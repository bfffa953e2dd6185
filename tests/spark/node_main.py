"""Serves a log until it is stopped: ``python -m tests.spark.node_main DIRECTORY ENDPOINT``."""

from __future__ import annotations

import sys

from tidelog.net.loops import run
from tidelog.server.serve import serve


def main() -> None:
    directory, endpoint = sys.argv[1:]
    run(serve(directory, [endpoint], ready=tell))


def tell(addresses: list[str]) -> None:
    print(*addresses, "ready", sep="\n", flush=True)


if __name__ == "__main__":
    main()
