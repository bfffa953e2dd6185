"""Engines that can be measured side by side: the bare disk, Tidelog, SQLite, LMDB, RocksDB.

Each of them makes every call durable before it returns, with the settings that suit it best; only
an appender says later, for each call by itself, that it is.  Entries without keys go where the
engine is fastest with them: to the end, in ascending order.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import tidelog
from tidelog.cli.bench_disk import Disk, DiskTwice
from tidelog.limits import MIB

if TYPE_CHECKING:
    import lmdb
    import rocksdict

Item = tuple[bytes, bytes]
_MAP_BYTES: Final = 64 << 30
_SETTLE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.005


class Writer(Protocol):
    """How one thread writes; each call is one transaction.

    It is durable when the call returns, or when the future is done that it returns.
    """

    def append(self, values: Sequence[bytes]) -> Future[Any] | None: ...

    def put(self, items: Sequence[Item]) -> Future[Any] | None: ...

    def close(self) -> None:
        """Wait for what is not durable yet."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def writer(self) -> Writer: ...

    def settle(self) -> None:
        """Wait until work that was put off is done; this is measured."""

    def rest(self) -> None:
        """Wait until nothing goes on in the background; this is not."""

    def close(self) -> None: ...


def _wait_until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(_SETTLE_SECONDS / _POLL_SECONDS)):
        if condition():
            return
        pause.wait(_POLL_SECONDS)
    raise TimeoutError("work in the background does not come to an end")


# ---- Tidelog


class _TidelogWriter:
    def __init__(self, log: tidelog.Log) -> None:
        self._log = log

    def append(self, values: Sequence[bytes]) -> None:
        if len(values) == 1:
            self._log.append(values[0])
        else:
            self._log.append_batch(values)

    def put(self, items: Sequence[Item]) -> None:
        if len(items) == 1:
            self._log.put(*items[0])
        else:
            self._log.put_batch(items)

    def close(self) -> None:
        pass


class Tidelog:
    name = "tidelog"

    def __init__(self, directory: Path) -> None:
        self.log = tidelog.open(directory / self.name)

    def writer(self) -> Writer:
        return _TidelogWriter(self.log)

    def settle(self) -> None:
        """Until all rolled WAL files are in segments."""
        _wait_until(lambda: not self.log.log_stats().wal_backlog_files)

    def rest(self) -> None:
        """Nothing is left after ``settle``."""

    def close(self) -> None:
        self.log.close()


class _AppenderWriter:
    def __init__(self, log: tidelog.Log) -> None:
        self._opened = ExitStack()
        self._appender = self._opened.enter_context(log.appender())

    def append(self, values: Sequence[bytes]) -> Future[Any]:
        if len(values) == 1:
            return self._appender.append(values[0])
        return self._appender.append_batch(values)

    def put(self, items: Sequence[Item]) -> Future[Any]:
        if len(items) == 1:
            return self._appender.put(*items[0])
        return self._appender.put_batch(items)

    def close(self) -> None:
        self._opened.close()


class TidelogAppender(Tidelog):
    """A log whose writers do not wait for each call."""

    name = "appender"

    def writer(self) -> Writer:
        return _AppenderWriter(self.log)


# ---- SQLite


class _SqliteWriter:
    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=60)
        run = self._database.execute
        run("PRAGMA journal_mode = WAL").close()
        run("PRAGMA synchronous = FULL").close()
        run("PRAGMA cache_size = -65536").close()
        run("PRAGMA mmap_size = 1073741824").close()
        run("PRAGMA wal_autocheckpoint = 4000").close()
        run("CREATE TABLE IF NOT EXISTS log (id INTEGER PRIMARY KEY, value BLOB)").close()
        run(
            "CREATE TABLE IF NOT EXISTS pairs (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
        ).close()

    def append(self, values: Sequence[bytes]) -> None:
        self._write("INSERT INTO log (value) VALUES (?)", [(value,) for value in values])

    def put(self, items: Sequence[Item]) -> None:
        self._write("INSERT OR REPLACE INTO pairs VALUES (?, ?)", items)

    def _write(self, statement: str, rows: Sequence[tuple[bytes, ...]]) -> None:
        if len(rows) == 1:
            self._database.execute(statement, rows[0]).close()
            return
        self._database.execute("BEGIN IMMEDIATE").close()
        self._database.executemany(statement, rows).close()
        self._database.execute("COMMIT").close()

    def close(self) -> None:
        self._database.close()


