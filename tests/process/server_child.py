"""The process that serves a log until it is killed.

Arguments: directory of the log, endpoint, number of log streams of the default topic.
"""

from __future__ import annotations

import sys

from tidelog.embedded.options import Options
from tidelog.net.loops import run
from tidelog.server.serve import serve

WAL_FILE_BYTES = 1 << 20
"""Small, so that kills also meet WAL files that are rolled and flushed."""


def main(path: str, endpoint: str, streams: int) -> None:
    run(
        serve(
            path,
            [endpoint],
            streams=streams,
            options=Options(wal_file_bytes=WAL_FILE_BYTES),
            ready=lambda endpoints: print(endpoints[0], flush=True),
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
