"""Safeguards of archives are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.left_out import Change, replaced
from tests.pipeline import test_archiving as archiving
from tests.spark import test_archive_reads as reads
from tests.spark.nodes import Node, running_node
from tidelog.core.compaction.horizon import DeleteHorizon
from tidelog.errors import LogError
from tidelog.pipeline.archiving import home, running, trimming
from tidelog.pipeline.archiving.file_writing import FileOutput
from tidelog.pipeline.archiving.home import ArchiveHome
from tidelog.spark import archive_files, archive_reading, source
from tidelog.spark.archive_files import OpenedFile
from tidelog.spark.archive_topic import ArchivedTopic
from tidelog.spark.connections import CONNECTIONS
from tidelog.testing.disk import SimDisk, SimVfs

TOPICS = count(1)
CAUGHT = (AssertionError, LogError, pytest.fail.Exception)


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    test: Callable[[SimVfs], None]


@dataclass(frozen=True, slots=True)
class ReadingMutant:
    name: str
    change: Change
    test: Callable[[reads.Story], None]


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with running_node() as running:
        yield running


def nothing(*_: Any, **__: Any) -> None:
    """Leaves a step out."""


def crashed(vfs: SimVfs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        archiving.test_a_crash_at_any_call_loses_and_doubles_nothing(patch)


def ranges_read(vfs: SimVfs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        archiving.test_every_range_of_a_file_is_read_as_it_was(vfs, patch)


MUTANTS = (
    Mutant(
        "the manifest names files whose names are not durable",
        replaced(ArchiveHome, "_sync_names", lambda _: nothing),
        crashed,
    ),
    Mutant(
        "the manifest names files that are not durable",
        replaced(FileOutput, "sync", lambda _: lambda self: self._write_held()),
        crashed,
    ),
    Mutant(
        "files of an interrupted run stay",
        replaced(ArchiveHome, "_remove_leftovers", lambda _: lambda self, manifest: 0),
        crashed,
    ),
    Mutant(
        "what is to be kept in the log is trimmed",
        replaced(
            running,
            "trim_behind",
            lambda trim: lambda topic, found, keep, check: trim(topic, found, 0, check),
        ),
        archiving.test_the_log_is_trimmed_to_the_end_of_the_archive,
    ),
    Mutant(
        "the log is trimmed behind files that cannot be read",
        replaced(ArchiveHome, "check", lambda _: nothing),
        archiving.test_nothing_is_trimmed_that_cannot_be_read_from_the_archive,
    ),
    Mutant(
        "keys are trimmed",
        replaced(trimming, "_first_keyed", lambda _: lambda topic, manifest, begin, end: end),
        archiving.test_entries_with_keys_are_not_trimmed,
    ),
    Mutant(
        "tasks are believed",
        replaced(running, "covers", lambda _: lambda files, ranges: True),
        lambda vfs: archiving.test_tasks_that_left_something_out_are_not_believed(
            vfs, [0, 1, 2, 3]
        ),
    ),
    Mutant(
        "nobody asks for dropped deletes",
        replaced(DeleteHorizon, "is_missed_by", lambda _: lambda self, position, begun: False),
        archiving.test_deletes_that_were_dropped_before_they_were_archived_are_noted,
    ),
    Mutant(
        "a directory with other things in it becomes an archive",
        replaced(ArchiveHome, "_check_unused", lambda _: nothing),
        archiving.test_a_directory_with_other_things_in_it_is_refused,
    ),
    Mutant(
        "an archive takes entries of any topic",
        replaced(home, "check_origin", lambda _: nothing),
        archiving.test_an_archive_is_of_one_topic,
    ),
    Mutant(
        "files are read unchecked",
        replaced(OpenedFile, "_check", lambda _: nothing),
        archiving.test_a_damaged_file_is_found_before_a_row_of_it_is_shown,
    ),
    Mutant(
        "whole row groups are shown",
        replaced(archive_files, "_rows_between", lambda _: lambda table, begin, end: table),
        ranges_read,
    ),
)


READING_MUTANTS = (
    ReadingMutant(
        "nobody asks whether the log dropped deletes behind the archive",
        replaced(ArchivedTopic, "check_deletes", lambda _: nothing),
        reads.test_deletes_that_the_log_dropped_behind_the_archive_are_missed,
    ),
    ReadingMutant(
        "a task does not look into the archive for what was trimmed",
        replaced(archive_reading, "read_manifest", lambda _: nothing),
        reads.test_what_is_trimmed_between_plan_and_read_comes_from_the_archive,
    ),
    ReadingMutant(
        "a task begins its range anew after a part of it was trimmed",
        replaced(archive_reading, "_end_of", lambda _: lambda page: 0),
        reads.test_a_page_that_was_handed_on_does_not_come_again_from_the_archive,
    ),
    ReadingMutant(
        "a gap between archive and log is read over",
        replaced(source, "available", lambda _: lambda first, begin, topic, options: begin),
        reads.test_a_gap_between_archive_and_log_is_a_loss,
    ),
)


def by_name(mutant: Mutant | ReadingMutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    vfs = SimDisk().vfs()
    with mutant.change(), pytest.raises((*CAUGHT, OSError)):
        mutant.test(vfs)


@pytest.mark.parametrize("mutant", READING_MUTANTS, ids=by_name)
def test_a_mutant_of_the_source_is_caught(
    mutant: ReadingMutant, node: Node, tmp_path: Path
) -> None:
    with node.connect() as log:
        story = reads.Story(node, log, f"topic-{next(TOPICS)}", tmp_path)
        try:
            with mutant.change(), pytest.raises(CAUGHT):
                mutant.test(story)
        finally:
            CONNECTIONS.close()
