"""One session between two nodes, as its follower sees it: what may come next on which connection.

Invariants:
  S1  a session has one control connection, and at most one connection for each lane
  S2  a channel's messages come on its lane alone, and its epochs never fall
  S3  what has come and was not answered for is bounded, and so is what waits for an answer
  S4  tickets are of this session: what was delivered for another one counts for nothing here
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog import limits
from tidelog.core.session.node_answers import NodeAnswers, Owed
from tidelog.core.session.node_epochs import NodeEpochs
from tidelog.core.session.node_messages import NO_EPOCH, Carry, NodeErrorCode, Said, lane_of
from tidelog.core.session.node_output import NodeOptions
from tidelog.core.session.replica_session import is_same_secret
from tidelog.invariants import check
from tidelog.types import NodeId


class NodeRefused(Exception):
    """A request that breaks the protocol: its session ends."""

    def __init__(self, code: NodeErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class NodeLink:
    """One connection; its first message decides what it is."""

    __slots__ = ("answers", "connection", "lane", "session")

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.session: NodeSession | None = None
        self.lane: int | None = None
        """Which log connection of its session it is; None: the control connection."""
        self.answers = NodeAnswers(connection)


class Carried(NamedTuple):
    """A message that is being delivered: what waits for it."""

    link: NodeLink
    epoch: int
    owed: Owed | None
    """Its answer; None: another message of its epoch has the one for all of them."""


class NodeSession:
    """One session, from its first message on."""

    __slots__ = (
        "_channels",
        "_options",
        "_outbox",
        "_outbox_bytes",
        "_secret",
        "_tickets",
        "control",
        "epochs",
        "lanes",
        "leader",
    )

    def __init__(
        self, control: NodeLink, leader: NodeId, lanes: int, secret: str, options: NodeOptions
    ) -> None:
        self.control = control
        self.leader = leader
        self.lanes: list[NodeLink | None] = [None] * lanes
        self.epochs = NodeEpochs()
        self._secret = secret
        self._options = options
        self._channels: dict[int, int] = {}
        """The epoch of each log channel."""
        self._tickets: dict[int, Carried] = {}
        """Messages that are being delivered."""
        self._outbox: list[Said] = []
        self._outbox_bytes = 0

    @property
    def links(self) -> list[NodeLink]:
        """All its connections."""
        return [self.control, *[link for link in self.lanes if link is not None]]

    # --- lanes ---

    def knows(self, secret: str) -> bool:
        """Whether somebody was told the secret of this session."""
        return is_same_secret(secret, self._secret)

    def open_lane(self, link: NodeLink, lane: int) -> None:
        """Make a connection one of its lanes (S1)."""
        if not lane < len(self.lanes):
            text = f"there are {len(self.lanes)} log connections, and {lane} is none of them"
            raise NodeRefused(NodeErrorCode.NO_LANE, text)
        if self.lanes[lane] is not None:
            raise NodeRefused(NodeErrorCode.NO_LANE, f"log connection {lane} is taken")
        self.lanes[lane] = link
        link.session, link.lane = self, lane

    # --- messages ---

    def check_carry(self, lane: int, carry: Carry, size: int) -> None:
        """Refuse a message that may not come here and now."""
        self._check_lane(lane, carry.channel)
        self._check_room(size)
        self._check_channel(carry.channel)
        if carry.epoch != NO_EPOCH:
            self._check_epoch(carry.channel, carry.epoch)
        self._check_commit(carry)

    def _check_lane(self, lane: int, channel: int) -> None:
        """S2."""
        right = lane_of(channel, len(self.lanes))
        if lane != right:
            text = f"channel {channel} uses log connection {right}, not {lane}"
            raise NodeRefused(NodeErrorCode.WRONG_LANE, text)

    def _check_room(self, size: int) -> None:
        """S3; one message is taken whatever its size."""
        count, held, options = self.epochs.count, self.epochs.bytes, self._options
        if count >= options.underway_max or (held and held + size > options.underway_bytes_max):
            text = f"{count} messages of {held} bytes wait for a group commit"
            raise NodeRefused(NodeErrorCode.TOO_MUCH, text)

    def _check_channel(self, channel: int) -> None:
        if channel not in self._channels and len(self._channels) >= self._options.channels_max:
            text = f"there may be {self._options.channels_max} log channels"
            raise NodeRefused(NodeErrorCode.TOO_MANY_CHANNELS, text)

    def _check_epoch(self, channel: int, epoch: int) -> None:
        if self.epochs.is_over(epoch) or self.epochs.is_complete(epoch):
            raise NodeRefused(NodeErrorCode.EPOCH_COMMITTED, f"epoch {epoch} was committed")
        self._check_ahead(epoch)
        last = self._channels.get(channel, NO_EPOCH)
        if epoch < last:
            text = f"channel {channel} is at epoch {last}, not at {epoch}"
            raise NodeRefused(NodeErrorCode.EPOCH_WENT_BACK, text)

    def _check_ahead(self, epoch: int) -> None:
        """S3: each epoch has a group commit that waits, or will."""
        if self.epochs.ahead(epoch) > self._options.commits_max:
            text = f"{self.epochs.ahead(epoch)} group commits would be open"
            raise NodeRefused(NodeErrorCode.TOO_MUCH, text)

    def _check_commit(self, carry: Carry) -> None:
        if carry.commit and (
            carry.epoch == NO_EPOCH or not self.epochs.may_commit(carry.epoch, carry.commit)
        ):
            text = f"a group commit of {carry.commit} messages of epoch {carry.epoch}"
            raise NodeRefused(NodeErrorCode.BAD_EPOCH, text)

    def take(self, link: NodeLink, carry: Carry, size: int, ticket: int, owed: Owed | None) -> None:
        """Take a message that was checked; it is delivered under a ticket."""
        self._channels[carry.channel] = max(carry.epoch, self._channels.get(carry.channel, 0))
        self._tickets[ticket] = Carried(link, carry.epoch, owed)
        if carry.epoch != NO_EPOCH:
            self.epochs.arrived(carry.epoch, size)
            if owed is not None:
                self.epochs.commit(carry.epoch, carry.commit, owed)

    def take_ticket(self, ticket: int) -> Carried | None:
        """Return the message that was delivered; None if it is not of this session (S4)."""
        return self._tickets.pop(ticket, None)

    def dispose(self, lane: int, channel: int) -> None:
        """Forget a channel."""
        self._check_lane(lane, channel)
        self._channels.pop(channel, None)

    # --- what is said with the answers ---

    def say(self, channel: int, message: bytes) -> bool:
        """Keep a message for the next answer, if one is due and there is room (S3)."""
        if not self.epochs.is_answer_due or not self._has_room_for(message):
            return False
        self._outbox.append(Said(channel, message))
        self._outbox_bytes += len(message)
        return True

    def _has_room_for(self, message: bytes) -> bool:
        return (
            len(self._outbox) < limits.NODE_ANSWER_MESSAGES_MAX
            and self._outbox_bytes + len(message) <= limits.NODE_ANSWER_BYTES_MAX
        )

    def take_said(self) -> tuple[Said, ...]:
        """Hand over all that waits for an answer."""
        said, self._outbox, self._outbox_bytes = tuple(self._outbox), [], 0
        return said

    def validate(self) -> None:
        """Check every invariant at full length, for tests and simulations."""
        check(self.control.session is self, "S1: the control connection is of another session")
        for lane, link in enumerate(self.lanes):
            check(
                link is None or (link.session is self and link.lane == lane),
                f"S1: lane {lane} is a connection of something else",
            )
        check(self.epochs.count <= self._options.underway_max, "S3: too much has come")
        check(self._outbox_bytes <= limits.NODE_ANSWER_BYTES_MAX, "S3: too much waits")
