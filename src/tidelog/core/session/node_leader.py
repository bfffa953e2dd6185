"""The session in which a node leads another one: it carries messages there, and group commits.

In one *turn* the host hands over all that its replicas have to send (``carry``), those that bring
entries as messages of the present epoch, and ends it with ``commit``.  That closes the epoch: what
is of it leaves, and the last message asks for the group commit, which answers for all of them,
however many log streams they are of.  While enough group commits are on their way the epoch stays
open, and grows by what comes in the next turns; a large one is closed before its turn ends, and
leaves when it may.

Nothing is kept for a follower that is not there: what was not taken, or was under way when the
session ended, is repeated by the replicas (rule T9 of docs/protocol.md).

Invariants:
  M1  messages of a log channel are sent in their order, on its one log connection
  M2  a message is of at most one epoch, and the one group commit of an epoch counts them all
  M3  nothing of an epoch leaves before it is closed, and none grows after that
  M4  what was taken and not answered for is bounded, and so are the group commits on their way and
      the bytes of each, unless it has a single message; an answer makes room for what it answers
      for, in whatever order answers of lanes come
  M5  without one of its connections a session is over, and nothing of it outlives it
  M6  an answer that does not belong to the oldest open request of its connection ends the session
"""

from __future__ import annotations

from tidelog import limits
from tidelog.core.session.messages import Ack, Error
from tidelog.core.session.node_lane import NodeLane, Waiting
from tidelog.core.session.node_messages import (
    CARRY_OVERHEAD_BYTES,
    NO_EPOCH,
    NODE_PROTOCOL,
    Carry,
    ChannelDispose,
    LaneOpen,
    NodeAnswer,
    NodeGroupCommitted,
    NodeRequest,
    NodeSessionBegin,
    NodeSessionBegun,
    lane_of,
)
from tidelog.core.session.node_output import (
    CONTROL,
    Attachment,
    Connect,
    Heard,
    LeaderCounters,
    LeaderOutput,
    Leave,
    NodeOptions,
)
from tidelog.core.session.node_room import NodeRoom
from tidelog.invariants import check
from tidelog.types import NodeId


