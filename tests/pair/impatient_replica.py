"""``tidelog replica`` with deadlines that a test can wait for, and room for few connections."""

from __future__ import annotations

import sys

from tidelog.net.connection import Patience
from tidelog.net.loops import run
from tidelog.net.security import ServerSecurity
from tidelog.replica_service.serve import serve_replica
from tidelog.replica_service.service import ServiceOptions

PATIENCE = Patience(hello=1.0, frame=1.0, write=2.0, close=0.5)
CONNECTIONS_MAX = 50


def main(arguments: dict[str, str]) -> None:
    security = ServerSecurity.from_files(
        cert=arguments.get("--tls-cert", ""), key=arguments.get("--tls-key", "")
    )
    options = ServiceOptions(patience=PATIENCE, connections_max=CONNECTIONS_MAX, security=security)

    def ready(addresses: list[str]) -> None:
        for address in addresses:
            print("ready", address, flush=True)

    run(
        serve_replica(
            arguments["--data"],
            [arguments["--listen"]],
            http=arguments["--http"],
            service_options=options,
            ready=ready,
        )
    )


if __name__ == "__main__":
    main(dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True)))
