"""How a Raft node is tuned, what it refuses and what it ignores.  No state."""

from __future__ import annotations

from enum import Enum, IntEnum

import msgspec

from tidelog import limits
from tidelog.errors import BadOption


class Role(IntEnum):
    """What a node is to its group at the moment."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    """It asks whether it could win, in no term of its own yet."""
    CANDIDATE = 2
    LEADER = 3


class Refused(Enum):
    """Why the node did not do what its host asked for; nothing changed."""

    NOT_LEADER = "another node leads, or none"
    TRANSFERRING = "the leadership is being handed over"
    TOO_MUCH_UNCOMMITTED = "too many bytes wait to be committed"
    TOO_LARGE = "it is larger than an entry, or a snapshot, may be"
    ANOTHER_CHANGE_PENDING = "the last change of the membership is not committed yet"
    NO_COMMIT_IN_THIS_TERM = "the leader has not committed an entry of its term yet"
    NOT_CAUGHT_UP = "the learner lacks too much of the log"
    NO_CHANGE = "it is so already, or cannot be"
    LAST_VOTER = "a group needs a voter"
    TOO_FEW_ALIVE = "of the voters that it leaves, no majority was heard of lately"
    TOO_MANY_MEMBERS = "a group has only so many members"
    NOT_A_VOTER = "only a voter can lead"


class Ignored(Enum):
    """Why a message of a peer was left without effect."""

    WRONG_TARGET = "it is for another node, or from this one"
    NONSENSE = "no sound node says this"
    OLD_TERM = "its term has passed"
    PROTECTED_LEADER = "it asks for an election while the leader is heard"
    SECOND_LEADER = "its term has another leader"
    CONTRADICTS_COMMITTED = "it would replace a committed entry"
    CONTRADICTS_LEADER = "its leader sent other entries before, in this term"
    UNKNOWN_SENDER = "it answers, but is no member"
    LATE = "what it answers is over"
    TOO_MANY_READS = "too many reads wait already"


class RaftOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in ticks, sizes in bytes; the rest are counts."""

    election_ticks: int = 10
    """An election begins after this long without a leader, or up to twice as long, by chance."""
    heartbeat_ticks: int = 1
    append_bytes_max: int = limits.RAFT_APPEND_BYTES_MAX
    inflight_bytes_max: int = 8 * limits.MIB
    """What may be on its way to one follower before its answers are awaited."""
    inflight_count_max: int = 64
    uncommitted_bytes_max: int = 32 * limits.MIB
    snapshot_chunk_bytes: int = 256 * limits.KIB
    promote_lag_max: int = 1_000
    """A learner that lacks at most this many entries may become a voter."""
    reads_max: int = 16 * limits.KIB

    def __post_init__(self) -> None:
        if not 1 <= self.heartbeat_ticks < self.election_ticks:
            raise BadOption("a heartbeat comes at least each tick and before an election")
        for name, limit in BOUNDS.items():
            if not 1 <= getattr(self, name) <= limit:
                raise BadOption(f"{name} is between 1 and {limit}")
        if self.promote_lag_max < 0:
            raise BadOption("promote_lag_max is not negative")

    @property
    def resend_ticks(self) -> int:
        """After this long without an answer a part of a snapshot is sent again."""
        return max(2 * self.heartbeat_ticks, self.election_ticks // 2)


BOUNDS = {
    "append_bytes_max": limits.RAFT_APPEND_BYTES_MAX,
    "inflight_bytes_max": limits.RAFT_INFLIGHT_BYTES_MAX,
    "inflight_count_max": limits.RAFT_INFLIGHT_COUNT_MAX,
    "uncommitted_bytes_max": limits.RAFT_UNCOMMITTED_BYTES_MAX,
    "snapshot_chunk_bytes": limits.RAFT_CHUNK_BYTES_MAX,
    "reads_max": limits.RAFT_READS_MAX,
}
