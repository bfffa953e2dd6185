"""The shell of an operator: time, messages and metadata for ``core.operator``."""

from __future__ import annotations

from tidelog.runtime.operator_node.shell import OperatorNode
from tidelog.runtime.operator_node.timing import OperatorTiming

__all__ = ["OperatorNode", "OperatorTiming"]
