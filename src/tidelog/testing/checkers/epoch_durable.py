"""An epoch that is called STORED is complete and durable on the master at that moment, and one
that is called PROPAGATED on every replica, too.

White box: no crash has to come at the right time to show that it was said too early.
"""

from __future__ import annotations

from typing import Final

from tidelog.core.session.output import Notice
from tidelog.testing.session_image import EpochImage
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "epoch_durable"


def check_durable(notice: Notice, ledger: Ledger, node: NodeId, durable: EpochImage) -> None:
    """Check one machine's disk against what was written in the epochs of a notice."""
    for channel in ledger.channels:
        needed = ledger.count(channel, notice.epoch)
        found = durable.recorded[channel] if channel < len(durable.recorded) else 0
        if found < needed:
            raise Violation(
                NAME,
                f"{notice} is told; of the {needed} batches of channel {channel} node {node} has"
                f" recorded {found}",
            )
