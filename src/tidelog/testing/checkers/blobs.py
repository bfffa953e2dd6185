"""A store that records entries has the BLOBs that they refer to, whole and durable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.testing.session_image import EpochImage
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "blobs"


def check_blobs(node: NodeId, image: EpochImage, written: Mapping[int, bytes]) -> None:
    """Check the BLOBs of what the last record of a store covers."""
    before = image.cuts[-2] if len(image.cuts) > 1 else None
    for _, _, stored in image.newly_recorded(before):
        for blob in stored.batch.blobs:
            found = image.blobs.get(blob)
            if found != written[blob]:
                raise Violation(NAME, f"node {node} records {stored}, BLOB {blob} is {found!r}")
