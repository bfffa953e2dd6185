"""The ``tidelog`` program.  Commands are loaded when they are called, so that it starts fast."""

from __future__ import annotations


def main() -> None:
    """Run the program with the arguments of the process."""
    from tidelog.cli.streams import settle_streams

    settle_streams()
    from tidelog.cli.program import program

    program(prog_name="tidelog")
