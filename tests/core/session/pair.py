"""A master, its replicas and the connections between them, one event at a time.

Every lane carries out its outputs in order, every connection delivers in order, every channel's
store steps are done in order; apart from that any event may come first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.core.session.stores import Store
from tidelog.core.session.master import Master
from tidelog.core.session.messages import Answer, BlobWrite, Request
from tidelog.core.session.options import MasterOptions
from tidelog.core.session.output import (
    CONTROL,
    AppendLocally,
    ChannelBatch,
    Commit,
    CutLocally,
    DropBlob,
    Durability,
    FlushLocally,
    Hang,
    MasterOutput,
    Notice,
    Prepare,
    RecordLocally,
    Reply,
    Send,
    SendBlob,
    SetBoundary,
    SetBoundaryLocally,
    StoreOutput,
    Write,
    WriteBlob,
)
from tidelog.core.session.replica import ReplicaSessions

Event: TypeAlias = tuple[str, int, int]
"""What happens, at which replica (0 for the master's own), on which lane."""

BLOB_SIZE = 10


class Replica:
    """A replica service without sockets."""

    def __init__(self, store: Store | None = None) -> None:
        self.store = store or Store()
        self.core = ReplicaSessions(
            configuration_id=self.store.configuration_id,
            epoch=self.store.epoch,
            boundary=self.store.boundary,
            blob_exists=self.has_blob,
            stamp=self.stamp,
        )
        self.work: dict[int, deque[StoreOutput | DropBlob]] = {}
        """Store steps to come, of each channel and of the control channel."""
        self.answers: dict[int, deque[Answer]] = {}
        self.hung: list[int] = []
        self._secrets = 0

    def stamp(self) -> str:
        return self.store.stamp

    def has_blob(self, blob: int) -> bool:
        return blob in self.store.blobs

    def connect(self, connection: int) -> None:
        self.core.connected(connection)
        self.answers[connection] = deque()

    def receive(
        self,
        connection: int,
        request: Request,
        batches: tuple[ChannelBatch, ...] | None = (),
        data: bytes = b"",
    ) -> None:
        self._secrets += 1
        secret = f"secret {self._secrets}"
        self.core.received(connection, request, fresh_secret=secret, batches=batches, data=data)
        self.carry_out()

    def carry_out(self) -> None:
        for output in self.core.take():
            match output:
                case Reply(connection, answer):
                    self.answers[connection].append(answer)
                case Hang(connection):
                    self.hung.append(connection)
                case Write(channel=channel) | WriteBlob(channel=channel) | DropBlob(channel):
                    self.work.setdefault(channel, deque()).append(output)
                case _:
                    self.work.setdefault(CONTROL, deque()).append(output)

    def lanes(self) -> list[int]:
        return [lane for lane, steps in sorted(self.work.items()) if steps]

    def work_on(self, lane: int) -> None:
        """Do the next step of a lane."""
        step = self.work[lane].popleft()
        self.apply(step)
        self.carry_out()

    def fail(self, lane: int, reason: str = "the disk is full") -> None:
        step = self.work[lane].popleft()
        assert not isinstance(step, DropBlob)
        self.core.failed(step.ticket, reason)
        self.carry_out()

    def apply(self, step: StoreOutput | DropBlob) -> None:
        store = self.store
        match step:
            case Prepare(ticket, configuration_id, channels):
                store.configuration_id = configuration_id
                store.make_channels(channels)
                store.drop_unrecorded()
                self.core.prepared(ticket, store.llsn_ends())
                return
            case Write():
                store.append(step.channel, step.epoch, step.batches)
                if step.cut_to is not None:
                    store.cut(step.channel, step.cut_to)
                if step.flush:
                    store.flush(step.channel)
            case Commit(epoch=epoch):
                store.record(epoch)
            case SetBoundary(version=version):
                assert version > store.boundary
                store.boundary = version
            case WriteBlob():
                self._add_part(step)
            case DropBlob(channel, blob):
                del store.parts[channel, blob]
                return
        self.core.done(step.ticket, append_us=1, sync_us=2)

    def _add_part(self, part: WriteBlob) -> None:
        have = self.store.parts.pop((part.channel, part.blob), 0)
        assert have == part.offset, "parts of a BLOB come in order"
        if have + len(part.data) == part.size:
            self.store.blobs.add(part.blob)
        else:
            self.store.parts[part.channel, part.blob] = have + len(part.data)

    def work_all(self) -> None:
        while lanes := self.lanes():
            self.work_on(lanes[0])

    def answer(self, connection: int) -> Answer:
        """The next answer on a connection."""
        assert self.answers[connection], "there is an answer"
        return self.answers[connection].popleft()

    def ask(
        self,
        connection: int,
        request: Request,
        batches: tuple[ChannelBatch, ...] | None = (),
        data: bytes = b"",
    ) -> Answer:
        """Send a request and return its answer."""
        self.receive(connection, request, batches, data)
        self.work_all()
        return self.answer(connection)


class Pair:
    """A master, and its replicas; ``events`` says what may happen next."""

    def __init__(
        self,
        *,
        channels: int = 2,
        replicas: int = 1,
        options: MasterOptions | None = None,
        stores: Sequence[Store] = (),
        master: Store | None = None,
    ) -> None:
        self.store = master or Store(configuration_id="c1")
        self.store.make_channels(channels)
        self.replicas = [
            Replica(stores[number] if stores else Store()) for number in range(replicas)
        ]
        self.master = Master(
            configuration_id=self.store.configuration_id or "",
            epoch=self.store.epoch,
            ends=self.store.llsn_ends(),
            replicas=replicas,
            options=options or MasterOptions(),
            boundary=self.store.boundary,
            stamp=self.store.stamp,
        )
        self.lanes = (CONTROL, *range(channels))
        self.todo: dict[int, deque[MasterOutput]] = {lane: deque() for lane in self.lanes}
        self.wire: dict[tuple[int, int], deque[Send]] = {}
        self.notices: list[Notice] = []
        self.story: list[MasterOutput] = []
        self.requests: list[tuple[int, int, Request]] = []
        """What reached the replicas, in this order."""

    # --- events ---

    def events(self) -> list[Event]:
        """What may happen next."""
        found: list[Event] = []
        for lane in self.lanes:
            self.fetch(lane)
            if self.todo[lane]:
                found.append(("do", 0, lane))
        for replica, lane in sorted(self.wire):
            if self.wire[replica, lane] and not self._is_busy(replica, lane):
                found.append(("deliver", replica, lane))
        for number, replica_ in enumerate(self.replicas):
            found.extend(("work", number, lane) for lane in replica_.lanes())
            found.extend(
                ("answer", number, connection - 1)
                for connection, answers in sorted(replica_.answers.items())
                if answers
            )
        return found

    def _is_busy(self, replica: int, lane: int) -> bool:
        link = self.replicas[replica].core._state.links.get(lane + 1)
        return link is not None and link.is_busy

    def happen(self, event: Event) -> None:
        kind, replica, lane = event
        if kind == "do":
            self.carry_out(self.todo[lane].popleft())
        elif kind == "deliver":
            send = self.wire[replica, lane].popleft()
            self.requests.append((replica, lane, send.message))
            self.replicas[replica].receive(lane + 1, send.message, send.batches)
        elif kind == "work":
            self.replicas[replica].work_on(lane)
        else:
            answer = self.replicas[replica].answers[lane + 1].popleft()
            self.master.answered(replica, lane, answer)
        self.look()

    def fetch(self, lane: int) -> None:
        outputs = self.master.take(lane)
        self.story.extend(outputs)
        self.todo[lane].extend(outputs)

    def carry_out(self, output: MasterOutput) -> None:
        match output:
            case Send(replica, lane):
                if (replica, lane) not in self.wire:
                    self.wire[replica, lane] = deque()
                    self.replicas[replica].connect(lane + 1)
                self.wire[replica, lane].append(output)
            case SendBlob(replica, lane, blob):
                for offset, data in ((0, b"1234"), (4, b"567890")):
                    part = BlobWrite(blob, offset, BLOB_SIZE)
                    self.replicas[replica].ask(lane + 1, part, data=data)
            case AppendLocally(lane, epoch, batches, ticket):
                self.store.append(lane, epoch, batches)
                self.master.stored(ticket)
            case FlushLocally(lane, ticket):
                self.store.flush(lane)
                self.master.stored(ticket)
            case CutLocally(lane, llsn_end, ticket):
                self.store.cut(lane, llsn_end)
                self.master.stored(ticket)
            case RecordLocally(epoch, ticket):
                self.store.record(epoch)
                self.master.stored(ticket)
            case SetBoundaryLocally(version, ticket):
                self.store.boundary = version
                self.master.stored(ticket)

    def look(self) -> None:
        """Check the promises that every notice makes."""
        for notice in self.master.notices():
            told = [each.epoch for each in self.notices if each.durability is notice.durability]
            assert not told or notice.epoch > told[-1], "each kind of notice grows"
            if notice.durability is Durability.PROPAGATED:
                assert Notice(notice.epoch, Durability.STORED) in self.notices
            self.notices.append(notice)

    # --- runs ---

    def run(self, choose: Callable[[list[Event]], Event] = lambda events: events[0]) -> None:
        """Let events happen until there are none."""
        while events := self.events():
            self.happen(choose(events))
        self.look()

    def run_without(self, *kinds: str) -> None:
        """Let events of other kinds happen until there are none."""
        while events := [event for event in self.events() if event[0] not in kinds]:
            self.happen(events[0])

    def opened(self) -> Pair:
        self.master.open()
        self.run()
        assert self.master.is_open, self.master.failure
        return self

    def epochs(self, durability: Durability) -> list[int]:
        return [notice.epoch for notice in self.notices if notice.durability is durability]

    def write(self, channel: int, label: str, *, end: bool = True, count: int = 1) -> None:
        """Add entries to the open log session."""
        begin = self.master._ends[channel]
        batches = (ChannelBatch(begin, begin + count, label.encode()),)
        self.master.write(channel, batches, end=end)

    def write_session(self, channel: int, label: str) -> None:
        """A whole log session."""
        self.master.begin(channel)
        self.write(channel, label)
