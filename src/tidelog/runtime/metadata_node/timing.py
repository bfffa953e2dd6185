"""The times of a metadata node, in seconds, as ticks of its cores.  No state."""

from __future__ import annotations

import msgspec

from tidelog.core.metadata.repository import RepositoryOptions
from tidelog.core.raft.options import RaftOptions
from tidelog.errors import BadOption


class MetadataTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take; all but ``tick`` are rounded to whole ticks."""

    tick: float = 0.1
    heartbeat: float = 0.2
    election: float = 0.4
    """A leader that is silent for so long, up to twice as long by chance, is replaced."""
    takeover: float = 0.5
    """The storage nodes of a metadata node that is silent for so long move to others."""
    resend: float = 0.2
    """After which what shows no effect is sent again."""
    collect: float = 1.0
    """How often a storage node is asked for all of its replicas."""
    request: float = 5.0
    """After which a change is answered as unknown."""

    def __post_init__(self) -> None:
        if not 0.001 <= self.tick <= 10:
            raise BadOption(f"a tick of {self.tick} s: between 1 ms and 10 s")

    def options(self) -> RepositoryOptions:
        """What the cores are given; BadOption if it cannot work."""
        heartbeat = self._ticks(self.heartbeat)
        raft = RaftOptions(
            heartbeat_ticks=heartbeat,
            election_ticks=max(self._ticks(self.election), heartbeat + 1),
        )
        return RepositoryOptions(
            raft=raft,
            collect_ticks=self._ticks(self.collect),
            resend_ticks=self._ticks(self.resend),
            takeover_ticks=self._ticks(self.takeover),
            request_ticks=self._ticks(self.request),
        )

    def _ticks(self, seconds: float) -> int:
        return max(round(seconds / self.tick), 1)
