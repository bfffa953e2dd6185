"""How a compaction plan reaches the nodes that may compact by it.  No state."""

from __future__ import annotations

from tidelog.formats.message_fields import Message, TopicName


class OfferPlan(Message, frozen=True):
    """Compact by the attached plan, if all that it claims is true.

    The answer is ``Figures`` with one ``PlanOutcome`` for each replica that was asked.
    """

    topic: TopicName
    full: bool = False
    """Rewrite every segment that has a dead entry."""
