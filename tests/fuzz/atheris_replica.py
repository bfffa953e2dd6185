"""Scripts of hostile masters against the core of a replica."""

from __future__ import annotations

from random import Random

import atheris

with atheris.instrument_imports(include=["tidelog.core.session"]):
    from tests.fuzz.replica_script import Replica, Script

from tests.fuzz.atheris_run import fuzz


def one_input(data: bytes) -> None:
    Replica(Script(data[:4096])).run()


if __name__ == "__main__":
    fuzz("replica", one_input, (Random(seed).randbytes(1_000) for seed in range(20)))
