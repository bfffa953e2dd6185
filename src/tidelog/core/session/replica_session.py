"""What a replica knows of its connections and of the session that they make up.

Invariants:
  S1  a session has one control channel, and at most one connection for each log channel
  S2  a broken session stays broken until it ends
"""

from __future__ import annotations

from enum import Enum
from hmac import compare_digest

import msgspec

from tidelog.core.session.channel import Channel, refusal
from tidelog.core.session.messages import ErrorCode
from tidelog.errors import ReplicaRefused


class ReplicaState(Enum):
    """What a replica service can be asked for."""

    LISTENING = "listening"
    """There is no session."""
    OPEN = "open"
    BROKEN = "broken"
    """Entries may be missing: the session can only be ended."""


class Link:
    """One connection; its first message decides what it is."""

    __slots__ = ("channel", "connection", "is_busy", "session")

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.session: Session | None = None
        """The session that it is a channel of: the control channel, unless ``channel`` is set."""
        self.channel: Channel | None = None
        self.is_busy = False
        """Whether its last request is not answered."""


class ReplicaCounters(msgspec.Struct):
    """What a replica has done since it began; for metrics."""

    sessions: int = 0
    broken: int = 0
    group_commits: int = 0
    writes: int = 0
    entries: int = 0
    bytes: int = 0
    blob_bytes: int = 0
    ignored: int = 0
    """Words on connections that are gone."""
    errors: dict[ErrorCode, int] = msgspec.field(default_factory=dict)
    """Answers that were errors."""


class Session:
    """One replication session, from its first message on."""

    __slots__ = ("channels", "committing", "control", "is_broken", "secret")

    def __init__(self, control: Link, secret: str) -> None:
        self.control = control
        self.secret = secret
        self.channels: tuple[Channel, ...] | None = None
        """None while the store is being prepared."""
        self.committing = 0
        """The epoch of the last group commit that was begun."""
        self.is_broken = False

    def opened(self, ends: tuple[int, ...]) -> None:
        """The store is prepared; its channels end there."""
        self.channels = tuple(Channel(number, end) for number, end in enumerate(ends))

    def channel_with(self, secret: str, number: int) -> Channel:
        """The log channel that whoever knows the secret may have."""
        if self.channels is None or not is_same_secret(secret, self.secret):
            raise wrong_secret()
        self.require_whole()
        self._require_number(number, len(self.channels))
        channel = self.channels[number]
        self._require_free(channel)
        return channel

    def _require_number(self, number: int, channels: int) -> None:
        if number >= channels:
            text = f"there are {channels} log channels, and {number} is none of them"
            raise refusal(ErrorCode.TOO_MANY_CHANNELS, text)

    def _require_free(self, channel: Channel) -> None:
        """S1."""
        if channel.connection is not None:
            text = f"log channel {channel.number} has a connection"
            raise refusal(ErrorCode.CHANNEL_TAKEN, text)

    def require_whole(self) -> None:
        """S2."""
        if self.is_broken:
            raise refusal(ErrorCode.SESSION_BROKEN, "entries may be missing: begin a new session")

    def require_ended(self, epoch: int) -> None:
        """No log channel may be writing in an epoch that is to be committed."""
        for channel in self.channels or ():
            if channel.is_writing_in(epoch):
                text = f"log channel {channel.number} is writing in epoch {channel.epoch}"
                raise refusal(ErrorCode.LOG_SESSION_OPEN, text)


def is_same_secret(shown: str, secret: str) -> bool:
    """Takes as long for a secret that is nearly right as for any other."""
    return compare_digest(shown.encode("utf-8", "surrogatepass"), secret.encode())


def wrong_secret() -> ReplicaRefused:
    return refusal(ErrorCode.WRONG_SECRET, "there is no session with this secret")
