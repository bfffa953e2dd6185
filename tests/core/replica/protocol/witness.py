"""Watches a group of replicas after every step, and knows what must never happen.

It believes no replica: entries are read from disks, promises are held against disks.

  W1  a term has one leader
  W2  an entry id names one entry, wherever it is found
  W3  what lies at or below any commit index is the same everywhere, and stays
  W4  a commit index never goes back in one life
  W5  who is elected has all that was acknowledged as propagated or ordered, and all committed
  W6  an entry has one GLSN, a GLSN one entry; replicas are equal over the ordered range
  W7  a context ends within the log that it is stored with, and all before it has GLSNs
  W8  no message promises what is not on its sender's disk
"""

from __future__ import annotations

from typing import TypeAlias

from tests.core.replica.protocol.disk import Disk, Image
from tidelog.core.order.commands import Report
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.messages import (
    AddEntriesResponse,
    BecomeLeaderResponse,
    FenceResponse,
    Message,
    PrepareResponse,
    Role,
    SnapshotResponse,
    SyncEntriesResponse,
    SyncInitResponse,
    TruncateResponse,
)
from tidelog.core.replica.output import Output
from tidelog.core.replica.replica import Replica
from tidelog.types import Llsn

Entry: TypeAlias = tuple[EntryId, bytes]


class Witness:
    """Remembers what was said and seen of one stream."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.entries: dict[EntryId, bytes] = {}
        self.committed: dict[int, Entry] = {}
        self.acknowledged: dict[int, Entry] = {}
        self.glsns: dict[int, int] = {}
        self._commit: dict[int, Llsn] = {}
        self._reigns: dict[int, int] = {}
        self._filled_from: dict[int, Llsn] = {}

    def forget_life(self, node: int) -> None:
        """A replica ended: its commit index is not durable."""
        self._commit.pop(node, None)
        self._reigns.pop(node, None)

    def look(self, node: int, replica: Replica, disk: Disk) -> None:
        """Check one replica after it did something."""
        replica.validate()
        entries = disk.seen.entries()
        for entry_id, data in entries.values():
            known = self.entries.setdefault(entry_id, data)
            assert known == data, f"W2: node {node} has another entry {entry_id}"
        self._look_at_commit_index(node, replica.commit_index, entries)
        self._look_at_order(node, disk.seen)
        self._look_at_order(node, disk.durable)
        self._look_at_leader(node, replica, disk.seen)

    def _look_at_commit_index(self, node: int, commit: Llsn, entries: dict[int, Entry]) -> None:
        before = self._commit.get(node, Llsn(0))
        assert commit >= before, f"W4: the commit index of node {node} went from {before}"
        self._commit[node] = commit
        for llsn, entry in entries.items():
            if llsn <= commit:
                known = self.committed.setdefault(llsn, entry)
                assert known == entry, f"W3: node {node} committed {entry}, not {known}"

    def _look_at_order(self, node: int, image: Image) -> None:
        glsns, end = image.glsns(), image.context.llsn_end
        for llsn, entry in image.entries().items():
            if llsn >= end:
                continue
            assert llsn in glsns, f"W7: node {node} has no GLSN for {llsn}, ordered up to {end}"
            known = self.glsns.setdefault(llsn, glsns[llsn])
            assert known == glsns[llsn], f"W6: node {node} has GLSN {glsns[llsn]} for {llsn}"
            assert self.committed.setdefault(llsn, entry) == entry, f"W6: {node} differs at {llsn}"
        assert not image.batches or image.batches[-1].llsn_end >= end or image.snapshot_index, (
            f"W7: the log of node {node} ends before its context"
        )

    def _look_at_leader(self, node: int, replica: Replica, image: Image) -> None:
        if replica.role is not Role.LEADER:
            return
        known = self.leaders.setdefault(replica.term, node)
        assert known == node, f"W1: nodes {known} and {node} lead term {replica.term}"
        if self._reigns.get(node) == replica.reign:
            return
        self._reigns[node] = replica.reign
        entries = image.entries()
        for promised in (self.acknowledged, self.committed):
            for llsn, entry in promised.items():
                if llsn >= image.first and llsn > image.snapshot_index:
                    found = entries.get(llsn)
                    assert found == entry, f"W5: leader {node} has {found} instead of {entry}"

    def hear(self, node: int, disk: Disk, output: Output) -> None:
        """Check what a replica says, before anybody hears it."""
        if output.write is not None and output.write.drop:
            self.forget_life(node)
        end = max(output.propagated or 0, output.ordered or 0)
        for llsn, entry in disk.seen.entries().items():
            if llsn < end:
                known = self.acknowledged.setdefault(llsn, entry)
                assert known == entry, f"W3: {entry} was acknowledged, and {known} before"
        for message in output.messages:
            self._check_promise(message, disk.durable)

    def _check_promise(self, message: Message, image: Image) -> None:
        state = image.hard_state
        match message:
            case FenceResponse():
                assert state is not None, f"W8: the term is not durable: {message}"
                assert state.term >= message.term, f"W8: the term is not durable: {message}"
                self._check_head(message.head, image, message)
            case TruncateResponse() | SnapshotResponse():
                self._check_head(message.head, image, message)
            case AddEntriesResponse():
                assert image.end > message.confirmed, f"W8: not durable: {message}"
            case SyncInitResponse():
                self._filled_from[message.source] = message.begin
            case SyncEntriesResponse():
                # What lies before the place where it began was trimmed: it stored nothing yet.
                is_at_begin = message.end == self._filled_from.get(message.source)
                assert is_at_begin or image.end >= message.end, f"W8: not durable: {message}"
            case BecomeLeaderResponse() | PrepareResponse():
                assert state is not None, f"W8: the term is not durable: {message}"
                assert state.term >= message.term, f"W8: the term is not durable: {message}"

    def _check_head(self, head: EntryId, image: Image, message: Message) -> None:
        """All up to a head is durable; by the time it is told, there may be more."""
        found = image.entries().get(head.llsn)
        if found is not None:
            assert found[0] == head, f"W8: the log has {found[0]}: {message}"
        elif head.llsn > image.snapshot_index and head.llsn >= image.first:
            raise AssertionError(f"W8: the log ends at {image.head}: {message}")

    def check_report(self, node: int, report: Report, disk: Disk) -> None:
        """Check a report, before the metadata repository hears it."""
        image = disk.durable
        end = report.llsn_begin + report.length
        assert end <= image.end, f"W8: node {node} reports {end}, but has {image.end}"
        assert report.llsn_begin == image.context.llsn_end, f"W8: {report} is not {image.context}"
        assert image.hard_state is not None, "W8: a report of a term that is not durable"
        assert report.term == image.hard_state.term, f"W8: {report} is of another term"
