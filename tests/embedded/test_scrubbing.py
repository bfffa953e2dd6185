"""What the background scrub tells of files that it found damaged."""

from __future__ import annotations

from tests.embedded.logs import flush, open_sim
from tidelog import Log
from tidelog.testing.disk import SimDisk


def scrubbed(log: Log) -> tuple[str, ...]:
    """All damaged files, after one round over all of them."""
    for _ in log.engine.node.streams[1].view.segments:
        log.engine.maintenance.scrub_next()
    return log.log_stats().damaged_files


def test_a_damaged_file_is_told_of_until_it_is_gone_or_mended() -> None:
    disk = SimDisk()
    with open_sim(disk) as log:
        for value in (b"first", b"second"):
            log.append(value)
            flush(log)
        path = log.engine.node.streams[1].view.segments[0].path
        assert scrubbed(log) == ()
        disk.flip_bit(path, 100, 0)
        (problem,) = scrubbed(log)
        assert path in problem
        disk.flip_bit(path, 100, 0)
        assert scrubbed(log) == ()
        disk.flip_bit(path, 100, 0)
        assert len(scrubbed(log)) == 1
        log.trim(2)
        assert scrubbed(log) == ()
