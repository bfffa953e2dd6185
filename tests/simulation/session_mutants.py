"""Safeguards of replication sessions, each switched off and hunted by seeds.

``seeds`` is how many a hunt may take, from ``first`` on, which is where it was short when it was
written down.  What only a master that is wrong itself could reach, such
as entries of an epoch that is over, is hunted by stories (``tests/mutation/session_mutants.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.mutation.broken_sessions import (
    at_its_mark,
    even_when_stopped,
    whatever_is_awaited,
    whatever_is_unfinished,
    with_the_first_answer,
    with_the_last_answer,
)
from tests.mutation.left_out import Change, replaced
from tests.mutation.mutant import instead
from tests.mutation.raft_mutants import always, nothing
from tidelog.core.session import replica_session
from tidelog.core.session.channel import Channel
from tidelog.core.session.control_channel import ControlChannel
from tidelog.core.session.epochs import Epochs
from tidelog.core.session.lanes import Lane, Stage
from tidelog.core.session.master import Commit, Master
from tidelog.core.session.messages import Ack
from tidelog.core.session.replica_session import Link, Session
from tidelog.core.session.replica_state import State
from tidelog.core.session.steps import Steps
from tidelog.testing.session_image import EpochImage


@dataclass(frozen=True, slots=True)
class SessionMutant:
    name: str
    """What is wrong with the mutated code."""
    change: Change
    caught_by: tuple[str, ...]
    """The checkers that may notice."""
    first: int = 0
    seeds: int = 150


def never(*_: object, **__: object) -> bool:
    return False


def without_local_steps(lane: Lane, stage: Stage) -> bool:
    return stage.finishes is not None and not lane._answers


def of_the_current_one(original: Callable[..., int]) -> Callable[..., int]:
    return lambda epochs: original(epochs) + 1


def answered_at_once(control: ControlChannel, link: Link, session: Session, epoch: int) -> None:
    control._state.epoch = epoch
    control._state.reply(link, Ack())


def keeps_the_entries(channel: Channel) -> int | None:
    channel.session_begin = None
    return None


def no_blobs(*_: object) -> tuple[()]:
    return ()


def always_first(original: Callable[..., None]) -> Callable[..., None]:
    def begin_boundary(master: Master, version: int) -> None:
        original(master, version)
        master._is_boundary_next = True

    return begin_boundary


MUTANTS: Final = (
    # -- the master --------------------------------------------------------------------------
    SessionMutant(
        "a log session is finished when its last entry is handed out",
        instead(Lane, "_is_reached", at_its_mark),
        ("group_commit",),
    ),
    SessionMutant(
        "a log session is finished before its entries are durable here",
        instead(Lane, "_is_reached", without_local_steps),
        ("group_commit",),
    ),
    SessionMutant(
        "steps do not wait for one another",
        instead(Lane, "_may_go", whatever_is_awaited),
        ("serial_steps",),
        first=10,
    ),
    SessionMutant(
        "an epoch is committed while log sessions write in it",
        instead(Epochs, "_over", whatever_is_unfinished),
        (
            "group_commit",
            "epoch_durable",
            "session_entries",
        ),
    ),
    SessionMutant(
        "the current epoch is committed",
        replaced(Epochs, "_over", of_the_current_one),
        (
            "group_commit",
            "epoch_durable",
        ),
    ),
    SessionMutant(
        "PROPAGATED does not wait for STORED",
        instead(Commit, "is_propagated", property(with_the_last_answer)),
        (
            "notices",
            "invariant",
        ),
    ),
    SessionMutant(
        "PROPAGATED needs the answer of one replica",
        replaced(Master, "_committed", with_the_first_answer),
        ("epoch_durable",),
        first=5,
    ),
    SessionMutant(
        "a master that has stopped tells of PROPAGATED epochs",
        instead(Master, "_complete_commit", even_when_stopped),
        ("notices",),
        first=15,
    ),
    SessionMutant(
        "a stopped master goes on sending",
        instead(Lane, "stop", nothing),
        ("stopped_master",),
        first=10,
    ),
    SessionMutant(
        "entries are sent without their BLOBs",
        instead(Steps, "_blobs", no_blobs),
        ("refusals",),
    ),
    SessionMutant(
        "boundaries always go first",
        replaced(Master, "_begin_boundary", always_first),
        ("liveness",),
        first=29,
    ),
    # -- the replica -------------------------------------------------------------------------
    SessionMutant(
        "any secret opens a log channel",
        instead(replica_session, "is_same_secret", always),
        ("session_secrets",),
    ),
    SessionMutant(
        "a replica at another epoch is taken for equal",
        instead(ControlChannel, "_check_position", nothing),
        ("replica_promises",),
        first=15,
    ),
    SessionMutant(
        "equal epochs are taken for equal histories",
        instead(ControlChannel, "_check_history", nothing),
        ("equal_sides",),
    ),
    SessionMutant(
        "a replica takes on any master",
        instead(ControlChannel, "_check_configuration", nothing),
        ("session_entries",),
    ),
    SessionMutant(
        "two sessions at a time",
        instead(ControlChannel, "_check_alone", nothing),
        ("session_answers",),
        first=17,
    ),
    SessionMutant(
        "a session begins while the store works for the one before",
        instead(ControlChannel, "_is_at_work", never),
        ("session_entries",),
        first=9,
    ),
    SessionMutant(
        "a group commit is answered before it is durable",
        instead(ControlChannel, "_commit", answered_at_once),
        ("replica_promises",),
    ),
    SessionMutant(
        "an aborted log session leaves its entries",
        instead(Channel, "abort", keeps_the_entries),
        (
            "group_commit",
            "refusals",
        ),
    ),
    SessionMutant(
        "log channels outlive their session",
        instead(State, "hang_up", nothing),
        ("session_answers",),
    ),
    # -- the store ---------------------------------------------------------------------------
    SessionMutant(
        "unrecorded entries are not dropped",
        instead(EpochImage, "drop_unrecorded", nothing),
        (
            "kept_epochs",
            "replica_promises",
        ),
    ),
)
