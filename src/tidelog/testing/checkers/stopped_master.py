"""A master whose replication has failed sends nothing, and does nothing more to its store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.core.session.output import MasterOutput
from tidelog.errors import LogError
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "stopped_master"


def check_stopped(node: NodeId, failure: LogError | None, outputs: Sequence[MasterOutput]) -> None:
    """Check what a master wants done."""
    if failure is not None and outputs:
        raise Violation(NAME, f"node {node} has stopped ({failure}) and wants {outputs[0]}")
