"""Runs one harness: coverage leads the search, and what is new to it is kept for the next run.

Arguments of libFuzzer may follow (``-max_total_time=60``).  The corpus of a harness lies in
``.fuzz/NAME``, an input that broke something beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris

CORPORA = Path(".fuzz")
SETTINGS = (
    "-max_len=70000",
    "-timeout=10",  # Seconds for one input.
    "-rss_limit_mb=1024",
    "-print_final_stats=1",
    f"-artifact_prefix={CORPORA}/",
)


def fuzz(name: str, one_input: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Feed ``one_input`` until the time is up, or it raises; this ends the process."""
    corpus = CORPORA / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    atheris.Setup([sys.argv[0], *SETTINGS, *sys.argv[1:], str(corpus)], one_input)
    atheris.Fuzz()
