"""Places in a topic, and what became of a publication, as every face of a topic tells them.

They travel as they are, so the structs are those of the protocol.
"""

from __future__ import annotations

from tidelog.formats.messages import NamedPosition, Position, Published

__all__ = ["NamedPosition", "Position", "Published"]
