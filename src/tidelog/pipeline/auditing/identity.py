"""Whether the node that answers at an address is the one that is meant.  No state.

Nodes whose address for clients is the same one, as that of a load balancer, would be taken for one
another, and their replicas for equal.
"""

from __future__ import annotations

from typing import Protocol

from tidelog.errors import Unreachable
from tidelog.interface.audit_figures import AuditedNode


class Asked(Protocol):
    """A node that tells of itself; ``NodeConnection`` is one."""

    def replicas(self) -> AuditedNode: ...


def told_by(node: Asked, number: int, endpoint: str) -> AuditedNode:
    """What node ``number`` says of itself; Unreachable if another one is there."""
    told = node.replicas()
    if told.node != number:
        raise Unreachable(
            f"node {told.node} answers at {endpoint}, not node {number}: each node needs an "
            "address for clients of its own"
        )
    return told
