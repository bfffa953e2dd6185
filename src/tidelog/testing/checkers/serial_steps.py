"""A pair of steps that the options want one after the other is not carried out side by side."""

from __future__ import annotations

from typing import Final

from tidelog.core.session.messages import (
    GcBoundarySwitch,
    GroupCommit,
    LogChannelFlush,
    LogEntryWrite,
)
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import FlushLocally, MasterOutput, Send
from tidelog.testing.session_image import EpochImage
from tidelog.testing.violation import Violation

NAME: Final = "serial_steps"


def check_steps(
    options: MasterOptions, output: MasterOutput, seen: EpochImage, durable: EpochImage
) -> None:
    """Check an output against the master's own store, when it is carried out."""
    if isinstance(output, FlushLocally) and options.flush_at is FlushAt.GROUP_COMMIT:
        raise Violation(NAME, f"{output}, though group commits flush")
    if isinstance(output, Send) and not _is_in_order(options, output, seen, durable):
        raise Violation(NAME, f"{output.message} is sent too early for {options}")


def _is_in_order(options: MasterOptions, send: Send, seen: EpochImage, durable: EpochImage) -> bool:
    match send.message:
        case LogEntryWrite(flush=flush):
            end = send.batches[-1].llsn_end if send.batches else 0
            is_appended = options.parallel_append or seen.end(send.lane) >= end
            may_flush = options.flush_at is FlushAt.SESSION_END and options.parallel_flush
            return is_appended and (may_flush or not flush)
        case LogChannelFlush():
            is_flushed = durable.end(send.lane) == seen.end(send.lane)
            return options.flush_at is FlushAt.SESSION_END and is_flushed
        case GcBoundarySwitch(version):
            # So that a replica is never ahead.
            return durable.boundary >= int.from_bytes(version, "big")
        case GroupCommit(epoch):
            return options.parallel_commit or durable.epoch >= epoch
        case _:
            return True