class NodeLeader:
    """One node towards one follower node.  Not thread-safe."""

    __slots__ = (
        "_answered",
        "_busy",
        "_bytes",
        "_channels",
        "_closed",
        "_cluster_id",
        "_count",
        "_follower",
        "_is_closed",
        "_is_open",
        "_lanes",
        "_last",
        "_last_connection",
        "_node",
        "_options",
        "_outputs",
        "_room",
        "_secret",
        "_silent_ticks",
        "_wait_ticks",
        "counters",
    )

    def __init__(
        self,
        *,
        cluster_id: str,
        node: NodeId,
        follower: NodeId,
        options: NodeOptions | None = None,
    ) -> None:
        check(node != follower, "M1: a node does not follow itself")
        self._cluster_id = cluster_id
        self._node = node
        self._follower = follower
        self._options = options or NodeOptions()
        self._outputs: list[LeaderOutput] = []
        self._last_connection = 0
        self._is_closed = False
        self.counters = LeaderCounters()
        self._forget()
        self._wait_ticks = 0
        self._begin()

    def _forget(self) -> None:
        """M5: nothing of a session outlives it."""
        self._lanes: dict[int, NodeLane] = {}
        """Its connections, by their lanes."""
        self._busy: dict[int, NodeLane] = {}
        """Those on which something is to be sent."""
        self._is_open = False
        self._secret = ""
        self._channels: dict[int, None] = {}
        self._silent_ticks = 0
        self._room = NodeRoom(self._options)
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        """M2: the next session counts from the start."""
        self._answered = 0
        """How many epochs were answered for."""
        self._closed = NO_EPOCH
        """The last one that was closed."""
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        """M2: an epoch begins with nothing."""
        self._last: Waiting | None = None
        """The last message of the present epoch."""
        self._count = 0
        """How many messages it has, and how many bytes."""
        self._bytes = 0

    # --- how it stands ---

    @property
    def follower(self) -> NodeId:
        """The node that it leads."""
        return self._follower

    @property
    def is_open(self) -> bool:
        """Whether messages are taken."""
        return self._is_open

    def take(self) -> list[LeaderOutput]:
        """Hand over what to carry out now, in this order."""
        may_leave = min(self._closed, self._last_to_ask())
        for number, lane in list(self._busy.items()):
            self._outputs += lane.take(may_leave)
            if not lane.has_waiting:
                del self._busy[number]
        outputs, self._outputs = self._outputs, []
        return outputs

    # --- time, and how a session begins and ends ---

    def tick(self) -> None:
        """Let one unit of time pass."""
        if self._is_closed:
            return
        if not self._lanes:
            self._wait_ticks -= 1
            if self._wait_ticks <= 0:
                self._begin()
            return
        self._room.tick()
        self._silent_ticks += 1
        if self._is_given_up():
            self._end()

    def _is_given_up(self) -> bool:
        """Whether the follower has been silent for too long."""
        is_awaited = not self._is_open or any(one.is_awaiting for one in self._lanes.values())
        if not is_awaited:
            self._silent_ticks = 0
        return self._silent_ticks > self._options.patience_ticks

    def close(self) -> None:
        """End the session for good."""
        self._is_closed = True
        if self._lanes:
            self._end()

    def _begin(self) -> None:
        self._connect(CONTROL)

    def _connect(self, number: int) -> None:
        self._last_connection += 1
        self._lanes[number] = NodeLane(self._last_connection, number, self._options.window)
        self._outputs.append(Connect(self._last_connection, number))

    def _end(self) -> None:
        """M5."""
        self._outputs += [Leave(lane.connection) for lane in self._lanes.values()]
        self.counters.lost += 1
        self._forget()
        self._wait_ticks = self._options.retry_ticks

    # --- connections ---

    def connected(self, connection: int) -> None:
        """A connection was made, and greeted."""
        lane = self._lane(connection)
        if lane is None:
            return
        check(not lane.is_connected, f"M1: connection {connection} was made before")
        lane.is_connected = True
        self._silent_ticks = 0
        self._put(lane.lane, Waiting(self._first_request(lane.lane)))

    def _first_request(self, number: int) -> NodeRequest:
        if number == CONTROL:
            lanes = self._options.lanes
            return NodeSessionBegin(
                NODE_PROTOCOL, self._cluster_id, self._node, self._follower, lanes
            )
        return LaneOpen(self._node, self._secret, number)

    def lost(self, connection: int) -> None:
        """A connection is gone, or could not be made."""
        lane = self._lane(connection)
        if lane is not None:
            del self._lanes[lane.lane]
            self._end()

    def _lane(self, connection: int) -> NodeLane | None:
        """The connection of this number, if it is of this session (M5)."""
        for lane in self._lanes.values():
            if lane.connection == connection:
                return lane
        self.counters.ignored += 1
        return None

    # --- answers ---

    def answered(self, connection: int, answer: NodeAnswer) -> None:
        """The oldest open request of a connection was answered; or an error ends them all."""
        lane = self._lane(connection)
        if lane is None:
            return
        self._silent_ticks = 0
        if isinstance(answer, Error):
            self.counters.refusal = answer
        asked = lane.answered()
        if asked is None or not self._fits(lane, asked, answer):
            self._end()

    def undecodable(self, connection: int) -> None:
        """A connection brought bytes that are no answer."""
        if self._lane(connection) is not None:
            self._end()

    def undeliverable(self) -> None:
        """What was heard is no message between replicas: the session ends."""
        if self._lanes:
            self._end()

    def _fits(self, lane: NodeLane, asked: Waiting, answer: NodeAnswer) -> bool:
        """Take an answer, if it is one to what was asked (M6)."""
        match asked.request, answer:
            case NodeSessionBegin(), NodeSessionBegun(secret):
                self._begun(lane, secret)
            case LaneOpen(), Ack():
                self._opened(lane)
            case ((Carry() | ChannelDispose()), Ack()) if asked.epoch == NO_EPOCH:
                self._room.release(asked.count, asked.bytes)
            case Carry(), NodeGroupCommitted(epoch) if epoch == asked.epoch != NO_EPOCH:
                self._group_committed(asked, answer)
            case _:
                return False
        return True

    def _begun(self, control: NodeLane, secret: str) -> None:
        control.is_open = True
        self._secret = secret
        for number in range(self._options.lanes):
            self._connect(number)

    def _opened(self, lane: NodeLane) -> None:
        lane.is_open = True
        self._is_open = all(one.is_open for one in self._lanes.values())
        self.counters.sessions += self._is_open

    def _group_committed(self, asked: Waiting, answer: NodeGroupCommitted) -> None:
        """M4."""
        self._answered += 1
        self._room.release(asked.count, asked.bytes)
        self.counters.heard += len(answer.said)
        self._outputs += [Heard(self._follower, one.channel, one.message) for one in answer.said]

    # --- messages ---

    def carry(
        self, channel: int, message: bytes, attachment: Attachment = (), *, in_epoch: bool = False
    ) -> bool:
        """Send a message for a log stream; False: it was not taken, and may be repeated later.

        In an epoch it leaves when ``commit`` closes that, and the group commit answers for it.
        """
        size = len(message) + sum(map(len, attachment))
        if not self._is_taken(channel, message, size):
            self.counters.not_taken += 1
            return False
        self._channels[channel] = None
        self.counters.carries += 1
        if in_epoch:
            if self._last is not None and self._is_full(size):
                self._close(self._last)
            epoch = self._closed + 1
            waiting = Waiting(Carry(channel, epoch, message), attachment, epoch=epoch)
            self._count_in(waiting, size)
        else:
            waiting = Waiting(Carry(channel, NO_EPOCH, message), attachment, size, 1)
        self._put(self._lane_of(channel), waiting)
        return True

    def _is_taken(self, channel: int, message: bytes, size: int) -> bool:
        """M4."""
        return (
            self._is_open
            and len(message) + CARRY_OVERHEAD_BYTES <= limits.MESSAGE_BYTES_MAX
            and size - len(message) <= limits.ATTACHMENT_BYTES_MAX
            and (channel in self._channels or len(self._channels) < self._options.channels_max)
            and self._room.admit(channel, size)
        )

    def _count_in(self, waiting: Waiting, size: int) -> None:
        """M2."""
        self._last = waiting
        self._count += 1
        self._bytes += size

    def _lane_of(self, channel: int) -> int:
        """M1."""
        return lane_of(channel, self._options.lanes)

    def _put(self, number: int, waiting: Waiting) -> None:
        lane = self._busy[number] = self._lanes[number]
        lane.put(waiting)

    def dispose(self, channel: int) -> None:
        """This node is done with a log stream, as far as this follower goes."""
        if channel in self._channels:
            del self._channels[channel]
            self._room.forget(channel)
            self._put(self._lane_of(channel), Waiting(ChannelDispose(channel)))

    # --- group commits ---

    def commit(self) -> None:
        """End a turn: close the epoch, if it has messages and its group commit need not wait."""
        self._room.end_turn()
        if self._last is not None and self._closed < self._last_to_ask():
            self._close(self._last)

    def _close(self, last: Waiting) -> None:
        """M2, M3."""
        last.commit(self._count, self._bytes)
        self._closed += 1
        self.counters.group_commits += 1
        self._begin_epoch()

    def _is_full(self, size: int) -> bool:
        """Whether the epoch has no room for a message of this size (M4)."""
        return self._bytes + size > self._options.epoch_bytes_max

    def _last_to_ask(self) -> int:
        """The last epoch whose group commit may be on its way now (M4)."""
        return self._answered + self._options.commits_max

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        for number, lane in self._lanes.items():
            check(lane.lane == number, f"M1: lane {number} has the connection of {lane.lane}")
        check(self._room.count <= self._options.underway_max, "M4: too much is under way")
        check(self._count <= self._room.count, "M4: what waits is not under way")
        check(
            self._count <= 1 or self._bytes <= self._options.epoch_bytes_max,
            "M4: an epoch is too large",
        )
        check(self._answered <= self._closed, "M2: an epoch was answered for before it was closed")
        check(bool(self._lanes) or self._room.count == 0, "M5: a session that is over goes on")
