"""Lanes overtake one another: chance chooses, and for a small story every order is tried."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.session.connections import DONE, whole, with_channels
from tests.core.session.pair import Event, Pair, Replica
from tests.core.session.stores import Store, batch
from tests.core.session.test_known_schedules import EVERY_OPTION, in_short
from tidelog.core.session.messages import Answer, GroupCommit, LogEntryWrite, Request
from tidelog.core.session.options import FlushAt, MasterOptions
from tidelog.core.session.output import Durability

Written = list[list[tuple[int, bytes]]]
"""What the application has written on each channel, with epochs."""


def check_epochs(pair: Pair, written: Written) -> None:
    """A store holds all entries of the epochs that it has recorded, and no others."""
    assert_complete(pair.store, written)
    assert_kept(pair.store, written, pair.master.stored_epoch)
    for replica in pair.replicas:
        assert_complete(replica.store, written)
        assert_kept(replica.store, written, pair.master.propagated_epoch)


def assert_complete(store: Store, written: Written) -> None:
    if store.channels:
        expected = [[each for each in channel if each[0] <= store.epoch] for channel in written]
        assert store.committed() == expected


def assert_kept(store: Store, written: Written, told: int) -> None:
    """All entries of epochs that were told as safe are recorded."""
    for channel, end in zip(written, store.ends, strict=True):
        assert sum(epoch <= told for epoch, _ in channel) <= end


def check_flushed(pair: Pair) -> None:
    """No group commit is on its way while a replica has entries of it that are not durable."""
    for (replica, _), sends in pair.wire.items():
        for send in sends:
            if isinstance(send.message, GroupCommit):
                assert_flushed(pair.replicas[replica].store, send.message.epoch)


def assert_flushed(store: Store, epoch: int) -> None:
    for entries, flushed in zip(store.channels, store.flushed, strict=True):
        assert sum(entry.epoch <= epoch for entry in entries) <= flushed


def check_ends(pair: Pair, written: Written, last: int) -> None:
    """When nothing is left to happen, everything has come through."""
    assert pair.master.failure is None
    assert all(pair.master.is_idle(lane) for lane in pair.lanes)
    assert pair.epochs(Durability.STORED)[-1] == last
    assert pair.epochs(Durability.PROPAGATED)[-1] == last
    check_epochs(pair, written)


# -- every order ---------------------------------------------------------------------------------


def small_story(options: MasterOptions, *, sessions: int) -> tuple[Pair, Written]:
    """Two channels and two epochs, with everything still to happen."""
    pair = Pair(options=options).opened()
    pair.master.switch(1)
    pair.write_session(0, "a")
    pair.write_session(1, "b")
    pair.master.switch(2)
    written: Written = [[(1, b"a")], [(1, b"b")]]
    if sessions == 3:
        pair.write_session(0, "c")
        written[0].append((2, b"c"))
    pair.master.switch(3)
    return pair, written


def explore(pair: Pair, written: Written, last: int) -> int:
    """Try every order of events; returns how many states there are."""
    first = freeze(pair)
    seen, todo = {first}, [first]
    while todo:
        frozen = todo.pop()
        events = thaw(frozen).events()
        if not events:
            check_ends(thaw(frozen), written, last)
        for event in events:
            frozen_next = after(frozen, event, written)
            if frozen_next not in seen:
                seen.add(frozen_next)
                todo.append(frozen_next)
    return len(seen)


def after(frozen: bytes, event: Event, written: Written) -> bytes:
    pair = thaw(frozen)
    pair.events()
    pair.happen(event)
    check_epochs(pair, written)
    if pair.master._steps._options.flush_at is FlushAt.SESSION_END:
        check_flushed(pair)
    return freeze(pair)


def freeze(pair: Pair) -> bytes:
    """The state without its history, so that orders that lead to the same one meet again."""
    pair.events()
    pair.story.clear()
    pair.requests.clear()
    return pickle.dumps(pair)


def thaw(frozen: bytes) -> Pair:
    pair = pickle.loads(frozen)
    assert isinstance(pair, Pair)
    return pair


@pytest.mark.parametrize("options", EVERY_OPTION, ids=in_short)
def test_every_order_of_two_log_sessions_and_their_group_commit(options: MasterOptions) -> None:
    pair, written = small_story(options, sessions=2)
    assert explore(pair, written, last=2) > 50


@pytest.mark.parametrize("flush_at", FlushAt)
def test_every_order_of_log_sessions_of_two_epochs_and_their_group_commits(
    flush_at: FlushAt,
) -> None:
    pair, written = small_story(MasterOptions(flush_at=flush_at), sessions=3)
    assert explore(pair, written, last=2) > 500


# -- a master that does not wait -----------------------------------------------------------------

HASTY: list[tuple[int, Request, int]] = [
    (1, LogEntryWrite(1, session_begin=True), 1),
    (1, LogEntryWrite(1, session_end=True, flush=True), 2),
    (2, whole(1), 1),
    (0, GroupCommit(1), 0),
]
"""Requests by connection, with the LLSN of their entry; each connection sends without waiting."""


def hasty_orders(replica: Replica, sent: dict[int, int]) -> list[str]:
    """What may happen next: a connection sends, or a lane of the store does its step."""
    found = [f"work {lane}" for lane in replica.lanes()]
    for connection in (0, 1, 2):
        script = [each for each in HASTY if each[0] == connection]
        link = replica.core._state.links[connection]
        if sent[connection] < len(script) and not link.is_busy:
            found.append(f"send {connection}")
    return found


def play(done: tuple[str, ...]) -> tuple[Replica, dict[int, int], dict[int, list[Answer]]]:
    """Play an order of events from the beginning."""
    replica, _ = with_channels()
    sent = {0: 0, 1: 0, 2: 0}
    for step in done:
        kind, number = step.split()
        if kind == "work":
            replica.work_on(int(number))
            continue
        script = [each for each in HASTY if each[0] == int(number)]
        _, request, llsn = script[sent[int(number)]]
        sent[int(number)] += 1
        replica.receive(int(number), request, (batch(llsn),) if llsn else ())
    answers = {connection: list(replica.answers[connection]) for connection in sent}
    return replica, sent, answers


def test_a_group_commit_that_overtakes_entries_never_takes_half_a_log_session() -> None:
    """In every order: what was committed is what was acknowledged, in whole log sessions."""
    todo: list[tuple[str, ...]] = [()]
    ends: set[tuple[bool, int, int]] = set()
    while todo:
        done = todo.pop()
        replica, sent, answers = play(done)
        following = hasty_orders(replica, sent)
        todo.extend((*done, step) for step in following)
        if following:
            continue
        committed = replica.store.committed()
        is_committed = answers[0] == [DONE]
        assert len(committed[0]) in (0, 2)
        assert len(committed[0]) == (2 if is_committed and answers[1] == [DONE, DONE] else 0)
        assert len(committed[1]) == (1 if is_committed and answers[2] == [DONE] else 0)
        ends.add((is_committed, len(committed[0]), len(committed[1])))
    assert {(True, 2, 1), (True, 0, 0), (True, 2, 0), (True, 0, 1), (False, 0, 0)} <= ends


# -- chance --------------------------------------------------------------------------------------


class Walk:
    """An application that does what chance says, on a pair whose events chance orders."""

    def __init__(self, options: MasterOptions, replicas: int) -> None:
        self.pair = Pair(options=options, replicas=replicas).opened()
        self.written: Written = [[], []]
        self.open: list[list[tuple[int, bytes]] | None] = [None, None]
        self.count = 0

    def step(self, choice: int) -> None:
        events = self.pair.events()
        if choice % 3 and events:
            self.pair.happen(events[choice // 3 % len(events)])
        else:
            self.act(choice // 3)
        self.pair.look()
        check_epochs(self.pair, self.written)

    def act(self, choice: int) -> None:
        channel, kind = choice % 2, choice // 2 % 6
        session = self.open[channel]
        if kind == 0 or self.pair.master.epoch == 0:
            self.pair.master.switch(self.pair.master.epoch + 1 + choice // 12 % 3)
        elif session is None:
            self.pair.master.begin(channel)
            self.open[channel] = []
        elif kind == 1:
            self.pair.master.abort(channel)
            self.open[channel] = None
        elif kind in (2, 3):
            self.add(channel, session)
        else:
            self.end(channel, session)

    def add(self, channel: int, session: list[tuple[int, bytes]]) -> None:
        epoch = self.pair.master._epochs.session(channel).epoch
        self.count += 1
        session.append((epoch, b"%d" % self.count))
        self.pair.write(channel, str(self.count), end=False)

    def end(self, channel: int, session: list[tuple[int, bytes]]) -> None:
        self.written[channel].extend(session)
        self.pair.master.write(channel, (), end=True)
        self.open[channel] = None

    def finish(self) -> None:
        for channel, session in enumerate(self.open):
            if session is not None:
                self.end(channel, session)
        last = self.pair.master.epoch
        self.pair.master.switch(last + 1)
        self.pair.run()
        check_ends(self.pair, self.written, last)


@given(
    options=st.sampled_from(EVERY_OPTION),
    replicas=st.integers(0, 2),
    choices=st.lists(st.integers(0, 1 << 16), max_size=150),
)
def test_whatever_overtakes_what_an_epoch_is_told_only_when_it_is_whole(
    options: MasterOptions, replicas: int, choices: list[int]
) -> None:
    walk = Walk(options, replicas)
    for choice in choices:
        walk.step(choice)
    if walk.pair.master.epoch == 0:
        walk.pair.master.switch(1)
    walk.finish()
