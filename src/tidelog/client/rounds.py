"""In which order a client tries the addresses of a log.  No I/O, no clock.

O1  whoever failed is tried again only after all others were
O2  the one that worked last is tried first, unless it is the one that was just lost
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.invariants import check
from tidelog.net.endpoint import Endpoint

ENDPOINTS_MAX: Final = 64


class Rounds:
    """Addresses in a circle, and where the client is in it."""

    def __init__(self, endpoints: Sequence[Endpoint], first: int = 0) -> None:
        check(len(endpoints) >= 1, "a client has an address to go to")
        self._endpoints = list(dict.fromkeys(endpoints))
        self._next = first % len(self._endpoints)
        self._failures = 0
        """How many tries have failed since the last one that did not."""

    @property
    def next(self) -> Endpoint:
        """Whom to try now."""
        return self._endpoints[self._next]

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(self._endpoints)

    @property
    def size(self) -> int:
        return len(self._endpoints)

    @property
    def rounds(self) -> int:
        """How often all of them have failed in a row."""
        return self._failures // len(self._endpoints)

    def failed(self) -> None:
        """The one that was tried is of no use now (O1)."""
        self._failures += 1
        self._next = (self._next + 1) % len(self._endpoints)

    def worked(self) -> None:
        """The one that was tried is in use (O2)."""
        self._failures = 0

    def lost(self) -> None:
        """The one that was in use is of no use any more; all others have a try before it."""
        self._failures = 0
        self._next = (self._next + 1) % len(self._endpoints)

    def add(self, endpoints: Sequence[Endpoint]) -> None:
        """Addresses that were heard of; they come behind those that are known."""
        for endpoint in endpoints:
            if endpoint not in self._endpoints and len(self._endpoints) < ENDPOINTS_MAX:
                self._endpoints.append(endpoint)
