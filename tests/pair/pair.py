"""A master and its replica as processes, and the rounds that they live through."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from tests.pair import plan
from tests.pair.forked import Forked, Nursery
from tests.pair.ledger import Ledger, Side, explained, read_side
from tidelog.cli.restore_files import restore
from tidelog.core.session.messages import ErrorCode
from tidelog.errors import NotALog

ACK_SECONDS = 20.0


class Apart(Exception):
    """The master was refused: since the last kill the sides are at different epochs."""


class ReplicaProcess:
    """A replica service, forked."""

    def __init__(self, nursery: Nursery, path: Path) -> None:
        self._process = nursery.start(
            "tests.pair.small_replica", "--data", str(path), "--listen", "tcp://127.0.0.1:0"
        )
        [line] = self._process.wait_for_lines()
        assert line.startswith(b"ready ")
        self.address = line.removeprefix(b"ready ").decode()

    def kill(self) -> None:
        self._process.close()

    def stop(self) -> None:
        """In order, by SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait() == 0, self._process.errors()
        assert "Traceback" not in self._process.errors(), self._process.errors()
        self._process.close()


class Pair:
    """One history; the parent checks both sides after each round."""

    def __init__(self, place: Path, seed: int, *, epochs_max: int) -> None:
        """``epochs_max``: how many epochs are propagated, at most, before the next harm is done."""
        self.random = Random(seed)
        self._epochs_max = epochs_max
        self.ledger = Ledger()
        self.rounds = 0
        self.ahead: Counter[str] = Counter()
        """Which side was ahead of the other, and how often."""
        self._place = place
        self._master = place / "master"
        self._replica = place / "replica"
        self._nursery = Nursery()
        self.replica: ReplicaProcess | None = None

    # -- processes ------------------------------------------------------------------------------

    def start_replica(self) -> ReplicaProcess:
        if self.replica is None:
            self.replica = ReplicaProcess(self._nursery, self._replica)
        return self.replica

    def stop_replica(self, *, kill: bool) -> None:
        if self.replica is not None:
            if kill:
                self.replica.kill()
            else:
                self.replica.stop()
            self.replica = None

    def start_master(self, endpoint: str, *, ack_seconds: float = ACK_SECONDS) -> Forked:
        """A master that is at work in the next round, or says why it is not."""
        master = self.begin_master(endpoint, ack_seconds=ack_seconds)
        self.hear(master, until=lambda: self.ledger.started is not None or self.has_failed)
        return master

    def begin_master(self, endpoint: str, *, ack_seconds: float = ACK_SECONDS) -> Forked:
        """A master that is about to open its store and a session with the replica."""
        self.rounds += 1
        self.ledger.started = None
        self.ledger.failures.clear()
        return self._nursery.start(
            "tests.pair.master", str(self._master), endpoint, str(self.rounds), str(ack_seconds)
        )

    def hear(self, master: Forked, *, until: Callable[[], bool]) -> None:
        while not until():
            for line in master.wait_for_lines():
                self.ledger.hear(line)

    def hear_epochs(self, master: Forked) -> None:
        """Until some more epochs were propagated."""
        self._require_ready()
        enough = self.ledger.notices + self.random.randint(1, self._epochs_max)
        self.hear(master, until=lambda: self.ledger.notices >= enough or self.has_failed)

    @property
    def has_failed(self) -> bool:
        """Whether the master has told that it lost its replica."""
        return bool(self.ledger.failures)

    def _require_ready(self) -> None:
        started = self.ledger.started
        if started is None:
            return  # It has failed before.
        if started.number == ErrorCode.WRONG_POSITION:
            raise Apart(started.text)
        assert started.what == plan.READY, started.text

    def hear_for(self, master: Forked, seconds: float) -> None:
        for line in master.lines_within(seconds):
            self.ledger.hear(line)

    def hear_the_end(self, master: Forked) -> None:
        """All that the master tells until it ends by itself."""
        for line in master.wait_for_end():
            self.ledger.hear(line)

    def hear_the_rest(self, master: Forked) -> None:
        """SIGKILL, and all that the master had told before."""
        for line in master.kill():
            self.ledger.hear(line)

    # -- what is on disk ------------------------------------------------------------------------

    def check_both(self, *, kill: bool = False) -> None:
        """Stop the replica, restore from both sides and look; then let the newer one be both."""
        self.stop_replica(kill=kill)
        with explained(f"round {self.rounds}"):
            master, replica = self._restored(self._master), self._restored(self._replica)
            self.ledger.check(master, replica)
        if master.epoch > replica.epoch:
            self._copy(self._master, self._replica)
        elif master.epoch < replica.epoch:
            self._copy(self._replica, self._master)

    def _copy(self, newer: Path, older: Path) -> None:
        """What an operator does after a master was refused."""
        if not self.ahead[newer.name]:
            self._expect_refusal()
        self.ahead[newer.name] += 1
        shutil.rmtree(older, ignore_errors=True)
        restore(str(newer), str(older), lambda _: None)

    def _restored(self, path: Path) -> Side:
        copy = self._place / f"restored-{path.name}"
        try:
            restored = restore(str(path), str(copy), lambda _: None)
        except NotALog:
            return Side(0)  # It was killed before it had made anything.
        side = read_side(copy)
        assert restored.epoch == side.epoch
        shutil.rmtree(copy)
        return side

    def _expect_refusal(self) -> None:
        """Sides at different epochs do not become a pair."""
        endpoint = self.start_replica().address
        with self.start_master(endpoint):
            started = self.ledger.started
            assert started is not None
            assert started.what == plan.REFUSED, "sides at different epochs became a pair"
            assert started.number == ErrorCode.WRONG_POSITION
        self.stop_replica(kill=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._nursery.close()
