"""What a task of an audit does, in a Python worker of an executor.

D1  an entry is read from the replica that the task names, or not at all
D2  what is not there although it should be, and what cannot be read, is a finding and no end
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.client.replica_reading import ReplicaEntries, connect_node
from tidelog.errors import CorruptData, LogError
from tidelog.formats.audit_messages import CheckedFile
from tidelog.interface.arrow_columns import JoinedSlices
from tidelog.net.endpoint import parse_endpoint
from tidelog.pipeline.auditing.findings import Finding, FindingKind
from tidelog.pipeline.auditing.identity import told_by
from tidelog.pipeline.auditing.row_digests import row_digests
from tidelog.pipeline.auditing.rows import ENTRIES, Found, Lost, Tally, Told, entry_rows, told_rows
from tidelog.pipeline.auditing.tasks import FilesTask, ReadTask, Task

FINDINGS_MAX: Final = 200
"""Of one task; more are only counted."""
_ROWS_MAX: Final = 1 << 16


class Node(Protocol):
    """A node that is asked about itself; ``NodeConnection`` is one."""

    def page(self, stream: int, begin: int, end: int) -> ReplicaEntries: ...

    def check_files(self, stream: int) -> Iterable[CheckedFile]: ...


def run_tasks(
    numbers: Iterable[int], tasks: Sequence[Task], log_id: bytes, timeout: float
) -> Iterator[Any]:
    """Record batches of ``rows.ENTRIES``."""
    for number in numbers:
        task = tasks[number]
        endpoint = parse_endpoint(task.endpoint)
        with connect_node(endpoint, timeout=timeout, log_id=log_id) as node:
            try:
                told_by(node, task.node, task.endpoint)  # D1
            except LogError as error:  # D2
                lost = Lost(task.stream, task.node, str(error))
                yield told_rows([lost], ENTRIES, task.stream)
                continue
            if isinstance(task, ReadTask):
                yield from ReplicaRead(task).run(node)
            else:
                yield told_rows(check_files(task, node), ENTRIES, task.stream)


class ReplicaRead:
    """One range of one replica."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._position = task.begin
        """The next LLSN that should come."""
        self._entries = 0
        self._bytes = 0
        self._findings: list[Finding] = []
        self._more = 0
        self._lost: list[Lost] = []

    def run(self, node: Node) -> Iterator[Any]:
        while self._position < self._task.end:
            page = self._next_page(node)
            if page is None:
                break
            yield from self._take(page)
        yield told_rows(self._told(), ENTRIES, self._task.stream)

    def _next_page(self, node: Node) -> ReplicaEntries | None:
        """None if there is no more to be had."""
        begin, end = self._position, self._task.end
        try:
            page = node.page(self._task.stream, begin, end)
        except CorruptData as error:  # What came does not match its checksum.
            self._find(FindingKind.UNREADABLE, begin, end, f"on its way: {error}")
            return None
        except LogError as error:  # D3
            self._lost.append(Lost(self._task.stream, self._task.node, str(error)))
            return None
        if page.llsn_end == begin:
            self._find(FindingKind.MISSING, begin, end, "its log ends before them")
            return None
        return page

    def _take(self, page: ReplicaEntries) -> Iterator[Any]:
        if page.damage:
            self._find(FindingKind.UNREADABLE, page.llsn_begin, page.llsn_end, page.damage)
        elif page.slices:
            llsns = yield from self._rows(page)
            self._look_for_gaps(llsns, page)
        else:
            self._look_for_gaps(np.array([], np.int64), page)
        self._position = page.llsn_end

    def _rows(self, page: ReplicaEntries) -> Generator[Any, None, NDArray[np.int64]]:
        """Yields the rows of a page; returns their LLSNs."""
        task, joined = self._task, JoinedSlices(page.slices)
        counts = [piece.end - piece.begin for _, piece in page.slices]
        terms = np.repeat([piece.batch.term for _, piece in page.slices], counts)
        digests = row_digests(page.slices)
        self._entries += joined.rows
        self._bytes += sum(piece.batch.length for _, piece in page.slices)
        for begin in range(0, joined.rows, _ROWS_MAX):
            rows = slice(begin, begin + _ROWS_MAX)
            places = (joined.llsns[rows], joined.glsns[rows], terms[rows])
            yield entry_rows(task.stream, task.node, places, digests[rows])
        return joined.llsns

    def _look_for_gaps(self, llsns: NDArray[np.int64], page: ReplicaEntries) -> None:
        """What lies above the settled index must all be there (D2)."""
        for begin, end in gaps_between(llsns, page.llsn_begin, page.llsn_end):
            first = max(begin, page.settled_index + 1)
            if first < end:
                self._find(FindingKind.MISSING, first, end, "nothing has taken them away")

    def _find(self, kind: FindingKind, begin: int, end: int, what: str) -> None:
        task = self._task
        if len(self._findings) >= FINDINGS_MAX:
            self._more += 1
            return
        self._findings.append(
            Finding(
                kind=kind,
                topic=task.topic,
                stream=task.stream,
                nodes=(task.node,),
                llsn_begin=begin,
                llsn_end=end,
                what=what,
            )
        )

    def _told(self) -> list[Told]:
        task = self._task
        told: list[Told] = [Tally(task.stream, task.node, self._entries, self._bytes)]
        told += [Found(finding) for finding in self._findings]
        if self._more:
            told[-1] = Found(self._findings[-1], self._more)
        return [*told, *self._lost]


def gaps_between(llsns: NDArray[np.int64], begin: int, end: int) -> list[tuple[int, int]]:
    """The ranges of ``[begin, end)`` that have none of these ascending numbers."""
    edges = np.concatenate(([begin - 1], llsns, [end]))
    places = np.flatnonzero(np.diff(edges) > 1)
    return [(int(edges[i]) + 1, int(edges[i + 1])) for i in places]


def check_files(task: FilesTask, node: Node) -> list[Told]:
    """Have a node read files of its own again."""
    told: list[Told] = []
    files = 0
    try:
        for checked in node.check_files(task.stream):
            files += 1
            if checked.problem:
                told.append(Found(_file_finding(task, checked)))
    except LogError as error:  # D3
        told.append(Lost(task.stream, task.node, str(error)))
    return [Tally(task.stream, task.node, files=files), *told]


def _file_finding(task: FilesTask, checked: CheckedFile) -> Finding:
    return Finding(
        kind=FindingKind.FILE,
        topic=task.topic,
        stream=task.stream,
        nodes=(task.node,),
        file=checked.name,
        what=checked.problem,
    )
