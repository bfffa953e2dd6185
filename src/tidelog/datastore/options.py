"""How a datastore behaves; every field has a default that suits most uses.  No state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.embedded.options import Options
from tidelog.errors import BadOption


class Sending(StrEnum):
    """When the entries of a log session go to the store and to the replicas."""

    BUFFERED = "buffered"
    """Together at its end, or earlier if many have piled up."""
    IMMEDIATE = "immediate"
    """Each by itself; ``add_entry`` returns when every replica has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatastoreOptions:
    sending: Sending | str = Sending.BUFFERED
    flush_at: FlushAt | str = FlushAt.SESSION_END
    """When entries are made durable: ``end_session`` waits for that, or it happens with the
    group commit of their epoch."""
    parallel_append: bool = True
    """Entries are sent before they are appended here, not after."""
    parallel_flush: bool = True
    """The replicas sync while this side does, not after it."""
    parallel_commit: bool = True
    """The replicas commit an epoch while this side does, not after it."""
    ack_timeout_seconds: float = 10.0
    """A replica that has not answered by then is lost, and the datastore stops."""
    connect_timeout_seconds: float = 5.0
    """For a connection to a replica, its greeting included."""
    close_timeout_seconds: float = 30.0
    """How long ``close`` waits for group commits that are under way and for other threads."""
    store: Options = field(default_factory=Options)
    """Files of the log, and when it is compacted."""

    def __post_init__(self) -> None:
        for name in ("ack_timeout_seconds", "connect_timeout_seconds", "close_timeout_seconds"):
            seconds = getattr(self, name)
            if not 0 < seconds < float("inf"):
                raise BadOption(f"{name} is {seconds}, but must be positive")
        for name, kind in (("sending", Sending), ("flush_at", FlushAt)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                known = ", ".join(repr(one.value) for one in kind)
                raise BadOption(f"{name} is {getattr(self, name)!r}: use one of {known}") from None

    def for_master(self) -> MasterOptions:
        return MasterOptions(
            parallel_append=self.parallel_append,
            parallel_flush=self.parallel_flush,
            parallel_commit=self.parallel_commit,
            flush_at=FlushAt(self.flush_at),
        )
