"""What a replica acknowledges is so, in its store or on its disk, when it says so."""

from __future__ import annotations

from typing import Final

from tidelog.core.session.messages import (
    BlobWrite,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SessionBegin,
)
from tidelog.core.session.output import ChannelBatch
from tidelog.testing.session_image import EpochImage
from tidelog.testing.violation import Violation
from tidelog.types import NodeId

NAME: Final = "replica_promises"


def check_acknowledged(
    node: NodeId,
    channel: int,
    request: Request,
    batches: tuple[ChannelBatch, ...],
    seen: EpochImage,
    durable: EpochImage,
) -> None:
    """Check a request that a replica answers with success; ``channel`` is the one it came on."""
    match request:
        case LogEntryWrite(session_abort=True, flush=flush):
            is_so = not flush or durable.end(channel) == seen.end(channel)
        case LogEntryWrite(flush=flush):
            is_so = not batches or _holds(durable if flush else seen, channel, batches[-1])
        case LogChannelFlush():
            is_so = durable.end(channel) == seen.end(channel)
        case GroupCommit(epoch):
            is_so = durable.epoch == epoch
        case GcBoundarySwitch(version):
            is_so = durable.boundary >= int.from_bytes(version, "big")
        case BlobWrite(blob, offset, size):
            is_so = blob in durable.blobs or offset + 1 < size
        case SessionBegin(_, configuration_id, epoch):
            known = (durable.configuration_id, durable.epoch)
            is_so = known == (configuration_id, epoch) and not _unrecorded(seen, durable)
        case _:
            is_so = True
    if not is_so:
        raise Violation(
            NAME,
            f"node {node} acknowledges {request} on channel {channel}; its disk is at epoch"
            f" {durable.epoch}, boundary {durable.boundary}, ends {durable.ends()} of"
            f" {seen.ends()}, {_unrecorded(seen, durable)} batches are not recorded",
        )


def _holds(image: EpochImage, channel: int, batch: ChannelBatch) -> bool:
    return any(stored.batch == batch for stored in reversed(image.channels[channel]))


def _unrecorded(seen: EpochImage, durable: EpochImage) -> int:
    return max(seen.unrecorded(), durable.unrecorded())
