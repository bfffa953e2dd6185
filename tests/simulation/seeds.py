"""Seeds that once failed, each with what it found; they are run for ever.

A change of the simulator gives a seed another history, so an old one is no proof any more; what it
found has a test of its own beside the code that was wrong.
"""

from __future__ import annotations

from typing import Final

from tidelog.testing.sometimes import Kind

PINNED: Final = (
    (Kind.RAFT, 108, "a voter that was told of its own removal could not lead while it was needed"),
    (Kind.RAFT, 137, "the same, in a group of two"),
    (Kind.RAFT, 2_657, "a voter was destroyed while a change that needs it was on its way to disk"),
    (Kind.METADATA, 5, "a leader that hands over was asked to propose again and again"),
    (Kind.METADATA, 20, "the only replica was told to ask a peer, since its node knew less"),
    (Kind.METADATA, 4, "a change was answered with the outcome of one from an earlier life"),
    (Kind.METADATA, 10, "the same, while storage nodes were registered"),
    (
        Kind.METADATA,
        20_238,
        "a report was proposed for ever, since the log was slower than patience",
    ),
    (Kind.METADATA, 20_249, "the same, with a slow disk and no other load"),
    (Kind.METADATA, 5_527, "the last replica that knew the newest GLSNs left the ensemble"),
    (Kind.METADATA, 20_053, "a metadata node that restarted did not know yet of a new replica"),
    (Kind.METADATA, 3_698, "a change was held up on its way until the cluster was called idle"),
    (Kind.METADATA, 4_573, "who left an ensemble was all that the quorum had waited for"),
    (Kind.METADATA, 4_696, "the only replica that was left had to ask a peer"),
)
