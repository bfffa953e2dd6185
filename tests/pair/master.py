"""The master that gets killed: log sessions on all channels, an epoch every few milliseconds.

Arguments: directory, endpoint of the replica, round, seconds that the replica has to answer.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from random import Random

import msgspec

from tests.pair import plan
from tests.pair.plan import CHANNELS, SHARED, Told, Transaction
from tidelog.core.session.output import Durability, Notice
from tidelog.datastore.datastore import Datastore
from tidelog.datastore.log_channel import LogChannel
from tidelog.datastore.write_version import WriteVersion
from tidelog.errors import LogError, ReplicaRefused

EPOCH_SECONDS = 0.004
BOUNDARY_EVERY = 10
"""Epochs between two moves of the GC boundary."""
WHAT = {Durability.STORED: plan.STORED, Durability.PROPAGATED: plan.PROPAGATED}


def tell(told: Told) -> None:
    """In one call, so that lines of threads do not mix."""
    os.write(1, msgspec.json.encode(told) + b"\n")


def on_notice(notice: Notice) -> None:
    tell(Told(WHAT[notice.durability], epoch=notice.epoch))


class Writer:
    """One channel and the thread that uses it."""

    def __init__(self, store: Datastore, channel: LogChannel, number: int, round_: int) -> None:
        self._store = store
        self._channel = channel
        self._number = number
        self._round = round_
        self._batons: list[bytes] = []
        """To be deleted by the next log session."""

    def find_batons(self) -> None:
        mine = b"baton/%d/" % self._number
        self._batons = [
            entry.key
            for entry in self._store.entries()
            if entry.storage_id == SHARED and entry.key.startswith(mine)
        ]

    def run(self) -> None:
        number = 0
        while True:
            number += 1
            epoch = self._channel.begin_session()
            transaction = Transaction(self._round, self._number, number, epoch)
            with self._store.blob_pool() as pool:
                data = transaction.blob
                self._write(transaction, (pool.register_data(data),) if data else ())
                tell(self._end(transaction))

    def _end(self, transaction: Transaction) -> Told:
        if transaction.aborts:
            self._channel.abort_session()
            return Told(plan.ABORTED, *transaction)
        self._channel.end_session()
        self._batons = [plan.baton_of(transaction)]
        return Told(plan.ENDED, *transaction)

    def _write(self, transaction: Transaction, blobs: tuple[int, ...]) -> None:
        channel, value, version = self._channel, transaction.value, transaction.version
        storage = plan.storage_of(transaction.round)
        for index in range(transaction.size):
            channel.add_entry(storage, b"%s/%d" % (transaction.key, index), value, version, blobs)
        for key in plan.hot_keys(transaction.channel):
            channel.add_entry(SHARED, key, value, version)
        for key in self._batons:
            channel.remove_entry(SHARED, key, version)
        channel.add_entry(SHARED, plan.baton_of(transaction), value, version)
        if transaction.number == 1 and transaction.channel == 0:
            old = plan.storage_of(transaction.round - plan.ROUNDS_KEPT)
            channel.remove_storage(old, version)


def guarded(run: Callable[[], None], failed: threading.Event) -> Callable[[], None]:
    """A failure of the datastore ends all threads, and nothing else does."""

    def until_failed() -> None:
        try:
            run()
        except LogError as error:
            tell(Told(plan.FAILED, text=f"{type(error).__name__}: {error}"))
        except BaseException as error:
            tell(Told(plan.FAILED, text=f"unexpected {error!r}"))
        finally:
            failed.set()

    return until_failed


def switch_epochs(store: Datastore, failed: threading.Event, random: Random) -> None:
    switches = 0
    while not failed.wait(random.random() * 2 * EPOCH_SECONDS):
        store.switch_epoch(store.epoch + random.choice((1, 1, 1, 2, 5)))
        switches += 1
        if switches % BOUNDARY_EVERY == 0:
            store.set_gc_boundary(WriteVersion(store.last_epoch))
            store.compact()


def main(path: str, replica: str, round_: int, ack_timeout: float) -> None:
    random = Random(round_)
    store = Datastore(path, replicas=replica, options=plan.options_of(round_, ack_timeout))
    channels = [store.create_channel() for _ in range(CHANNELS)]
    store.on_notice(on_notice)
    try:
        store.ready()
    except ReplicaRefused as error:
        tell(Told(plan.REFUSED, number=error.code, text=str(error)))
        return
    except LogError as error:
        tell(Told(plan.FAILED, text=f"{type(error).__name__}: {error}"))
        return
    last = store.last_epoch
    tell(Told(plan.READY, round_, epoch=last))
    writers = [Writer(store, channel, n, round_) for n, channel in enumerate(channels)]
    for writer in writers:
        writer.find_batons()
    store.switch_epoch(last + 1)
    failed = threading.Event()
    work = [writer.run for writer in writers]
    work.append(lambda: switch_epochs(store, failed, random))
    threads = [threading.Thread(target=guarded(run, failed)) for run in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
