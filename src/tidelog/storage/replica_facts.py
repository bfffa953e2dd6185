"""What a node can say of its replicas by looking at them.  No state."""

from __future__ import annotations

from tidelog.core.replica.commit_context import CommitContext
from tidelog.errors import CorruptData
from tidelog.interface.audit_figures import AuditedReplica
from tidelog.storage.compaction import settled_index
from tidelog.storage.node_store import NodeStore
from tidelog.storage.stream_store import StreamStore


def audited_replicas(node: NodeStore) -> tuple[AuditedReplica, ...]:
    """All replicas of a node, as they are between two writes.  Reads files."""
    with node.applying:
        seen = [(store, store.context, store.end_llsn) for _, store in sorted(node.streams.items())]
    return tuple([_audited(node, *one) for one in seen])


def _audited(
    node: NodeStore, store: StreamStore, context: CommitContext, end_llsn: int
) -> AuditedReplica:
    topic = node.topics.get(store.topic)
    settled = untouched_above(store)
    try:
        flaw = flaw_in_mapping(context, store)
        glsn_end = (store.glsn_from(settled + 1) or context.glsn_end) if settled else 1
    except CorruptData as error:
        flaw, glsn_end = str(error), context.glsn_end
    return AuditedReplica(
        topic="" if topic is None else topic.name,
        stream=store.stream,
        first_llsn=min(_first_llsn(store), end_llsn),
        end_llsn=end_llsn,
        ordered_end_llsn=context.llsn_end,
        settled_index=settled,
        settled_glsn_end=glsn_end,
        context=(
            context.version,
            context.high_watermark,
            context.glsn_begin,
            context.llsn_begin,
            context.length,
        ),
        context_flaw=flaw,
        is_complete=store.replica is None or store.replica.is_complete,
        bytes=sum(segment.size for segment in store.view.segments),
    )


def _first_llsn(store: StreamStore) -> int:
    view = store.view
    segments = [segment.first_llsn for segment in view.segments]
    tables = [table.first_llsn for table in view.memtables if table.batches]
    return min([*segments, *tables], default=store.end_llsn)


def untouched_above(store: StreamStore) -> int:
    """Above this LLSN every entry must be there: a synchronisation leaves dead ones out, too."""
    filled = 0 if store.replica is None else store.replica.filled_index
    return max(settled_index(store), filled)


def flaw_in_mapping(context: CommitContext, store: StreamStore) -> str:
    """What the GLSN mapping of a replica and its commit context do not agree in, if anything."""
    if context.llsn_end > store.end_llsn:
        return f"the context reaches LLSN {context.llsn_end}, the log only {store.end_llsn}"
    if context.llsn_end > store.ordered_end:
        return f"entries from LLSN {store.ordered_end} on have no GLSN, the context says they do"
    last = context.llsn_end - 1
    if context.length:
        found = store.glsn_of(last)
        is_gone = not found and last <= untouched_above(store)
        if found != context.glsn_end - 1 and not is_gone:
            return f"LLSN {last} has GLSN {found}, not {context.glsn_end - 1}"
    return ""
