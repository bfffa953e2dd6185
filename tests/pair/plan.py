"""What masters under test write, as a function of round, channel and number.  No state.

Both sides know it: the master carries it out, and the parent can tell from what a restored side
holds which log sessions are in it, and whether each is there as a whole.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from tidelog.datastore.options import DatastoreOptions
from tidelog.datastore.write_version import WriteVersion
from tidelog.embedded.options import Options

CHANNELS: Final = 3
HOT_KEYS: Final = 3
"""Keys that every log session of a channel writes."""
SHARED: Final = 1
"""The storage of hot keys and batons; each round has one of its own besides."""
ROUND_STORAGES: Final = 100
ROUNDS_KEPT: Final = 3
"""The storages of earlier rounds are deleted."""


class Transaction(NamedTuple):
    """One log session."""

    round: int
    channel: int
    number: int
    epoch: int

    @property
    def key(self) -> bytes:
        return b"%d/%d/%d" % (self.round, self.channel, self.number)

    @property
    def size(self) -> int:
        """How many keys of its own it writes."""
        return 1 + (self.number * 7 + self.channel) % 6

    @property
    def value(self) -> bytes:
        """Says who wrote it; of a length between 20 and 1,020 bytes."""
        text = b"%d/%d/%d/%d/" % self
        return text.ljust(20 + self.number * 131 % 1_000, b".")

    @property
    def version(self) -> int:
        return WriteVersion(self.epoch, self.number)

    @property
    def aborts(self) -> bool:
        return self.number % 4 == 2

    @property
    def blob(self) -> bytes:
        """The BLOB that it brings; most have none."""
        if self.number % 11 != 3:
            return b""
        return self.key * (1 + self.number * 977 % 9_000)


def transaction_of(value: bytes) -> Transaction:
    """Who wrote a value."""
    return Transaction(*map(int, value.split(b"/")[:4]))


def storage_of(round_: int) -> int:
    return ROUND_STORAGES + round_


def hot_keys(channel: int) -> list[bytes]:
    return [b"hot/%d/%d" % (channel, number) for number in range(HOT_KEYS)]


def baton_of(transaction: Transaction) -> bytes:
    """A key that is deleted by whoever writes the next one: each channel has one at a time."""
    return b"baton/%d/%s" % (transaction.channel, transaction.key)


class Told(msgspec.Struct, array_like=True):
    """One line from a master, sent when what it says is true, never before."""

    what: str
    round: int = 0
    channel: int = 0
    number: int = 0
    epoch: int = 0
    text: str = ""


READY: Final = "ready"
ENDED: Final = "ended"
ABORTED: Final = "aborted"
STORED: Final = "stored"
PROPAGATED: Final = "propagated"
FAILED: Final = "failed"
REFUSED: Final = "refused"
WAYS: Final = ("serial", "parallel", "deferred", "immediate")
"""Ways to replicate, by round."""


def options_of(round_: int, ack_timeout: float) -> DatastoreOptions:
    """Small files, so that kills meet WAL files that are rolled; another way in each round."""
    way = WAYS[round_ % len(WAYS)]
    return DatastoreOptions(
        parallel_append=way != "serial",
        parallel_flush=way != "serial",
        parallel_commit=way != "serial",
        flush_at="group commit" if way == "deferred" else "session end",
        sending="immediate" if way == "immediate" else "buffered",
        ack_timeout_seconds=ack_timeout,
        store=Options(wal_file_bytes=256 * 1024),
    )
