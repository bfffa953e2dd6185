"""Answers what an audit asks of a node about its own files.  No state."""

from __future__ import annotations

from typing import Final

import msgspec

from tidelog.errors import UnknownStream, WrongState
from tidelog.formats.audit_messages import AuditRequest, CheckFiles, ListReplicas, ReadReplica
from tidelog.formats.audit_messages import ReplicaPage as Page
from tidelog.formats.messages import Figures, encode_message
from tidelog.interface.audit_figures import AuditedNode
from tidelog.net.threads import WorkThreads
from tidelog.server.backend import Reply
from tidelog.server.reads import encode_piece
from tidelog.storage.file_checks import PROBLEM_CHARS_MAX, check_segments, check_wal
from tidelog.storage.node_store import NodeStore
from tidelog.storage.replica_facts import audited_replicas
from tidelog.storage.replica_pages import read_replica
from tidelog.storage.stream_store import StreamStore

WAL: Final = 0
"""Stands for the write-ahead log where log streams are asked for."""


async def answer_audit(
    number: int,
    node: NodeStore,
    request: AuditRequest,
    *,
    readers: WorkThreads,
    chores: WorkThreads,
) -> Reply:
    """What node ``number`` stores, looked up in a thread; the checks of files hold no reader up."""
    match request:
        case ListReplicas():
            return await readers.run(lambda: _list(number, node))
        case ReadReplica():
            store = _store(node, request.stream)
            return await readers.run(lambda: _read(store, request))
        case CheckFiles(stream=stream, first=first):
            if stream == WAL:
                return await chores.run(lambda: Reply.of(check_wal(node, first)))
            store = _store(node, stream)
            return await chores.run(lambda: Reply.of(check_segments(node, store, first)))


def _store(node: NodeStore, stream: int) -> StreamStore:
    found = node.streams.get(stream)
    if found is None:
        raise UnknownStream(f"this node holds no replica of log stream {stream}")
    if found.replica is not None and not found.replica.is_complete:
        raise WrongState(f"the replica of log stream {stream} is being filled up")
    return found


def _list(number: int, node: NodeStore) -> Reply:
    found = AuditedNode(number, node.manifest.log_id.hex(), audited_replicas(node))
    return Reply.of(Figures(msgspec.json.encode(found)))


def _read(store: StreamStore, request: ReadReplica) -> Reply:
    page = read_replica(store, request.llsn_begin, request.llsn_end, request.bytes_max)
    pieces = [encode_piece((store.stream, piece)) for piece in page.pieces]
    message = Page(
        tuple([header for header, _ in pieces]),
        page.begin,
        page.end,
        page.settled_index,
        page.damage[:PROBLEM_CHARS_MAX],
    )
    return Reply(encode_message(message), [b"".join([data for _, data in pieces])])
