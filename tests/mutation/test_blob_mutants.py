"""Safeguards of BLOBs are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from msgspec.structs import replace

import tidelog
from tests.client import test_blobs
from tests.crash.repeatable import NOW_NS
from tests.mutation.left_out import Change, replaced
from tests.mutation.mutant import constant
from tests.unit import test_blob_census, test_blob_upload
from tidelog.errors import LogError
from tidelog.formats.topic_blob import BlobDescription
from tidelog.interface.blobs import calls, lookup, reader
from tidelog.interface.blobs.census import BlobCensus
from tidelog.interface.blobs.reader import PartCheck
from tidelog.interface.blobs.upload import Upload
from tidelog.interface.handles import LogHandle
from tidelog.invariants import InvariantViolation

CAUGHT: Final = (AssertionError, InvariantViolation, LogError, pytest.fail.Exception)
"""How a test fails; the last one is for what was to be raised and was not."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    test: Callable[[LogHandle], None]


def any_state(_: Any) -> Callable[..., BlobDescription]:
    return lambda blob, record: lookup._found(blob, record)


def unchecked(_: Any) -> Callable[..., memoryview]:
    return lambda described, number, value: memoryview(value)[8:]


def alone(test: Callable[[], None]) -> Callable[[LogHandle], None]:
    """A test that needs no log."""
    return lambda _: test()


def copies_count(see: Callable[..., None]) -> Callable[..., None]:
    return lambda census, record: see(census, replace(record, rewritten=False))


MUTANTS: Final = (
    Mutant(
        "the bytes of a part are not checked",
        replaced(reader, "decode_part", unchecked),
        test_blobs.test_a_flipped_byte_is_noticed,
    ),
    Mutant(
        "the whole is not checked",
        replaced(PartCheck, "_check_whole", constant(None)),
        test_blobs.test_a_sound_part_with_other_bytes_is_noticed_by_who_reads_all,
    ),
    Mutant(
        "a BLOB can be opened before it is complete",
        replaced(calls, "to_read", any_state),
        test_blobs.test_an_upload_that_broke_off_is_not_seen_and_is_collected,
    ),
    Mutant(
        "an upload can be deleted while it goes on",
        replaced(calls, "to_delete", any_state),
        test_blobs.test_an_upload_that_broke_off_is_not_seen_and_is_collected,
    ),
    Mutant(
        "parts are put unannounced",
        replaced(Upload, "announcement", constant(None)),
        test_blobs.test_an_upload_that_broke_off_is_not_seen_and_is_collected,
    ),
    Mutant(
        "an upload goes on after any pause",
        replaced(Upload, "_check_pause", constant(None)),
        alone(test_blob_upload.test_an_upload_that_stood_still_too_long_is_not_gone_on_with),
    ),
    Mutant(
        "a BLOB can be opened while its parts are deleted",
        replaced(calls, "mark_of", constant(None)),
        test_blobs.test_a_deletion_that_broke_off_is_gone_on_with,
    ),
    Mutant(
        "the age of a BLOB does not matter",
        replaced(BlobCensus, "is_old", constant(True)),
        test_blobs.test_collection_keeps_all_that_entries_refer_to,
    ),
    Mutant(
        "references do not matter",
        replaced(BlobCensus, "refer", constant(None)),
        test_blobs.test_collection_keeps_all_that_entries_refer_to,
    ),
    Mutant(
        "entries that come during a collection are not looked at",
        replaced(calls, "CATCH_UPS", lambda _: 1),
        test_blobs.test_entries_that_come_during_a_collection_are_looked_at,
    ),
    Mutant(
        "a BLOB is not looked at again before it is deleted",
        replaced(BlobCensus, "may_go", lambda _: lambda *_: BlobDescription(7, 1)),
        alone(test_blob_census.test_a_blob_that_changed_since_the_census_is_looked_at_again),
    ),
    Mutant(
        "copies that compaction made count as news",
        replaced(BlobCensus, "see", copies_count),
        alone(test_blob_census.test_a_copy_of_an_old_description_does_not_bring_a_blob_back),
    ),
    Mutant(
        "all of a source is in memory",
        replaced(calls, "PARTS_UNDER_WAY", lambda _: 1000),
        test_blobs.test_few_parts_are_in_memory_while_a_blob_is_put,
    ),
)


@pytest.fixture(autouse=True)
def _same_clock(_no_chance: None) -> Iterator[None]:
    """Entries are written at a time that stands still: collections look at it from there."""
    with patch("tidelog.interface.blobs.collecting.time_ns", lambda: NOW_NS):
        yield


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_safeguard_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    with (
        tidelog.open(tmp_path / "log") as log,
        pytest.raises(CAUGHT),
        mutant.change(),
    ):
        mutant.test(log)


def test_the_tests_pass_without_a_mutant(tmp_path: Path) -> None:
    """So that a mutant is caught for what it does."""
    for number, test in enumerate(dict.fromkeys(mutant.test for mutant in MUTANTS)):
        with tidelog.open(tmp_path / f"{number}") as log:
            test(log)
