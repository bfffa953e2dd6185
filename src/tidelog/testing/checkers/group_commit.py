"""A group commit begins only when every entry of its epochs is where the options want it.

White box, when it is ordered: all log sessions of these epochs have ended, every replica has
answered all that was sent for them, and every store has the entries, on its disk if the end of a
log session flushes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidelog.core.session.messages import LogEntryWrite
from tidelog.core.session.output import Send
from tidelog.testing.session_image import EpochImage
from tidelog.testing.session_ledger import Ledger
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "group_commit"


def check_order(epoch: int, ledger: Ledger, unanswered: Iterable[Send]) -> None:
    """Check what the master knows."""
    still_open = [other for other in ledger.open_epochs() if other <= epoch]
    if still_open:
        raise Violation(NAME, f"group commit of {epoch} with log sessions of {still_open} open")
    for send in unanswered:
        if isinstance(send.message, LogEntryWrite) and send.message.epoch <= epoch:
            raise Violation(NAME, f"group commit of {epoch} before the answer to {send}")


def check_present(
    epoch: int, ledger: Ledger, node: NodeId, seen: EpochImage, durable: EpochImage | None
) -> None:
    """Check what a store has; ``durable``: None if a flush may wait for the group commit."""
    for channel in ledger.channels:
        needed, found = ledger.count(channel, epoch), seen.count(channel, epoch)
        # A cut of aborted entries need not be durable yet.
        synced = needed if durable is None else durable.count(channel, epoch)
        if found != needed or synced < needed:
            raise Violation(
                NAME,
                f"group commit of {epoch}: node {node} has {found} batches of channel {channel},"
                f" synced are {synced}, written were {needed}",
            )
