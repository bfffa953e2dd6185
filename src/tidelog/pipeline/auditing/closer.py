"""Looks closer at places where replicas differ: what each of them holds there.  No state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from msgspec.structs import replace

from tidelog.client.replica_reading import NodeConnection, connect_node
from tidelog.errors import LogError
from tidelog.formats.entry import Entry
from tidelog.interface.audit_figures import AuditedReplica
from tidelog.net.endpoint import parse_endpoint
from tidelog.pipeline.auditing.findings import Finding, FindingKind
from tidelog.pipeline.auditing.reading import Node
from tidelog.pipeline.auditing.targets import Targets, ask_again

LOOKS_MAX: Final = 50
"""Places that are looked at closer."""
_BYTES_SHOWN: Final = 24
_FIELDS: Final = ("kind", "key", "value", "storage_id", "write_version", "timestamp_us", "blobs")


Connect: TypeAlias = Callable[[int], AbstractContextManager[Node]]
"""Makes a connection to the node of a number."""


class Version:
    """What one replica holds in one place."""

    def __init__(self, glsn: int, term: int, entry: Entry, *, rewritten: bool) -> None:
        self.glsn = glsn
        self.term = term
        self.entry = entry
        self.rewritten = rewritten

    def fields(self) -> Iterator[tuple[str, object]]:
        yield "GLSN", self.glsn
        yield "term", self.term
        for name in _FIELDS:
            yield name.replace("_", " "), getattr(self.entry, name)
        yield "rewritten", self.rewritten


class AskedNodes:
    """``running.Nodes`` over the network."""

    def __init__(self, targets: Targets, timeout: float) -> None:
        self._targets = targets
        self._timeout = timeout

    def ask_again(self) -> Mapping[tuple[int, int], AuditedReplica]:
        """What replicas say of themselves now, as far as they answer."""
        return ask_again(self._targets, self._timeout)

    def look_closer(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings, with what each replica holds where they differ."""
        return look_closer(findings, self._connect)

    def _connect(self, number: int) -> NodeConnection:
        endpoint = parse_endpoint(self._targets.endpoints[number])
        return connect_node(endpoint, timeout=self._timeout, log_id=self._targets.log_id)


def look_closer(findings: Iterable[Finding], connect: Connect) -> Iterator[Finding]:
    """The findings, those of diverged replicas with what their first place holds on each."""
    looks = 0
    for one in findings:
        if one.kind is FindingKind.DIVERGED and looks < LOOKS_MAX:
            looks += 1
            yield replace(one, what=f"{one.what}; {_versions(one, connect)}")
        else:
            yield one


def _versions(finding: Finding, connect: Connect) -> str:
    llsn = finding.llsn_begin
    found: dict[int, Version] = {}
    for number in finding.nodes:
        try:
            with connect(number) as node:
                version = version_at(node, finding.stream, llsn)
        except LogError as error:
            return f"node {number} does not show LLSN {llsn} any more: {error}"
        if version is None:
            return f"node {number} has no LLSN {llsn} any more"
        found[number] = version
    return difference(llsn, found)


def version_at(node: Node, stream: int, llsn: int) -> Version | None:
    """The entry that a node's replica has in a place."""
    for _, piece in node.page(stream, llsn, llsn + 1).slices:
        [glsn] = piece.glsns()
        batch = piece.batch
        return Version(glsn, batch.term, batch.entry(piece.begin), rewritten=batch.rewritten)
    return None


def difference(llsn: int, versions: dict[int, Version]) -> str:
    """Field by field, what nodes hold in a place, as far as they do not agree."""
    told: list[str] = []
    columns = {number: dict(version.fields()) for number, version in versions.items()}
    first = next(iter(columns.values()))
    for name in first:
        held = {number: fields[name] for number, fields in columns.items()}
        if len(set(held.values())) > 1:
            shown = " / ".join(
                f"{_shown(value)} on node {number}" for number, value in held.items()
            )
            told.append(f"{name} {shown}")
    return f"at LLSN {llsn}: " + ("; ".join(told) or "they agree by now")


def _shown(value: object) -> str:
    if isinstance(value, bytes):
        head = repr(value[:_BYTES_SHOWN])[1:]
        return head if len(value) <= _BYTES_SHOWN else f"{head}… ({len(value):,} bytes)"
    return getattr(value, "name", str(value))
