"""What must be known and checked of stages before anything is written.  No state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidelog.errors import BadOption, StageExpired, UnknownStream
from tidelog.formats.manifest import TopicManifest
from tidelog.formats.messages import STAGES_MAX
from tidelog.formats.staged import smallest_version
from tidelog.interface.appends import Append, Part

_WRITER_CHARS_MAX: Final = 4096


class StageFacts(msgspec.Struct, frozen=True, gc=False):
    """What must be known of a stage before the first one of its publication is appended."""

    topic: int
    size: int
    versions: tuple[tuple[int, int], ...]
    """The log stream and the smallest write version of each part that has explicit ones."""


class StageDraft(msgspec.Struct, frozen=True, gc=False):
    """A stage before it is durable."""

    append: Append
    facts: StageFacts
    file: int
    """The stage file that holds its batches, durable already; 0: the append holds them."""


def facts_of(topic: int, parts: Sequence[Part]) -> StageFacts:
    """From the bytes themselves: what else a part says of them is not believed."""
    versions = [(part.stream, smallest_version(part.body)) for part in parts]
    return StageFacts(
        topic,
        sum([len(part.body.data) for part in parts]),
        tuple([(stream, version) for stream, version in versions if version is not None]),
    )


def expired(stage: int) -> StageExpired:
    return StageExpired(
        f"stage {stage} is not there any more: it was published, discarded or too old; "
        "stage the batches again"
    )


def check_publish(writer: str, batch: int, stages: Sequence[int]) -> None:
    if not 1 <= len(writer) <= _WRITER_CHARS_MAX:
        raise BadOption(f"a writer's name has 1 to {_WRITER_CHARS_MAX} characters")
    if not 0 <= batch < 1 << 63:
        raise BadOption(f"a batch has a number of 63 bits, not {batch}")
    if len(stages) > STAGES_MAX or len(set(stages)) != len(stages):
        raise BadOption(f"a publication has at most {STAGES_MAX} stages, and each but once")


def check_parts(topic: TopicManifest, parts: Sequence[Part]) -> None:
    if not parts:
        raise BadOption("there is nothing to stage: give at least one part")
    for part in parts:
        if part.stream not in topic.streams:
            raise UnknownStream(
                f"topic {topic.name!r} has no log stream {part.stream}, only {list(topic.streams)}"
            )
