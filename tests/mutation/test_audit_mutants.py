"""Every check of an audit is needed: with one switched off, the test of its damage fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.mutation.left_out import Change, replaced
from tests.mutation.mutant import Mutant
from tests.pipeline import test_audit, test_audit_report
from tests.storage import test_replica_pages
from tidelog.formats.entry import Entry, Kind
from tidelog.pipeline.auditing import comparing, coverage, markup, row_digests, running
from tidelog.pipeline.auditing.reading import ReplicaRead
from tidelog.storage import file_checks, replica_pages


def left_out(owner: Any, name: str, result: Any = None) -> Change:
    """A step that finds nothing, whatever it is given."""
    return replaced(owner, name, lambda _: lambda *args, **options: result)


def without_the_field(name: str) -> Change:
    """Digests that know nothing of a field."""

    def change(fixed: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any) -> Any:
            rows = fixed(*args)
            rows[name] = 0
            return rows

        return changed

    return replaced(row_digests, "_fixed", change)


def all_settled(page: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever is missing counts as compacted."""

    def changed(self: ReplicaRead, llsns: Any, read: Any) -> None:
        page(self, llsns, replace(read, settled_index=1 << 62))

    return changed


def first_ones(rows: comparing.Entries) -> tuple[Any, Any]:
    first = np.flatnonzero(np.diff(rows.llsn, prepend=-1))
    return rows.llsn[first], rows.glsn[first]


NOBODY = np.array([], np.intp)
MUTANTS = (
    Mutant(
        "entries that are not there are passed over",
        left_out(ReplicaRead, "_look_for_gaps"),
        test_audit.test_a_missing_range_is_named_by_replica_and_llsns,
    ),
    Mutant(
        "whatever is missing counts as compacted",
        replaced(ReplicaRead, "_look_for_gaps", all_settled),
        test_audit.test_a_missing_range_is_named_by_replica_and_llsns,
    ),
    Mutant(
        "what compaction took counts as missing",
        left_out(replica_pages, "untouched_above", 0),
        test_audit.test_what_compaction_took_from_one_replica_is_no_damage,
    ),
    Mutant(
        "replicas are not held against one another",
        left_out(comparing, "divergences", []),
        test_audit.test_a_diverged_replica_is_named_with_both_versions,
    ),
    Mutant(
        "the timestamp is not part of the digest",
        without_the_field("timestamp"),
        partial(
            test_audit.test_every_field_of_an_entry_counts,
            Entry(Kind.PUT, b"v", b"key", timestamp_us=9),
            "timestamp us",
        ),
    ),
    Mutant(
        "the storage id is not part of the digest",
        without_the_field("storage_id"),
        partial(
            test_audit.test_every_field_of_an_entry_counts,
            Entry(Kind.PUT, b"v", b"key", 7),
            "storage id",
        ),
    ),
    Mutant(
        "the first replica's GLSN counts, whatever the others say",
        replaced(comparing, "chosen", lambda _: first_ones),
        test_audit.test_a_glsn_that_one_replica_alone_has_wrong_is_a_divergence_and_nothing_else,
    ),
    Mutant(
        "a GLSN may be given twice",
        left_out(coverage, "_second_ones", NOBODY),
        test_audit.test_a_glsn_given_twice_is_named_with_both_places,
    ),
    Mutant(
        "gaps in the total order are passed over",
        left_out(coverage, "_gaps", []),
        test_audit.test_what_no_replica_has_leaves_a_gap_in_the_total_order,
    ),
    Mutant(
        "GLSNs must be dense where compaction was",
        left_out(running, "dense_from", 1),
        test_audit.test_what_compaction_took_from_all_replicas_is_no_damage,
    ),
    Mutant(
        "GLSNs may go back within a stream",
        left_out(comparing, "_out_of_order", []),
        lambda: test_audit.test_glsns_that_go_back_within_a_stream_are_found(
            15, pytest.MonkeyPatch()
        ),
    ),
    Mutant(
        "contexts are not compared",
        left_out(running, "flaws_in_contexts", []),
        test_audit.test_contexts_of_one_version_that_differ_are_found,
    ),
    Mutant(
        "entries and GLSNs are not counted",
        left_out(running, "flaws_in_counts", []),
        test_audit.test_a_topic_with_more_glsns_than_entries_is_found,
    ),
    Mutant(
        "damage costs all that was asked for",
        replaced(replica_pages, "_damaged_blocks", lambda _: lambda store, b, e: [(b, e, "bad")]),
        test_audit.test_a_flipped_byte_costs_its_block_alone,
    ),
    Mutant(
        "a torn tail is taken for the end of the write-ahead log",
        left_out(file_checks, "_end_of", 0),
        test_audit.test_a_wal_that_lost_its_last_frames_is_found,
    ),
    Mutant(
        "a rolled file of the write-ahead log may end anywhere",
        left_out(file_checks, "_end_of", 0),
        test_replica_pages.test_a_rolled_wal_file_must_reach_the_next_one,
    ),
    Mutant(
        "text of the log is taken for markup",
        replaced(markup, "escape", lambda _: lambda text, quote=True: text),
        test_audit_report.test_all_that_others_wrote_is_escaped,
    ),
)


def by_name(mutant: Mutant) -> str:
    return mutant.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=by_name)
def test_a_mutant_is_caught(mutant: Mutant) -> None:
    with mutant.change(), pytest.raises((AssertionError, ValueError)):
        mutant.test()
