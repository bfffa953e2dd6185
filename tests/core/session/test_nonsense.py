"""Whatever comes in, in whatever order: one answer to each request, and nothing is torn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.session.connections import whole, with_channels
from tests.core.session.pair import Pair, Replica
from tests.core.session.stores import batch
from tidelog.core.session.messages import (
    SESSION_PROTOCOL,
    Ack,
    Answer,
    BlobWrite,
    Error,
    GcBoundarySwitch,
    GroupCommit,
    LogChannelCreate,
    LogChannelDispose,
    LogChannelFlush,
    LogEntryWrite,
    Request,
    SafeSnapshotSwitch,
    SessionBegin,
    SessionBegun,
    SessionEnd,
)
from tidelog.core.session.output import ChannelBatch, DropBlob
from tidelog.errors import LogError

EPOCHS = st.integers(0, 4)
VERSIONS = st.integers(0, 3).map(lambda number: number.to_bytes(16, "big"))
SECRETS = st.sampled_from(["", "secret 1", "secret 2", "secret 3", "other"])
REQUESTS: st.SearchStrategy[Request] = st.one_of(
    st.builds(
        SessionBegin,
        st.sampled_from([SESSION_PROTOCOL, SESSION_PROTOCOL, 9]),
        st.sampled_from(["c1", "c1", "c2"]),
        EPOCHS,
        st.sampled_from([0, 2, 2, 1 << 62]),
    ),
    st.just(SessionEnd()),
    st.builds(GroupCommit, EPOCHS),
    st.builds(GcBoundarySwitch, VERSIONS),
    st.builds(SafeSnapshotSwitch, VERSIONS),
    st.builds(LogChannelCreate, SECRETS, st.integers(0, 3)),
    st.just(LogChannelDispose()),
    st.builds(LogEntryWrite, EPOCHS, st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.builds(whole, EPOCHS),
    st.just(LogChannelFlush()),
    st.builds(BlobWrite, st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)),
)
BATCHES = st.one_of(
    st.none(),
    st.lists(
        st.builds(
            batch,
            st.integers(1, 4),
            st.integers(0, 2),
            blobs=st.lists(st.integers(0, 2), max_size=1).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)


class Chaos:
    """A replica among connections that say anything; each is made anew when it is gone."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        is_open = data.draw(st.booleans())
        self.replica = with_channels()[0] if is_open else Replica()
        self.ids = [0, 1, 2] if is_open else []
        self.owed = dict.fromkeys(self.ids, 0)
        while len(self.ids) < 5:
            self.connect()

    def connect(self) -> None:
        connection = len(self.owed)
        self.ids.append(connection)
        self.owed[connection] = 0
        self.replica.connect(connection)

    def step(self) -> None:
        kind = self.data.draw(
            st.sampled_from(["ask", "ask", "ask", "work", "work", "fail", "gone"])
        )
        lanes = self.replica.lanes()
        if kind == "ask":
            self.ask(self.data.draw(st.sampled_from(self.ids)))
        elif kind == "gone":
            self.lose(self.data.draw(st.sampled_from(self.ids)))
        elif lanes and kind == "work":
            self.replica.work_on(self.data.draw(st.sampled_from(lanes)))
        elif lanes:
            self.fail(self.data.draw(st.sampled_from(lanes)))
        self.check()

    def ask(self, connection: int) -> None:
        if not self.replica.core._state.links[connection].is_busy:
            self.owed[connection] += 1
            request = self.data.draw(REQUESTS)
            batches = (
                self.data.draw(BATCHES)
                if self.data.draw(st.booleans())
                else self.next_batch(connection)
            )
            part = self.data.draw(st.binary(max_size=3))
            self.replica.receive(connection, request, batches, part)

    def next_batch(self, connection: int) -> tuple[ChannelBatch, ...]:
        """Entries that continue the connection's log channel, if it is one."""
        channel = self.replica.core._state.links[connection].channel
        return () if channel is None else (batch(channel.end),)

    def lose(self, connection: int) -> None:
        if self.data.draw(st.booleans()):
            self.replica.core.lost(connection)
        elif not self.replica.core._state.links[connection].is_busy:
            self.owed[connection] += 1
            self.replica.core.undecodable(connection)
        self.replica.carry_out()

    def fail(self, lane: int) -> None:
        if isinstance(self.replica.work[lane][0], DropBlob):
            self.replica.work_on(lane)
        else:
            self.replica.fail(lane)

    def check(self) -> None:
        """One answer to each request, but on connections that are gone: there at most one."""
        links = self.replica.core._state.links
        for connection, owed in self.owed.items():
            answers = len(self.replica.answers[connection])
            link = links.get(connection)
            assert answers <= owed
            if link is not None:
                assert answers == owed - link.is_busy
        self.ids = [connection for connection in self.ids if connection in links]
        while len(self.ids) < 5:
            self.connect()


@given(st.data())
def test_a_replica_answers_whatever_it_is_asked(data: st.DataObject) -> None:
    chaos = Chaos(data)
    for _ in range(data.draw(st.integers(0, 30))):
        chaos.step()
    committed = chaos.replica.store.committed()
    chaos.replica.work_all()
    chaos.replica.store.drop_unrecorded()
    assert [
        after[: len(before)]
        for before, after in zip(committed, chaos.replica.store.committed(), strict=False)
    ] == committed


ANSWERS: st.SearchStrategy[Answer] = st.one_of(
    st.builds(Ack),
    st.builds(SessionBegun, st.text(max_size=3)),
    st.builds(Error, st.integers(0, 30), st.text(max_size=3)),
)


@given(st.data())
def test_a_master_takes_whatever_it_is_answered(data: st.DataObject) -> None:
    pair = Pair(replicas=2)
    pair.master.open()
    for _ in range(data.draw(st.integers(0, 25))):
        lane = data.draw(st.sampled_from(pair.lanes))
        kind = data.draw(st.sampled_from(["answer", "run", "call", "take"]))
        if kind == "answer":
            pair.master.answered(data.draw(st.integers(0, 1)), lane, data.draw(ANSWERS))
        elif kind == "run" and (events := pair.events()):
            pair.happen(data.draw(st.sampled_from(events)))
        elif kind == "call":
            call(pair, lane, data)
        pair.look()
    assert pair.master.propagated_epoch <= pair.master.stored_epoch


def call(pair: Pair, lane: int, data: st.DataObject) -> None:
    """Something that an application may call, at the wrong time as well."""
    number = data.draw(st.integers(0, 4))
    which = data.draw(st.integers(0, 6))
    try:
        if which == 0:
            pair.master.switch(number)
        elif which == 1:
            pair.master.begin(lane)
        elif which == 2:
            pair.write(max(lane, 0), "x", end=bool(number % 2))
        elif which == 3:
            pair.master.abort(lane)
        elif which == 4:
            pair.master.set_boundary(number)
        elif which == 5:
            pair.master.failed(0, "lost")
        else:
            pair.master.close()
    except LogError:
        pass
