"""A log that is open is checked byte by byte: what its readers know by heart does not count."""

from __future__ import annotations

from tests.storage.streams import Streams, put, value
from tidelog.storage.scrub import scrub
from tidelog.testing.disk import SimDisk


def problems(story: Streams) -> list[str]:
    return [finding.problem for finding in scrub(story.node) if finding.problem]


def open_story() -> tuple[Streams, SimDisk, str]:
    """A stream of one segment, which is open because it was read."""
    story = Streams.new()
    story.segment([put("a", "1"), value("2"), put("b", "3")])
    (segment,) = story.segments()
    assert len(story.read()) == 3
    assert not problems(story)
    return story, story.disk, segment.path


def test_damage_to_any_byte_of_an_open_segment_is_found() -> None:
    story, disk, path = open_story()
    for byte in range(len(disk.files()[path])):
        disk.flip_bit(path, byte, byte % 8)
        assert len(problems(story)) == 1, f"byte {byte}"
        disk.flip_bit(path, byte, byte % 8)
    assert not problems(story)


def test_an_open_segment_whose_file_is_gone_is_found() -> None:
    story, disk, path = open_story()
    disk.vfs().unlink(path)
    (problem,) = problems(story)
    assert "is missing" in problem
