"""The session in which a node leads another one: it carries messages there, and group commits.

In one *turn* the host hands over all that its replicas have to send (``carry``), those that bring
entries with the epoch of its own group commit, and ends it with ``commit``: however many log
streams have entries, one group commit answers for all of them.

Nothing is kept for a follower that is not there: what was not taken, or was under way when the
session ended, is repeated by the replicas (rule T9 of docs/protocol.md).

Invariants:
  M1  messages of a log channel are sent in their order, on its one log connection
  M2  a group commit counts the messages of this very session, each in one group commit
  M3  epochs never fall, and none grows after its group commit
  M4  what was taken and not answered for is bounded
  M5  without one of its connections a session is over, and nothing of it outlives it
  M6  an answer that does not belong to the oldest request of its connection ends the session
"""

from __future__ import annotations

from collections import deque

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
    NodeGroupCommit,
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
        "_channels",
        "_closed",
        "_cluster_id",
        "_commits",
        "_counted",
        "_due",
        "_epoch",
        "_follower",
        "_is_closed",
        "_is_open",
        "_lanes",
        "_last_connection",
        "_node",
        "_options",
        "_outputs",
        "_room",
        "_secret",
        "_silent_ticks",
        "_uncommitted",
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
        self._is_open = False
        self._secret = ""
        self._channels: dict[int, None] = {}
        self._silent_ticks = 0
        self._room = NodeRoom(self._options)
        self._forget_epochs()

    def _forget_epochs(self) -> None:
        """M2: the next session counts from the start."""
        self._counted = 0
        """Messages of this session that belong to an epoch."""
        self._epoch = NO_EPOCH
        """The highest epoch that a message was of."""
        self._closed = NO_EPOCH
        """The epoch that ``commit`` was last called with, if it had messages."""
        self._due: NodeGroupCommit | None = None
        """The next group commit, while too many are on their way."""
        self._commits: deque[NodeGroupCommit] = deque()
        self._uncommitted: deque[tuple[int, int]] = deque()
        """Epoch and bytes of each message that waits for its group commit."""

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
        for lane in self._lanes.values():
            if lane.is_connected:
                self._outputs += lane.take()
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
        window = self._options.commits_max if number == CONTROL else self._options.window
        self._lanes[number] = NodeLane(self._last_connection, number, window)
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
        lane.put(Waiting(self._first_request(lane.lane)))

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
        """The oldest open request of a connection was answered."""
        lane = self._lane(connection)
        if lane is None:
            return
        self._silent_ticks = 0
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
            case _, Error():
                self.counters.refusal = answer
                return False
            case NodeSessionBegin(), NodeSessionBegun(secret):
                self._begun(lane, secret)
            case LaneOpen(), Ack():
                self._opened(lane)
            case ((Carry() | ChannelDispose()), Ack()):
                self._room.release(asked.count, asked.bytes)
            case NodeGroupCommit(epoch), NodeGroupCommitted(answered) if epoch == answered:
                self._group_committed(answer)
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

    def _group_committed(self, answer: NodeGroupCommitted) -> None:
        check(self._commits.popleft().epoch == answer.epoch, "M2: another one was the oldest")
        while self._uncommitted and self._uncommitted[0][0] <= answer.epoch:
            self._room.release(1, self._uncommitted.popleft()[1])
        self.counters.heard += len(answer.said)
        self._outputs += [Heard(self._follower, one.channel, one.message) for one in answer.said]
        self._ask_commit()

    # --- messages ---

    def carry(
        self, channel: int, message: bytes, attachment: Attachment = (), *, epoch: int = NO_EPOCH
    ) -> bool:
        """Send a message for a log stream; False: it was not taken, and may be repeated later.

        With an epoch it waits for that epoch's group commit, which ``commit`` asks for.
        """
        size = len(message) + sum(map(len, attachment))
        if not self._is_taken(channel, message, size):
            self.counters.not_taken += 1
            return False
        in_epoch = epoch != NO_EPOCH
        if in_epoch:
            self._count_in(epoch, size)
        self._channels[channel] = None
        self.counters.carries += 1
        count, held = (0, 0) if in_epoch else (1, size)
        self._put(channel, Waiting(Carry(channel, epoch, message), attachment, held, count))
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

    def _count_in(self, epoch: int, size: int) -> None:
        """M3."""
        check(epoch >= self._epoch, f"M3: epoch {epoch} comes after {self._epoch}")
        check(epoch > self._closed, f"M3: epoch {epoch} is closed")
        self._epoch = epoch
        self._counted += 1
        self._uncommitted.append((epoch, size))

    def _put(self, channel: int, waiting: Waiting) -> None:
        """M1."""
        self._lanes[lane_of(channel, self._options.lanes)].put(waiting)

    def dispose(self, channel: int) -> None:
        """This node is done with a log stream, as far as this follower goes."""
        if channel in self._channels:
            del self._channels[channel]
            self._room.forget(channel)
            self._put(channel, Waiting(ChannelDispose(channel)))

    # --- group commits ---

    def commit(self, epoch: int) -> None:
        """End a turn: one group commit for all that was carried, if anything was."""
        check(epoch >= self._epoch, f"M3: epoch {epoch} is committed after {self._epoch}")
        self._room.end_turn()
        if self._epoch > self._closed:
            self._closed = epoch
            self._due = NodeGroupCommit(epoch, self._counted)
            self._ask_commit()

    def _ask_commit(self) -> None:
        """Ask for the group commit that is due; one that has to wait goes with the next."""
        if self._due is None or len(self._commits) >= self._options.commits_max:
            return
        commit, self._due = self._due, None
        self._commits.append(commit)
        self.counters.group_commits += 1
        self._lanes[CONTROL].put(Waiting(commit))

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        for number, lane in self._lanes.items():
            check(lane.lane == number, f"M1: lane {number} has the connection of {lane.lane}")
        check(self._room.count <= self._options.underway_max, "M4: too much is under way")
        check(len(self._uncommitted) <= self._room.count, "M4: what waits is not under way")
        check(bool(self._lanes) or self._room.count == 0, "M5: a session that is over goes on")
