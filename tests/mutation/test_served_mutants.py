"""Safeguards of a served log are needed: with one switched off, the test that guards it fails."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

import pytest
from _pytest.mark.structures import ParameterSet
from msgspec.structs import replace

from tests.client import test_lanes
from tests.embedded import (
    test_keys,
    test_pages,
    test_pinned_readers,
    test_stage_files,
    test_staging,
)
from tests.mutation.left_out import Change, replaced, sync_dir_left_out, sync_left_out
from tests.server import raw, test_bad_peers, test_requests
from tidelog.client.lanes import Lane
from tidelog.client.shipments import Shipment
from tidelog.embedded import reader
from tidelog.embedded.committer import Committer
from tidelog.embedded.cut_ends import CutEnds
from tidelog.embedded.engine import Engine
from tidelog.embedded.stages import Stages
from tidelog.embedded.staging import Staging
from tidelog.errors import LogError
from tidelog.invariants import InvariantViolation
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX
from tidelog.net import frame_assembly
from tidelog.net.connection import FrameConnection
from tidelog.net.frame_assembly import FrameAssembly
from tidelog.server import engine_backend, session
from tidelog.server.append_lane import AppendLane
from tidelog.server.session import Session
from tidelog.storage.stage_files import StageFiles
from tidelog.testing.disk import SimDisk

WAIT_SECONDS: Final = 3.0
"""What never happens is waited for no longer than this."""
CAUGHT: Final = (
    AssertionError,
    InvariantViolation,
    LogError,
    TimeoutError,
    KeyError,
    pytest.fail.Exception,
)
"""How a test fails; the last one is for what was to be raised and was not."""


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    test: Callable[[], None]
    waits: bool = False
    """It is noticed only when a deadline has passed: for a soak."""


def nothing(*_: Any, **__: Any) -> None:
    """Leaves a check out."""


def of_files(test: Callable[[SimDisk], None]) -> Callable[[], None]:
    """A test of stage files, with the disk that it is given."""

    def run() -> None:
        with test_staging.in_files():
            test(SimDisk())

    return run


def without_producer(decode: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: replace(decode(*args), producer=0, sequence=0)


def renumbered(send: Callable[[Lane, Shipment], Shipment]) -> Callable[[Lane, Shipment], Shipment]:
    """Every try gets a sequence of its own."""

    def change(lane: Lane, shipment: Shipment) -> Shipment:
        sent = send(lane, shipment)
        if sent.tries > 1:
            sent.sequence = lane._lanes.next_sequence()
        return sent

    return change


def wide_open(init: Callable[..., None]) -> Callable[..., None]:
    def change(self: FrameAssembly, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self._message_max, self._attachment_max = MESSAGE_BYTES_MAX, ATTACHMENT_BYTES_MAX

    return change


def out_of_line(add: Callable[..., None]) -> Callable[..., None]:
    """Small appends do not wait for large ones."""

    def change(self: AppendLane, *args: Any) -> None:
        self._last = None
        add(self, *args)

    return change


MUTANTS: Final = (
    Mutant(
        "the checksum of a frame is not looked at",
        replaced(frame_assembly, "check_message", lambda _: nothing),
        test_bad_peers.test_every_flipped_bit_of_a_frame_is_noticed,
    ),
    Mutant(
        "frames may be large before the hello",
        replaced(FrameAssembly, "__init__", wide_open),
        lambda: test_bad_peers.test_oversized_lengths_are_refused_before_anything_is_received(
            False, 8
        ),
        waits=True,
    ),
    Mutant(
        "half a frame is waited for for ever",
        replaced(FrameConnection, "_watch_frame", lambda _: nothing),
        test_bad_peers.test_half_a_frame_is_not_waited_for_for_ever,
        waits=True,
    ),
    Mutant(
        "a connection without a hello is kept",
        replaced(FrameConnection, "_on_hello_deadline", lambda _: nothing),
        test_bad_peers.test_who_does_not_say_hello_is_sent_away,
        waits=True,
    ),
    Mutant(
        "requests in flight are not bounded",
        replaced(session, "IN_FLIGHT_REQUESTS_MAX", lambda limit: 100 * limit),
        test_bad_peers.test_requests_in_flight_are_bounded_and_all_answered,
    ),
    Mutant(
        "the deadline of a request is not kept",
        replaced(Session, "_on_deadline", lambda _: nothing),
        test_bad_peers.test_a_deadline_is_kept,
        waits=True,
    ),
    Mutant(
        "a node does not know its producers",
        replaced(engine_backend, "decode_append", without_producer),
        test_requests.test_a_repeated_append_of_a_producer_is_answered_with_its_first_place,
    ),
    Mutant(
        "small appends overtake large ones",
        replaced(AppendLane, "add", out_of_line),
        test_requests.test_appends_of_a_connection_keep_their_order_whatever_their_size,
    ),
    Mutant(
        "a second try takes another number",
        replaced(Lane, "_send", renumbered),
        test_lanes.test_after_a_loss_everything_is_sent_again_in_order_under_the_same_numbers,
    ),
    Mutant(
        "nobody looks whether a batch was published before",
        replaced(Staging, "_publication", lambda _: nothing),
        test_staging.test_a_batch_is_published_once_and_older_ones_count_as_done,
    ),
    Mutant(
        "stale versions are found in the middle of a publication of several appends",
        replaced(Staging, "_check_versions", lambda _: nothing),
        test_staging.test_stale_versions_are_found_before_anything_is_published,
    ),
    Mutant(
        "the GC boundary moves in the middle of a publication of several appends",
        replaced(Staging, "settled", lambda _: lambda self: nullcontext()),
        test_staging.test_no_boundary_moves_between_the_appends_of_a_publication,
    ),
    Mutant(
        "a missing stage is found in the middle of a publication",
        replaced(Staging, "_check_stage", lambda _: nothing),
        test_staging.test_a_missing_stage_publishes_nothing,
    ),
    Mutant(
        "nobody looks for which topic a stage is",
        replaced(Staging, "_check_stage", lambda _: nothing),
        test_staging.test_a_stage_of_another_topic_publishes_nothing,
    ),
    Mutant(
        "a stage is named before its file is durable",
        sync_left_out(StageFiles, "write"),
        test_stage_files.test_every_crash_point_from_the_stage_to_the_segment_gives_exactly_once,
    ),
    Mutant(
        "a stage is named before the name of its file is durable",
        sync_dir_left_out(StageFiles, "write"),
        test_stage_files.test_every_crash_point_from_the_stage_to_the_segment_gives_exactly_once,
    ),
    Mutant(
        "a stage file goes although the WAL refers to it",
        replaced(StageFiles, "refer", lambda _: nothing),
        of_files(test_stage_files.test_a_file_goes_when_the_wal_needs_it_no_more),
    ),
    Mutant(
        "a stage file stays when the WAL needs it no more",
        replaced(StageFiles, "retire_below", lambda _: nothing),
        of_files(test_stage_files.test_a_file_goes_when_the_wal_needs_it_no_more),
    ),
    Mutant(
        "what a WAL file refers to does not fill it",
        replaced(StageFiles, "referred_bytes", lambda _: lambda self, wal_file: 0),
        test_stage_files.test_what_a_wal_file_refers_to_fills_it,
    ),
    Mutant(
        "files that no stage names stay at a start",
        replaced(StageFiles, "keep_only", lambda _: nothing),
        of_files(test_stage_files.test_what_a_stage_never_came_of_goes_at_the_next_start),
    ),
    Mutant(
        "nobody asks what became of old drafts",
        replaced(Stages, "_forget_drafts", lambda _: nothing),
        of_files(
            test_stage_files.test_of_drafts_with_unknown_outcome_the_lost_ones_go_when_they_are_old
        ),
    ),
    Mutant(
        "the files of stages are not known after a start",
        replaced(Stages, "_named_files", lambda _: lambda self: {}),
        of_files(test_stage_files.test_stages_keep_their_files_over_restarts),
    ),
    Mutant(
        "a bounded read ends inside a cut",
        replaced(CutEnds, "round_down", lambda _: lambda self, begin, bound: bound),
        test_pages.test_a_bounded_end_lies_at_a_cut,
    ),
    Mutant(
        "what was trimmed before the first record is passed over",
        replaced(reader, "_checked", lambda _: lambda log, topic, begin, records: [records]),
        lambda: test_pinned_readers.test_a_reader_that_begins_after_a_trim_is_told(2),
    ),
    Mutant(
        "copies are appended wherever their log stream ends by then",
        replaced(Committer, "_check_copies", lambda _: nothing),
        lambda: test_keys.test_no_copy_gets_behind_a_write_that_came_while_it_was_made(True),
    ),
    Mutant(
        "nobody waits until it is certain that a boundary moved",
        replaced(Engine, "settle", lambda _: Engine.submit),
        test_staging.test_no_publication_begins_while_a_boundary_may_yet_move,
    ),
)


def in_gate_or_soak() -> list[ParameterSet]:
    return [
        pytest.param(mutant, id=mutant.name, marks=pytest.mark.soak if mutant.waits else ())
        for mutant in MUTANTS
    ]


# A test that fails half-way leaves its sockets to the garbage collector.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("mutant", in_gate_or_soak())
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with (
        mutant.change(),
        patch.object(raw, "WAIT_SECONDS", WAIT_SECONDS),
        pytest.raises(CAUGHT),
    ):
        mutant.test()
    gc.collect()
