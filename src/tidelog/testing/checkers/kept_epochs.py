"""A restarted machine has every epoch that it called durable, and nothing of any other one."""

from __future__ import annotations

from typing import Final

from tidelog.testing.session_image import Cut, EpochImage
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "kept_epochs"


def check_kept(node: NodeId, image: EpochImage, promised: Cut | None) -> None:
    """Check that a store still has what was recorded when a promise was given."""
    if promised is not None and not image.holds(promised):
        raise Violation(
            NAME, f"node {node} has lost {promised}: it has {image.cut_at(promised.epoch)}"
        )


def check_only_recorded(node: NodeId, image: EpochImage) -> None:
    """Check that nothing shows that no record covers."""
    newest = max((batches[-1].epoch for batches in image.channels if batches), default=0)
    if image.unrecorded() or newest > image.epoch:
        raise Violation(
            NAME, f"node {node} starts at epoch {image.epoch} with entries of epoch {newest}"
        )
