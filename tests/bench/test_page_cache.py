"""The file that keeps the page cache full."""

from __future__ import annotations

from pathlib import Path

from bench.page_cache import PageCache

LENGTH = 16 << 20


def test_the_file_is_written_once_and_read_from_then_on(tmp_path: Path) -> None:
    cache = PageCache(tmp_path, LENGTH)
    cache.fill()
    (path,) = tmp_path.iterdir()
    before = path.stat()
    assert before.st_size == LENGTH
    cache.fill()
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (LENGTH, before.st_mtime_ns)


def test_a_small_run_takes_no_room(tmp_path: Path) -> None:
    PageCache(tmp_path, 0).fill()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0
