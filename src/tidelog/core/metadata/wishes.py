"""What is still to be asked for so that something holds: from a view to a change.  No state.

Nothing is, if it holds already.  Who asks may have an old view: the change is refused then, and
whoever asked looks again.
"""

from __future__ import annotations

from tidelog.core.metadata.commands import RegisterNode, SetPaused, UnregisterNode
from tidelog.core.metadata.state import StorageNode
from tidelog.core.metadata.view import MetadataView
from tidelog.types import NodeId


def registered(view: MetadataView, node: NodeId, address: str) -> RegisterNode | None:
    """A storage node is known, and found at this address."""
    known = _row(view, node)
    if known is None:
        return RegisterNode(node, address, view.absent_revision)
    return None if known.address == address else RegisterNode(node, address, known.revision)


def unregistered(view: MetadataView, node: NodeId) -> UnregisterNode | None:
    """A storage node is not known."""
    known = _row(view, node)
    return None if known is None else UnregisterNode(node, known.revision)


def paused(view: MetadataView, *, is_paused: bool) -> SetPaused | None:
    """Operators are paused, or not."""
    return None if view.is_paused == is_paused else SetPaused(is_paused, view.paused_revision)


def _row(view: MetadataView, node: NodeId) -> StorageNode | None:
    return next((one for one in view.nodes if one.node == node), None)
