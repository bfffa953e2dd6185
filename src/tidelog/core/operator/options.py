"""How an operator is tuned, what it refuses and what it ignores.  No state."""

from __future__ import annotations

from enum import Enum

import msgspec

from tidelog import limits
from tidelog.errors import BadOption


class Ignored(Enum):
    """Why something that came in was left without effect."""

    WRONG_TARGET = "it is for another node"
    UNKNOWN_STREAM = "there is no such stream in view"
    UNKNOWN_NODE = "no such storage node is registered"
    OTHER_TERM = "it answers a question of another term"
    NOT_ASKED = "the sender was not asked this"
    REPEATED = "the sender answered before"
    LATE = "what it answers is over"
    SHORT = "the snapshot does not reach the leader's head, or lacks cuts"
    OLD_REVISION = "a newer revision was seen before"
    UNREADABLE = "the stream's plan cannot be read: hands off"
    UNKNOWN_UPDATE = "nobody waits for the outcome of this write any more"


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are in ticks; the rest are counts."""

    resend_ticks: int = 5
    """What was not answered is sent again after this long."""
    patience_ticks: int = 50
    """A step that takes longer is given up.  Whoever finds something unfinished waits this long,
    and up to twice as long by chance, before it goes on with it."""
    grace_ticks: int = 1
    """An election waits this long for the rest of the ensemble once it has a majority."""
    snapshot_ticks: int = 36_000
    """How long a new node may take to synchronise."""
    status_ticks: int = 20
    """How often a leader is asked how it is."""
    start_ticks: int = 20
    """Chance delays the first act of an operator, and the first election of a stream, by less."""
    suspect_ticks: int = 30
    """A node that was not heard for so long is taken for dead."""
    replace_ticks: int = 3_000
    """A node that was not heard for so long is replaced, if there is a spare one."""
    election_pause_ticks: int = 50
    """Elections of one stream begin at least so far apart, unless a person asks for one."""
    balance_ticks: int = 600
    """At most one leadership is moved in this time; 0: none."""
    procedures_max: int = 256
    """Elections and reconfigurations that are under way at the same time."""
    replacements_max: int = 4
    """Reconfigurations that the operator began by itself and that are under way; 0: none."""

    def __post_init__(self) -> None:
        for name in TICKS:
            if not 1 <= getattr(self, name) <= limits.OPERATOR_TICKS_MAX:
                raise BadOption(f"{name} is between 1 and {limits.OPERATOR_TICKS_MAX}")
        if not 0 <= self.grace_ticks < self.patience_ticks:
            raise BadOption("grace_ticks is less than patience_ticks")
        if self.resend_ticks > self.patience_ticks:
            raise BadOption("something is sent again before patience is over")
        if self.replace_ticks < 2 * self.suspect_ticks:
            raise BadOption("a node is suspected for a while before it is replaced")
        if not 0 <= self.balance_ticks <= limits.OPERATOR_TICKS_MAX:
            raise BadOption(f"balance_ticks is between 0 and {limits.OPERATOR_TICKS_MAX}")
        if not 1 <= self.procedures_max <= limits.OPERATOR_PROCEDURES_MAX:
            raise BadOption(f"procedures_max is between 1 and {limits.OPERATOR_PROCEDURES_MAX}")
        if not 0 <= self.replacements_max <= self.procedures_max:
            raise BadOption("replacements_max is between 0 and procedures_max")


TICKS = (
    "resend_ticks",
    "patience_ticks",
    "snapshot_ticks",
    "status_ticks",
    "start_ticks",
    "suspect_ticks",
    "replace_ticks",
    "election_pause_ticks",
)
