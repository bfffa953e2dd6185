"""``tidelog up``."""

from __future__ import annotations

from tidelog.cli.serve import up as command

__all__ = ["command"]
