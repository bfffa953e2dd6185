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
    (Kind.CLUSTER, 2, "a replica gave up cuts that waited, and nobody else knew them"),
    (Kind.CLUSTER, 14, "a follower took what it had cut off for equal to its leader's log"),
    (Kind.CLUSTER, 38, "a replica asked for cuts up to a version at which nothing was ordered"),
    (Kind.CLUSTER, 5, "a log trimmed inside a batch could not fill up another replica"),
    (Kind.CLUSTER, 206, "a late word of an operator made a follower cut what it had acknowledged"),
    (Kind.CLUSTER, 397, "the same, by the word of a follower that was filled up meanwhile"),
    (Kind.CLUSTER, 25, "a dead follower was never replaced, since its cursor was attached"),
    (Kind.CLUSTER, 304, "a stream was left with one living member of two by a contraction"),
    (Kind.CLUSTER, 902, "the reports after an election came when the cluster was called idle"),
    (Kind.CLUSTER, 51_019, "a commit of a contraction that was rolled back was held against a cut"),
    (Kind.SESSION, 29, "boundaries were raised so often that no group commit had its turn"),
)
