"""Stores that are at the same epoch hold the same: entries, their order, and their GLSNs."""

from __future__ import annotations

from typing import Final

from tidelog.testing.session_image import EpochImage
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "equal_sides"


def check_equal(node: NodeId, image: EpochImage, other_node: NodeId, other: EpochImage) -> None:
    """Check two stores, if they are at the same epoch of the same data."""
    if image.configuration_id != other.configuration_id or image.epoch != other.epoch:
        return
    mine, theirs = image.cuts[-1:], other.cuts[-1:]
    if mine != theirs or image.glsn_end != other.glsn_end:
        raise Violation(
            NAME,
            f"nodes {node} and {other_node} are at epoch {image.epoch} with {mine} and {theirs}",
        )
