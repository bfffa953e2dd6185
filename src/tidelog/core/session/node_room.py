"""How much a session may have under way, and who is next when that is too little for all.

What is not taken is repeated later by whoever sent it, at a time of its own.  So that busy channels
do not fill the room each time before another one comes again, as much room as a channel was denied
is kept for it until it has used that, though at most half of all unless it is for one message: for
one channel at a time, in the order in which they came.

Invariants:
  O1  what is under way is bounded, unless it is a single message
  O2  nobody uses the room that is kept for the channel that has waited longest
  O3  of what a channel brings in one turn the first messages are taken and none behind a gap: its
      replica would only refuse those, and be sent the same again at once
"""

from __future__ import annotations

import msgspec

from tidelog.core.session.node_output import NodeOptions
from tidelog.invariants import check


class Denied(msgspec.Struct):
    """What a channel brought in one turn and could not get in, less what it got in since then."""

    turn: int
    tick: int
    """When something of it was last turned away."""
    count: int = 0
    bytes: int = 0


NOTHING = Denied(turn=0, tick=0)
KEPT_MIN = 2
"""Room is kept for a message with news, too, if the first one has none."""


class NodeRoom:
    """The room of one session."""

    __slots__ = ("_denied", "_gaps", "_options", "_tick", "_turn", "bytes", "count")

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self._denied: dict[int, Denied] = {}
        """Channels that wait, in the order in which they are to be served."""
        self._gaps: set[int] = set()
        """Channels of which something was turned away in this turn."""
        self._tick = 0
        self._turn = 0
        self.count = 0
        """How many messages are under way, and how many bytes they have."""
        self.bytes = 0

    def tick(self) -> None:
        """Let one unit of time pass; nothing is kept for a channel that does not come again."""
        self._tick += 1
        last = self._tick - self._options.keep_ticks
        for channel in [one for one, denied in self._denied.items() if denied.tick < last]:
            del self._denied[channel]

    def end_turn(self) -> None:
        """All that replicas had to send was brought."""
        self._turn += 1
        self._gaps.clear()

    def admit(self, channel: int, size: int) -> bool:
        """Take a message of a channel in, if there is room."""
        if self._has_gap(channel) or not self._has_room(size, self._kept_from(channel)):
            self._turn_away(channel, size)
            return False
        self._use_kept(channel, size)
        self.count += 1
        self.bytes += size
        return True

    def _has_gap(self, channel: int) -> bool:
        """O3."""
        return channel in self._gaps

    def _has_room(self, size: int, kept: Denied) -> bool:
        """O1."""
        count, held = self.count + kept.count, self.bytes + kept.bytes
        options = self._options
        return count < options.underway_max and (
            count == 0 or held + size <= options.underway_bytes_max
        )

    def _kept_from(self, channel: int) -> Denied:
        """O2."""
        first = next(iter(self._denied), channel)
        return NOTHING if first == channel else self._denied[first]

    def _turn_away(self, channel: int, size: int) -> None:
        self._gaps.add(channel)
        denied = self._denied.setdefault(channel, Denied(self._turn, self._tick))
        denied.tick = self._tick
        # In later turns it brings the same again.
        if denied.turn == self._turn and self._may_keep(denied, size):
            denied.count += 1
            denied.bytes += size

    def _may_keep(self, denied: Denied, size: int) -> bool:
        """Whether room is kept for one more message; the others go on meanwhile."""
        return denied.count == 0 or (
            denied.count < max(KEPT_MIN, self._options.underway_max // 2)
            and denied.bytes + size <= self._options.underway_bytes_max // 2
        )

    def _use_kept(self, channel: int, size: int) -> None:
        denied = self._denied.get(channel)
        if denied is not None:
            denied.count -= 1
            denied.bytes = max(0, denied.bytes - size)
            if denied.count == 0:
                del self._denied[channel]

    def release(self, count: int, size: int) -> None:
        """Messages were answered for."""
        self.count -= count
        self.bytes -= size
        check(min(self.count, self.bytes) >= 0, "O1: more was answered than asked")

    def forget(self, channel: int) -> None:
        """A channel is not used any more."""
        self._denied.pop(channel, None)
