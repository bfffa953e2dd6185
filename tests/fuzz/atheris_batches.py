"""Attachments of writes, with checksums that are always right."""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["tidelog.formats"]):
    from tests.fuzz.channel_attachments import reseal, sound_or_refused

from tests.fuzz.atheris_run import fuzz
from tests.fuzz.channel_attachments import EXAMPLES


def one_input(data: bytes) -> None:
    sound_or_refused(data)
    sound_or_refused(reseal(data))


if __name__ == "__main__":
    fuzz("batches", one_input, EXAMPLES)
