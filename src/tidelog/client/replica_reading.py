"""Asks one node about itself: what it holds, its own entries, its files.

A client of a log is served by any node that can; an audit wants this one, or an error.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tidelog.client.own_session import OwnSession, open_session
from tidelog.client.pages import StreamSlice, unpacked
from tidelog.client.session import expect
from tidelog.errors import BadFrame
from tidelog.formats.audit_messages import (
    CheckedFile,
    CheckFiles,
    FilesChecked,
    ListReplicas,
    ReadReplica,
    ReplicaPage,
)
from tidelog.formats.messages import Figures
from tidelog.interface.audit_figures import AuditedNode
from tidelog.net.endpoint import Endpoint
from tidelog.net.security import ClientSecurity

CLIENT = "tidelog-audit"


class ReplicaEntries(msgspec.Struct, frozen=True):
    """All ordered entries that a replica has in ``[llsn_begin, llsn_end)``."""

    slices: list[StreamSlice]
    llsn_begin: int
    llsn_end: int
    settled_index: int
    """Entries up to here may have been compacted or trimmed; those above must be there."""
    damage: str = ""
    """Why they cannot be read; then there are no slices."""


class NodeConnection(OwnSession):
    """A connection to one node."""

    def replicas(self) -> AuditedNode:
        """What the node holds."""
        answer = self._thread.run(self._session.ask(ListReplicas(), Figures))
        try:
            return msgspec.json.decode(answer.json, type=AuditedNode)
        except msgspec.DecodeError as error:
            raise BadFrame(f"a node answered what cannot be read: {error}") from error

    def read(self, stream: int, begin: int, end: int) -> Iterator[ReplicaEntries]:
        """The node's own entries of ``[begin, end)``, as far as they are ordered there."""
        while begin < end:
            page = self.page(stream, begin, end)
            if page.llsn_end == begin:
                return
            yield page
            begin = page.llsn_end

    def page(self, stream: int, begin: int, end: int, bytes_max: int = 0) -> ReplicaEntries:
        """The first entries of a range; it gets on, unless nothing there is ordered yet."""
        request = ReadReplica(stream, begin, end, bytes_max)
        reply = self._thread.run(self._session.channel.ask(request, seconds=self._session.timeout))
        page = expect(reply.answer, ReplicaPage)
        if page.llsn_begin != begin or not begin <= page.llsn_end <= end:
            raise BadFrame(
                f"entries [{page.llsn_begin}, {page.llsn_end}) came instead of [{begin}, {end})"
            )
        slices = unpacked(page.pieces, reply.attachment)
        return ReplicaEntries(slices, begin, page.llsn_end, page.settled_index, page.damage)

    def check_files(self, stream: int = 0) -> Iterator[CheckedFile]:
        """The segments of a replica, or the node's write-ahead log, read again and checked."""
        first = 0
        while True:
            request = CheckFiles(stream, first)
            answer = self._thread.run(self._session.ask(request, FilesChecked))
            yield from answer.files
            if answer.next <= first:
                return
            first = answer.next


def connect_node(
    endpoint: Endpoint,
    *,
    timeout: float = 30.0,
    log_id: bytes = b"",
    security: ClientSecurity | None = None,
) -> NodeConnection:
    """Connect to the node at an address, and to no other one; ``log_id``: if it is of this log."""
    opened = open_session(
        (endpoint,), client=CLIENT, timeout=timeout, log_id=log_id, security=security
    )
    return NodeConnection(*opened)
