"""A compaction plan for one log stream: which of its entries are claimed to be dead.  No state.

It says under which GC boundary the claims were made, and up to which LLSN whoever made it looked.
Claims are made of keyed entries and storage deletes alone.  A plan of many entries has several
parts, each of which is a plan by itself: what a part says nothing of is kept.

  Q1  every claimed LLSN is at least 1 and at most the plan's index
  Q2  the bytes end where the bitmap ends
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from pyroaring import BitMap64

from tidelog.errors import CorruptData
from tidelog.formats.envelope import seal, unseal
from tidelog.formats.manifest import LOG_ID_BYTES
from tidelog.invariants import check
from tidelog.limits import PLAN_BYTES_MAX, PLAN_LLSNS_MAX

_MAGIC: Final = b"TLCP"
_VERSION: Final = 1
_START: Final = Struct(f"<{LOG_ID_BYTES}sQQQQQ")
_LOW_64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Claims about one log stream of a log."""

    log_id: bytes
    stream: int
    index: int
    boundary: int
    dead: BitMap64


def encode_plan(plan: StreamPlan) -> bytes:
    """The plan as bytes; one of more LLSNs than fit must be taken apart first."""
    fault = _fault(plan)
    check(fault is None, fault or "")
    # Runs save space; the copy keeps the caller's bitmap as it is.
    dead = plan.dead.copy()
    dead.run_optimize()
    start = _START.pack(
        plan.log_id,
        plan.stream,
        plan.index,
        plan.boundary >> 64,
        plan.boundary & _LOW_64,
        len(dead),
    )
    body = start + dead.serialize()
    check(len(body) <= PLAN_BYTES_MAX, "a plan is small enough to be sent")
    return seal(_MAGIC, _VERSION, body)


def decode_plan(data: bytes | memoryview) -> StreamPlan:
    """The plan in exactly these bytes."""
    what = "compaction plan"
    body = unseal(_MAGIC, _VERSION, data, what=what, max_length=PLAN_BYTES_MAX)
    if len(body) < _START.size:
        raise CorruptData(f"{what}: {len(body)} bytes are too few")
    log_id, stream, index, high, low, count = _START.unpack_from(body)
    bitmap = body[_START.size :]
    try:
        dead = BitMap64.deserialize(bitmap)
    except (ValueError, IndexError) as error:  # Bad structure; IndexError stands for no bytes.
        raise CorruptData(f"{what}: {error}") from error
    # The bitmap's reader passes over bytes behind its end.
    if dead.serialize() != bitmap:
        raise CorruptData(f"{what}: Q2: the bitmap is not what it would be written as")
    if len(dead) != count:
        raise CorruptData(f"{what}: {len(dead)} claims instead of {count}")
    plan = StreamPlan(log_id, stream, index, high << 64 | low, dead)
    if fault := _fault(plan):
        raise CorruptData(f"{what}: {fault}")
    return plan


def plan_parts(plan: StreamPlan, llsns_max: int = PLAN_LLSNS_MAX) -> Iterator[StreamPlan]:
    """The plan in parts that are small enough to be encoded; none if it claims nothing."""
    left = plan.dead.copy()
    while left:
        first = left.min()
        part = left & BitMap64(range(first, first + llsns_max))
        left -= part
        yield replace(plan, dead=part)


def _fault(plan: StreamPlan) -> str | None:
    if len(plan.log_id) != LOG_ID_BYTES:
        return f"a log id of {len(plan.log_id)} bytes"
    dead = plan.dead
    if dead and (dead.min() < 1 or dead.max() > plan.index):
        return f"Q1: claims from {dead.min()} to {dead.max()} with index {plan.index}"
    return None
