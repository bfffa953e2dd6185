"""``tidelog replica`` with small files: kills meet WAL files that are rolled, and copies are quick.

Arguments: --data DIRECTORY --listen ADDRESS
"""

from __future__ import annotations

import sys

from tidelog.embedded.options import Options
from tidelog.net.loops import run
from tidelog.replica_service.serve import serve_replica

OPTIONS = Options(wal_file_bytes=256 * 1024)


def main(data: str, endpoint: str) -> None:
    def ready(addresses: list[str]) -> None:
        for address in addresses:
            print("ready", address, flush=True)

    run(serve_replica(data, [endpoint], options=OPTIONS, ready=ready))


if __name__ == "__main__":
    main(*sys.argv[2:5:2])
