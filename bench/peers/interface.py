"""What the benchmark asks of every system that it measures.

A peer is installed, then started in some variant as a cluster of three nodes on loopback, which has
topics with three replicas; one or more clients drive a topic.  An append counts when it was
acknowledged, and the variant says what that promises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, Self

from bench.peers.processes import Processes, disk_bytes

if TYPE_CHECKING:
    from bench.peers.installing import Store

NODES: Final = 3


class NotOffered(Exception):
    """A client, or its system, has no such thing; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Variant:
    """How a peer is set up."""

    name: str
    durability: str
    """What an acknowledgement promises."""
    syncs: bool = False
    """Whether that includes an fsync."""


class Reading:
    """Counts records as they come; the clock runs from the first ones on, when all is set up."""

    def __init__(self) -> None:
        self.records = 0
        self._first = 0
        self._made = self._begin = self._end = perf_counter()

    def took(self, records: int) -> None:
        self._end = perf_counter()
        if not self.records:
            self._begin, self._first = self._end, records
        self.records += records

    @property
    def records_per_second(self) -> float:
        """If all came at once, of all, and setting up counts."""
        if self.records == self._first:
            return self.records / (self._end - self._made)
        return (self.records - self._first) / (self._end - self._begin)


class Client(ABC):
    """Drives one topic from this process; used by ``with``, then one call at a time."""

    name: ClassVar[str]

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Connect; not measured."""

    @abstractmethod
    def close(self) -> None: ...

    def append_batches(self, values: Sequence[bytes], count: int) -> None:
        """Append the values ``count`` times in the largest units that the system likes."""
        raise NotOffered("batched appends")

    def append_small(self, value: bytes, count: int) -> None:
        """Append a value ``count`` times, each for itself, with many under way."""
        raise NotOffered("small appends")

    def append_one_by_one(self, value: bytes, count: int) -> list[float]:
        """Append with one in flight; the seconds of each."""
        raise NotOffered("appends one by one")

    def append_at_rate(self, value: bytes, rate: int, count: int) -> list[float]:
        """Begin an append every 1/rate s, come what may; seconds since each should have begun."""
        raise NotOffered("appends at a fixed rate")

    def consume(self, count: int) -> Reading:
        """Read the first ``count`` records of the topic, or somewhat more."""
        raise NotOffered("reading")


@dataclass(slots=True)
class Cluster(ABC):
    """Three running nodes."""

    version: str
    processes: Processes
    directory: Path

    @abstractmethod
    def make_topic(self, name: str, streams: int) -> None:
        """A new topic with three replicas; returns when it can be written."""

    @abstractmethod
    def clients(self, topic: str) -> Sequence[Client]:
        """What can drive a topic of one stream, the fastest first; not open yet."""

    def readers(self, topic: str) -> Sequence[Client]:
        """What can read a topic of several streams as one; none if there is nothing like that."""
        return ()

    def spark_readers(self, topic: str) -> Sequence[Client]:
        """How Spark can read such a topic; none if it cannot."""
        return ()

    def kept_bytes(self) -> int:
        """What all nodes have on their disks."""
        return disk_bytes(self.directory)

    def flushed(self, topic: str, records: int) -> int:
        """Have what a topic was given put where it stays, if there is a call for that.

        Return how many of the records are among ``kept_bytes`` then.
        """
        return records


class Peer(Protocol):
    """One system."""

    @property
    def name(self) -> str: ...

    @property
    def variants(self) -> Sequence[Variant]: ...

    @property
    def orders_streams(self) -> bool:
        """Whether what is read from several streams has one total order."""

    def install(self, store: Store) -> None:
        """Fetch what is missing; raises ``Unavailable``."""

    def start(self, variant: Variant, directory: Path) -> AbstractContextManager[Cluster]:
        """A fresh cluster in an empty directory, stopped at the end of the block."""
