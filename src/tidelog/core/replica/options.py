"""How a replica is tuned, what it answers to its host and what it ignores.  No state."""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog import limits
from tidelog.errors import BadOption
from tidelog.types import Llsn


class Ignored(Enum):
    """Why a message, or a cut, was left without effect."""

    WRONG_TARGET = "it is for another replica"
    NONSENSE = "no sound node says this"
    LATE = "what it answers is over"
    SECOND_LEADER = "its terms have another leader"
    UNKNOWN_SENDER = "it answers, but there is no cursor for it"
    PRESENT_REIGN = "entries of the present reign would be cut"
    CONTRADICTION = "it does not continue what is known"
    KNOWN_CUT = "the cut is known already"
    NOT_WANTED = "nothing was missing"
    BEHIND = "who misses cuts fills up no new node, and is not the one to lead"
    CROWDED = "too many answers wait for the disk"


class Appended(msgspec.Struct, frozen=True, gc=False):
    """Where an append went; ``is_repeated`` if it went there before."""

    llsn_begin: Llsn
    count: int
    is_repeated: bool


class CursorKind(Enum):
    """How a leader serves one follower."""

    ATTACHED = "attached"
    TRUNCATING = "truncating"
    SYNCHRONISING = "synchronising"
    LEAVING = "leaving"


class CursorStatus(msgspec.Struct, frozen=True, gc=False):
    """A follow cursor, as it stands; both places are LLSNs, included."""

    kind: CursorKind
    pushed: Llsn
    confirmed: Llsn


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in ticks, sizes in bytes; the rest are counts."""

    heartbeat_ticks: int = 2
    """How often a leader tells its commit index when there is nothing else to tell."""
    resend_ticks: int = 4
    """What was not answered for so long is sent again."""
    message_bytes_max: int = limits.PAGE_BYTES
    """What one message holds, unless one batch is larger."""
    inflight_bytes_max: int = 16 * limits.MIB
    """What may be on its way to one follower before its answers are awaited."""
    inflight_messages: int = 3
    """Behind so many messages to one follower, less than ``gather_bytes`` waits for an answer: one
    is synced there, one will go into the next sync, one travels."""
    gather_bytes: int = limits.MIB
    recent_bytes_max: int = 8 * limits.MIB
    """Batches kept in memory for followers; older ones are read from the store."""
    uncommitted_bytes_max: int = limits.IN_FLIGHT_BYTES_MAX
    """What a leader takes before a quorum has it; then appends are refused for a while."""
    promises_max: int = 1_024
    """Answers that wait for the disk; those beyond it are left out, for requests are repeated."""
    pending_cuts_max: int = limits.ORDER_HISTORY_CUTS_MAX
    """Cuts that may wait for their entries; with more, the replica asks its leader instead."""

    def __post_init__(self) -> None:
        for name, limit in BOUNDS.items():
            if not 1 <= getattr(self, name) <= limit:
                raise BadOption(f"{name} is between 1 and {limit}")
        # Cuts that no majority knows yet can be had from nobody again.
        if self.pending_cuts_max <= limits.ORDER_UNAPPLIED_CUTS_MAX:
            raise BadOption(f"pending_cuts_max is above {limits.ORDER_UNAPPLIED_CUTS_MAX}")


TICKS_MAX = 1_000
PROMISES_MAX = 65_536
INFLIGHT_MESSAGES_MAX = 65_536

BOUNDS = {
    "heartbeat_ticks": TICKS_MAX,
    "resend_ticks": TICKS_MAX,
    "message_bytes_max": limits.PAGE_BYTES,  # Of the smallest batches no message carries more.
    "inflight_bytes_max": limits.IN_FLIGHT_BYTES_MAX,
    "inflight_messages": INFLIGHT_MESSAGES_MAX,
    "gather_bytes": limits.IN_FLIGHT_BYTES_MAX,
    "recent_bytes_max": limits.IN_FLIGHT_BYTES_MAX,
    "uncommitted_bytes_max": limits.IN_FLIGHT_BYTES_MAX,
    "promises_max": PROMISES_MAX,
    "pending_cuts_max": limits.ORDER_HISTORY_CUTS_MAX,
}