class Sqlite:
    name = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._path = directory / "sqlite.db"

    def writer(self) -> Writer:
        return _SqliteWriter(self._path)

    def settle(self) -> None:
        """Checkpoints are part of the writes."""

    def rest(self) -> None:
        """It has no background."""

    def close(self) -> None:
        pass


# ---- LMDB


class _LmdbWriter:
    def __init__(self, environment: lmdb.Environment, numbers: count[int]) -> None:
        self._environment = environment
        self._numbers = numbers

    def append(self, values: Sequence[bytes]) -> None:
        with self._environment.begin(write=True) as transaction:
            # Numbers are taken under the lock of the writer, so they ascend in the file too.
            items = [(next(self._numbers).to_bytes(8, "big"), value) for value in values]
            transaction.cursor().putmulti(items, append=True)

    def put(self, items: Sequence[Item]) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(items)

    def close(self) -> None:
        pass


class Lmdb:
    name = "lmdb"

    def __init__(self, directory: Path) -> None:
        import lmdb

        self._environment = lmdb.open(str(directory / "lmdb"), map_size=_MAP_BYTES)
        self._numbers = count(1)

    def writer(self) -> Writer:
        return _LmdbWriter(self._environment, self._numbers)

    def settle(self) -> None:
        """Nothing is put off."""

    def rest(self) -> None:
        """It has no background."""

    def close(self) -> None:
        self._environment.close()


# ---- RocksDB


class _RocksWriter:
    def __init__(
        self, database: rocksdict.Rdict, options: rocksdict.WriteOptions, numbers: count[int]
    ) -> None:
        self._database = database
        self._options = options
        self._numbers = numbers

    def append(self, values: Sequence[bytes]) -> None:
        self.put([(next(self._numbers).to_bytes(8, "big"), value) for value in values])

    def put(self, items: Sequence[Item]) -> None:
        if len(items) == 1:
            self._database.put(*items[0], write_opt=self._options)
            return
        import rocksdict

        batch = rocksdict.WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in items:
            put(key, value)
        self._database.write(batch, write_opt=self._options)

    def close(self) -> None:
        pass


class RocksDb:
    name = "rocksdb"

    def __init__(self, directory: Path) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(64 * MIB)
        options.set_max_write_buffer_number(4)
        options.set_recycle_log_file_num(4)
        options.set_compression_type(rocksdict.DBCompressionType.none())
        self._database = rocksdict.Rdict(str(directory / "rocksdb"), options)
        self._write_options = rocksdict.WriteOptions()
        self._write_options.sync = True
        self._numbers = count(1)

    def writer(self) -> Writer:
        return _RocksWriter(self._database, self._write_options, self._numbers)

    def settle(self) -> None:
        """What its threads still do is not held against it."""

    def rest(self) -> None:
        running = ("rocksdb.num-running-flushes", "rocksdb.num-running-compactions")
        _wait_until(lambda: not any(map(self._database.property_int_value, running)))

    def close(self) -> None:
        self._database.close()


PEERS: Final[dict[str, Callable[[Path], Any]]] = {
    "sqlite": Sqlite,
    "lmdb": Lmdb,
    "rocksdb": RocksDb,
}
ENGINES: Final[dict[str, Callable[[Path], Any]]] = {
    "disk": Disk,
    "disk-twice": DiskTwice,
    "tidelog": Tidelog,
    "appender": TidelogAppender,
    **PEERS,
}
