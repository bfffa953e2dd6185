"""Nothing grows without bound: the history of cuts, and what one message carries."""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.core.metadata.messages import CommitResult
from tidelog.core.order.machine import OrderMachine
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "bounded"


class Bounded:
    """Holds sizes against ``limits``."""

    __slots__ = ()

    def on_order(self, node: NodeId, order: OrderMachine) -> None:
        """Check the history that a metadata node keeps."""
        kept = order.version - order.first_version + 1
        if kept > limits.ORDER_HISTORY_CUTS_MAX:
            raise Violation(NAME, f"node {node} keeps {kept} cuts")

    def on_commit_result(self, result: CommitResult) -> None:
        """Check a message to a storage node."""
        if result.version <= result.previous:
            raise Violation(NAME, f"a commit result without news: {result}")
        if len(result.commits) > limits.ORDER_HISTORY_COMMITS_MAX:
            raise Violation(NAME, f"{len(result.commits)} commits in one message")
