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
    (Kind.METADATA, 5, "a leader that hands over was asked to propose again and again"),
    (Kind.METADATA, 20, "the only replica was told to ask a peer, since its node knew less"),
    (Kind.METADATA, 4, "a change was answered with the outcome of one from an earlier life"),
    (Kind.METADATA, 10, "the same, while storage nodes were registered"),
)
