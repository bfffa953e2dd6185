"""Entries whose producers the store has forgotten: only a synchronisation brings them.

A flush joins small batches.  A follower that took them as ordinary entries would not know who
appended them, and would append a retry again once it leads.
"""

from __future__ import annotations

import pytest

from tests.core.replica.protocol.beginnings import a_group
from tests.core.replica.protocol.harness import Group, of
from tidelog.core.replica import sync_source
from tidelog.core.replica.messages import AddEntriesRequest, SyncEntriesRequest
from tidelog.core.replica.options import Appended
from tidelog.types import Llsn, ProducerId


def with_a_lagging_follower() -> Group:
    """Node 3 lacks an append of producer 7, which is ordered."""
    group = a_group(b"a")
    group.isolate(3)
    group.append(1, b"b", producer=7, seq=1)
    group.order_all()
    return group


def test_a_follower_that_lacks_joined_entries_is_filled_up_with_the_producers() -> None:
    group = with_a_lagging_follower()
    group[1].joined(Llsn(2))
    group.heal()
    group.elect(1, 2, 3)
    group.pass_time(30)
    assert any(isinstance(each, SyncEntriesRequest) and each.target == 3 for each in group.sent)
    assert group.data(3) == [b"a", b"b"]
    group.crash(1)
    group.elect(3, 2)
    again = group[3].append(b"b", 1, producer=ProducerId(7), sequence=1)
    assert again == Appended(Llsn(2), 1, True)


def test_a_follower_that_lacks_only_later_entries_is_served_from_the_log() -> None:
    group = with_a_lagging_follower()
    group[1].joined(Llsn(1))
    group.heal()
    group.elect(1, 2, 3)
    group.pass_time(30)
    assert not any(isinstance(each, SyncEntriesRequest) for each in group.sent)
    assert group.data(3) == [b"a", b"b"]


def test_joined_entries_that_are_still_in_memory_are_not_served_from_there() -> None:
    """What a replica was filled up with lies in its memory without its producers."""
    group = with_a_lagging_follower()
    before = len(group.sent)
    group[1].joined(Llsn(2))
    group.heal()
    group.elect(1, 2, 3)
    group.pass_time(30)
    added = [each for each in group.sent[before:] if isinstance(each, AddEntriesRequest)]
    assert not any(batch.llsn_begin <= 2 for each in added for batch in each.batches)


def test_a_log_that_begins_anew_has_nothing_joined() -> None:
    group = with_a_lagging_follower()
    group[1].joined(Llsn(9))
    group.append(1, b"c")
    group.order_all()
    group.heal()
    group.elect(1, 2, 3)
    group.order_all()
    group.append(1, b"d")
    group.order_all()
    assert group.data(2) == [b"a", b"b", b"c", b"d"]


def test_the_last_sequence_of_a_producer_includes_what_is_not_ordered() -> None:
    group = a_group(b"a")
    assert group[1].last_sequence(ProducerId(7)) == 0
    group.append(1, b"b", producer=7, seq=5)
    assert group[1].last_sequence(ProducerId(7)) == 5
    assert group[2].last_sequence(ProducerId(7)) == 0, "it did not arrive"


def test_a_filling_brings_no_more_runs_at_once_than_a_message_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a log of which little is live there are far more GLSN runs than entries."""
    monkeypatch.setattr(sync_source, "RUNS_MAX", 2)
    group = a_group()
    for number in range(9):
        group.append(1, b"%d" % number)
        group.order_all()
    group.compact(1, 8, 4, 5, 6, 8, segment=10)
    group.lose_log(3)
    group.add_follower(1, 3)
    group.pass_time(60)
    parts = [each for each in group.sent if isinstance(each, SyncEntriesRequest)]
    sizes = {each.end: len(each.runs) for each in parts}
    assert sizes == {3: 2, 4: 1, 8: 4, 10: 2}, "with a batch go all runs of the dead before it"
    assert group[3].is_complete
    assert group.data(3) == group.data(1)
    assert group[3].context == group[1].context
    assert group.image(3).glsns() == group.image(1).glsns()


def test_a_flush_that_joins_batches_across_the_head_of_a_filling_does_not_stop_it() -> None:
    """A filling brings the log up to the head that it had when it began, and no further."""
    group = a_group(b"a", b"b")
    group.lose_log(3)
    group.add_follower(1, 3)
    group.deliver(of(target=3))
    group.append(1, b"c")
    for _ in range(5):
        group.deliver(of(source=1, target=2))
        group.deliver(of(source=2, target=1))
        group.report()
        group.cut()
        group.tell_cuts(1, 2)
    assert group[1].durable_context.llsn_end == 4
    group.members[1].disk.join(2, 4)
    group[1].joined(Llsn(3))
    group.pass_time(60)
    assert group[3].is_complete
    assert group.image(3).entries().keys() == {1, 2, 3}
    assert group.data(3) == [b"a", b"b", b"c"]
