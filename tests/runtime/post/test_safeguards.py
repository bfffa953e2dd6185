"""Each safeguard between processes is switched off once: the test that explains it must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from tests.net import pairs
from tests.runtime.metadata_node import test_ask, test_parts
from tests.runtime.post import test_post
from tidelog.errors import RevisionConflict
from tidelog.runtime import metadata_ask
from tidelog.runtime.metadata_node.asking import Asking
from tidelog.runtime.post import Post
from tidelog.runtime.post_greeting import Caller
from tidelog.runtime.post_incoming import Incoming
from tidelog.runtime.post_outgoing import Outgoing


def nothing(*_: object) -> None:
    return None


def always(*_: object) -> bool:
    return True


@dataclass(frozen=True)
class Safeguard:
    """Where it is, what takes its place, and the test that misses it."""

    owner: object
    name: str
    without: object
    test: Callable[[], None]


SAFEGUARDS = [
    # Everybody is listened to.
    Safeguard(Post, "admit", nothing, test_post.test_a_process_of_another_cluster_is_turned_away),
    # A node may speak for others.
    Safeguard(
        Incoming,
        "_check_source",
        nothing,
        partial(
            test_post.test_whatever_a_peer_sends_it_ends_only_its_own_connection,
            test_post.BAD["in another's name"],
        ),
    ),
    # Whoever answers is the one that was called.
    Safeguard(
        Caller, "_check_welcome", nothing, test_post.test_why_a_session_cannot_be_opened_is_told
    ),
    # What nobody was there for is told to who comes back.
    Safeguard(
        Outgoing, "_drop_all", nothing, test_post.test_nobody_is_sought_while_nothing_is_to_be_sent
    ),
    # A refusal in a later life counts as if the node had never been asked before.
    Safeguard(
        metadata_ask,
        "_counts",
        always,
        test_ask.test_a_refusal_of_a_node_that_did_not_see_the_first_time_is_unknown,
    ),
    # What was asked for twice is made twice.
    Safeguard(
        Asking,
        "_known",
        nothing,
        test_parts.test_a_repeated_question_is_answered_alike_and_the_change_is_made_once,
    ),
]


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.name)
def test_a_safeguard_is_missed(safeguard: Safeguard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(safeguard.owner, safeguard.name, safeguard.without)
    with pytest.raises((AssertionError, TimeoutError, RevisionConflict, pytest.fail.Exception)):
        safeguard.test()
