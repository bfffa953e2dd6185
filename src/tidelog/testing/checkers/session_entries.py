"""What an epoch's record covers is what was written in it: nothing is lost, doubled or reordered,
and nothing of an aborted log session shows.
"""

from __future__ import annotations

from typing import Final

from tidelog.testing.session_image import EpochImage
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "session_entries"


def check_recorded(node: NodeId, image: EpochImage, ledger: Ledger) -> None:
    """Check what the last record of a store covers."""
    before = image.cuts[-2] if len(image.cuts) > 1 else None
    for channel, place, stored in image.newly_recorded(before):
        if ledger.was_aborted(stored.batch):
            raise Violation(NAME, f"node {node} records {stored}, whose log session was aborted")
        written = ledger.at(channel, place)
        if written != stored:
            raise Violation(
                NAME,
                f"node {node} records {stored} at place {place} of channel {channel}, written was"
                f" {written}",
            )
    for channel in ledger.channels:
        needed = ledger.count(channel, image.epoch)
        if image.recorded[channel] != needed:
            raise Violation(
                NAME,
                f"node {node} records epoch {image.epoch} with {image.recorded[channel]} batches of"
                f" channel {channel}, written were {needed}",
            )
