"""What masters were told and told us, and what each side may therefore hold.

L1  each side holds all of a log session or nothing, and nothing of one that was aborted
L2  a side that is at an epoch holds every log session up to it that was ended, and none beyond
L3  an epoch that was told PROPAGATED is on both sides, one that was told STORED on the master's
L4  notices ascend, and STORED comes before PROPAGATED
L5  what was lost, being of an epoch that no side had, never comes back
L6  sides at the same epoch hold the same; at different ones, the same up to the lower one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.pair import plan
from tests.pair.plan import SHARED, Told, Transaction
from tidelog.datastore.epoch_store import EpochStore
from tidelog.embedded.options import Options
from tidelog.storage.os_vfs import OsVfs

Place = tuple[int, bytes]
"""Storage id and key."""
_READ_BYTES = 1 << 20


@dataclass
class Side:
    """What a restored side holds."""

    epoch: int
    values: dict[Place, bytes] = field(default_factory=dict)
    transactions: dict[bytes, Transaction] = field(default_factory=dict)
    """By their keys."""
    parts: Counter[bytes] = field(default_factory=Counter)
    """How many keys of its own each transaction has."""

    def until(self, epoch: int) -> set[Transaction]:
        return {one for one in self.transactions.values() if one.epoch <= epoch}


def read_side(path: Path) -> Side:
    """Look at a datastore that nobody has open, BLOBs and all."""
    store = EpochStore(OsVfs(), str(path), Options(background=False), create=False)
    try:
        side = Side(store.epoch)
        for entry in store.entries():
            side.values[entry.storage_id, entry.key] = entry.value
            transaction = plan.transaction_of(entry.value)
            assert entry.value == transaction.value, "a value is not what was written"
            assert entry.write_version == transaction.version
            if entry.storage_id != SHARED:
                assert entry.storage_id == plan.storage_of(transaction.round)
                assert entry.key.startswith(transaction.key + b"/")
                side.transactions[transaction.key] = transaction
                side.parts[transaction.key] += 1
                blobs = [_read_blob(store, blob) for blob in entry.blobs]
                assert blobs == ([transaction.blob] if transaction.blob else [])
        return side
    finally:
        store.close()


def _read_blob(store: EpochStore, blob: int) -> bytes:
    reader = store.blobs.open(blob)
    try:
        return b"".join(_parts(reader.size, reader.read_at))
    finally:
        reader.close()


def _parts(size: int, read_at: object) -> Iterator[bytes]:
    assert callable(read_at)
    for offset in range(0, size, _READ_BYTES):
        yield read_at(offset, min(_READ_BYTES, size - offset))


class Ledger:
    """Of one pair, through all its rounds."""

    def __init__(self) -> None:
        self.stored = 0
        self.propagated = 0
        self.notices = 0
        """PROPAGATED ones, of all rounds."""
        self.failures: list[str] = []
        self.started: Told | None = None
        """How the last start of a master ended: READY or REFUSED."""
        self._ended: dict[bytes, Transaction] = {}
        self._never: set[bytes] = set()
        """Keys of transactions that were aborted or lost."""
        self._round = 0

    # -- what masters tell ----------------------------------------------------------------------

    def hear(self, line: bytes) -> Told:
        told = msgspec.json.decode(line, type=Told)
        match told.what:
            case plan.READY:
                self.started = told
                self._begin_life(told)
            case plan.ENDED:
                transaction = _transaction(told)
                self._ended[transaction.key] = transaction
            case plan.ABORTED:
                self._never.add(_transaction(told).key)
            case plan.STORED:
                assert told.epoch > self.stored, "L4: STORED goes back"
                self.stored = told.epoch
            case plan.PROPAGATED:
                assert self.propagated < told.epoch <= self.stored, "L4: PROPAGATED before STORED"
                self.propagated = told.epoch
                self.notices += 1
            case plan.FAILED:
                self.failures.append(told.text)
            case plan.REFUSED:
                self.started = told
        return told

    def _begin_life(self, told: Told) -> None:
        """A master goes on where it, or the side that it was copied from, had got to.

        What is beyond that is lost for ever (L5), and nobody was told that it was safe (L3).
        """
        lost = [key for key, one in self._ended.items() if one.epoch > told.epoch]
        assert all(self._ended[key].epoch > self.stored for key in lost), "L3: lost, but STORED"
        for key in lost:
            del self._ended[key]
        self._never.update(lost)
        self._round = told.round
        self.stored = self.propagated = told.epoch

    # -- what sides hold ------------------------------------------------------------------------

    def check(self, master: Side, replica: Side) -> None:
        for side, told in ((master, self.stored), (replica, self.propagated)):
            self._check_side(side, max(side.epoch, told))
        lower = min(master.epoch, replica.epoch)
        assert master.until(lower) == replica.until(lower), "L6"
        if master.epoch == replica.epoch:
            assert master.values == replica.values, "L6"

    def _check_side(self, side: Side, complete: int) -> None:
        """``complete``: the epoch up to which nothing may be missing."""
        for key, transaction in side.transactions.items():
            assert side.parts[key] == transaction.size, f"L1: {transaction} is there in part"
            assert key not in self._never, f"L1, L5: {transaction} was aborted or lost"
            assert transaction.epoch <= side.epoch, f"L2: {transaction} of {side.epoch}"
        first = self._round - plan.ROUNDS_KEPT + 1
        missing = [
            transaction
            for key, transaction in self._ended.items()
            if transaction.epoch <= complete
            and transaction.round >= first
            and key not in side.transactions
        ]
        assert not missing, f"L2, L3: {missing[:5]} up to {complete}, at {side.epoch}"
        for channel in range(plan.CHANNELS):
            _check_shared(side, channel)


def _check_shared(side: Side, channel: int) -> None:
    """Hot keys and batons are all of the newest transaction."""
    mine = [one for one in side.transactions.values() if one.channel == channel]
    if not mine:
        return
    newest = max(mine, key=lambda one: one.version)
    hot = [side.values.get((SHARED, key)) for key in plan.hot_keys(channel)]
    assert hot == [newest.value] * plan.HOT_KEYS, f"L1: hot keys, {newest}"
    batons = [
        key
        for storage, key in side.values
        if storage == SHARED and key.startswith(b"baton/%d/" % channel)
    ]
    assert batons == [plan.baton_of(newest)], f"L1: batons, {newest}"


def _transaction(told: Told) -> Transaction:
    return Transaction(told.round, told.channel, told.number, told.epoch)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Say in which round a check failed."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error
