"""Segments stay in the page cache while somebody reads the stream, and only then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.embedded.logs import flush, open_sim
from tidelog import Log
from tidelog.storage import segments
from tidelog.testing.disk import SimDisk
from tidelog.testing.disk_vfs import SimFile, SimVfs


@dataclass
class NotingVfs(SimVfs):
    """Notes of each segment whether it was to be written past the page cache."""

    disk: SimDisk
    written_once: list[bool] = field(default_factory=list)

    def create(self, path: str, *, once: bool = False) -> SimFile:
        if ".segment" in path or path.endswith(".compacting"):
            self.written_once.append(once)
        return super().create(path, once=once)


@pytest.fixture(autouse=True)
def short_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "AWAITED_SEGMENTS", 2)


def read_all(log: Log) -> object:
    return list(log.read())


def read_pages(log: Log) -> object:
    return list(log.read_arrow())


@pytest.mark.parametrize("read", [read_all, read_pages])
def test_segments_of_a_stream_that_is_read_stay_in_the_page_cache_for_a_while(
    read: Callable[[Log], object],
) -> None:
    disk = SimDisk()
    vfs = NotingVfs(disk)
    with open_sim(disk, vfs=vfs) as log:
        for number in range(5):
            if number == 1:
                read(log)
            log.append(b"%d" % number)
            flush(log)
    assert vfs.written_once == [True, False, False, True, True]


def test_what_compaction_writes_again_goes_past_the_page_cache() -> None:
    disk = SimDisk()
    vfs = NotingVfs(disk)
    with open_sim(disk, vfs=vfs) as log:
        for number in range(3):
            log.put_batch([(b"same", b"%d" % number), (b"own %d" % number, b"kept")])
            flush(log)
        read_all(log)
        vfs.written_once.clear()
        assert log.compact(full=True).rewritten > 1
    assert vfs.written_once == [True]
