"""What a job tells Spark's source and sink of the log that it works on.  No state."""

from __future__ import annotations

from math import ceil
from typing import Final

_SECONDS_MAX: Final = 365 * 86400.0
"""For ever, as far as timers can tell it."""


def log_options(url: str, topic: str, timeout: float) -> dict[str, str]:
    """Tasks wait for a node as long as the job itself does: ``timeout`` seconds."""
    milliseconds = max(ceil(min(timeout, _SECONDS_MAX) * 1000), 1)
    return {"endpoint": url, "topic": topic, "timeoutMs": str(milliseconds)}
