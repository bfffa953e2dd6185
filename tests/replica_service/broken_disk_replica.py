"""A replica whose disk fails when told so: while a file ``DATA.fault`` exists.

Its first line says what fails: ``write`` or ``sync``; its second line which error comes, by name;
its third, which files are meant, by a part of their path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import click

from tidelog.embedded.options import Options
from tidelog.limits import KIB
from tidelog.net.loops import run
from tidelog.replica_service.serve import serve_replica
from tidelog.storage.os_vfs import OsFile, OsVfs
from tidelog.storage.vfs import File

WAL_FILE_BYTES = 64 * KIB


class Fault:
    def __init__(self, path: Path) -> None:
        self._path = path

    def strike(self, what: str, file: str) -> None:
        """Raise if this is to fail now."""
        try:
            failing, name, part = self._path.read_text().splitlines()
        except FileNotFoundError:
            return
        if failing == what and part in file:
            number = getattr(errno, name)
            raise OSError(number, os.strerror(number), file)


class BrokenFile:
    """A file whose writes and syncs fail when told so."""

    def __init__(self, inner: OsFile, path: str, fault: Fault) -> None:
        self._inner = inner
        self._path = path
        self._fault = fault

    def read_at(self, offset: int, length: int) -> bytes:
        return self._inner.read_at(offset, length)

    def write_at(self, offset: int, parts: Sequence[bytes | memoryview]) -> None:
        self._fault.strike("write", self._path)
        self._inner.write_at(offset, parts)

    def sync(self) -> None:
        self._fault.strike("sync", self._path)
        self._inner.sync()

    def size(self) -> int:
        return self._inner.size()

    def close(self) -> None:
        self._inner.close()


class BrokenVfs(OsVfs):
    """The real disk, with files that fail when told so."""

    __slots__ = ("_fault",)

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def create(self, path: str, *, once: bool = False) -> File:  # type: ignore[override]
        self._fault.strike("create", path)
        return BrokenFile(super().create(path, once=once), path, self._fault)

    def open(self, path: str, *, write: bool = False) -> File:  # type: ignore[override]
        return BrokenFile(super().open(path, write=write), path, self._fault)


@click.command()
@click.option("--data", required=True)
@click.option("--listen", required=True)
@click.option("--http", required=True)
def main(data: str, listen: str, http: str) -> None:
    def ready(addresses: list[str]) -> None:
        for address in addresses:
            click.echo(f"ready {address}")

    vfs = BrokenVfs(Fault(Path(f"{data}.fault")))
    # Small, so that a new file is needed soon.
    options = Options(wal_file_bytes=WAL_FILE_BYTES)
    run(serve_replica(data, [listen], http=http, vfs=vfs, options=options, ready=ready))


if __name__ == "__main__":
    main()
