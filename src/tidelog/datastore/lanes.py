"""Carries out what the master's core decides: sends, writes, waits, and tells it what came of it.

A log channel is a lane, and so is the control channel.  The thread that wants something of a lane
runs it: it sends to all replicas, does the local step while they work, then takes their answers.
So no work changes threads on its way, and the order of steps is the core's alone.

Y1  the core is only touched under the lock, and nothing is awaited under it
Y2  one thread at a time runs a lane
Y3  whatever the core handed out is carried out, or the datastore has failed: a thread that is torn
    away in between stops it
Y4  once a replica is lost, nothing more is sent to any; local steps that are out are still done
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import NamedTuple, NoReturn, TypeVar

from tidelog.core.session.lanes import LocalOutput
from tidelog.core.session.master import Master
from tidelog.core.session.messages import (
    Ack,
    Answer,
    GcBoundarySwitch,
    LogChannelFlush,
    LogEntryWrite,
    Request,
)
from tidelog.core.session.output import (
    CONTROL,
    AppendLocally,
    CutLocally,
    Durability,
    FlushLocally,
    MasterOutput,
    Notice,
    RecordLocally,
    Send,
    SendBlob,
    SetBoundaryLocally,
)
from tidelog.datastore.blob_parts import parts_of
from tidelog.datastore.epoch_store import EpochStore
from tidelog.datastore.replicas import Replicas
from tidelog.datastore.spans import Spans
from tidelog.errors import DeadlineExceeded, LogClosed, LogError, StorageFailed
from tidelog.storage.blob_store import BlobReader

T = TypeVar("T")


class Sent(NamedTuple):
    """A request under way."""

    begin_ns: int
    message: Request


class Lanes:
    """One master, its store and its replicas.  Thread-safe."""

    def __init__(self, master: Master, store: EpochStore, replicas: Replicas, spans: Spans) -> None:
        self._master = master
        self._store = store
        self._replicas = replicas
        self._spans = spans
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """For the thread that runs the control lane."""
        self._told = threading.Condition(self._lock)
        """For those who wait until an epoch is safe."""
        self._notices: deque[Notice] = deque()
        self._control_waits = False
        self._boundary = store.boundary
        """The last GC boundary that every replica was told."""
        self._stopping = False
        self._torn: BaseException | None = None

    # -- log channels -------------------------------------------------------------------------

    def call(self, lane: int, change: Callable[[Master], T]) -> T:
        """Change the core and carry out all that follows on this lane; raises what stopped it."""
        try:
            with self._lock:
                self._check_sound()
                result = change(self._master)
                outputs = self._master.take(lane)
                self._look()
            if outputs:
                self._run(lane, outputs)
                self.check_sound()
        except LogError:
            raise
        except BaseException as error:
            self._tear(error)
            raise
        return result

    def change(self, change: Callable[[Master], T]) -> T:
        """Change the core; what follows concerns the control lane alone."""
        try:
            with self._lock:
                self._check_sound()
                result = change(self._master)
                self._look()
        except LogError:
            raise
        except BaseException as error:
            self._tear(error)
            raise
        return result

    # -- the control lane ---------------------------------------------------------------------

    def run_control(self, deliver: Callable[[Notice], None]) -> None:
        """Run the control lane until ``stop``; ``deliver`` is told of all notices, in order."""
        while True:
            with self._lock:
                outputs = self._master.take(CONTROL)
                while not (outputs or self._notices or self._stopping):
                    self._control_waits = True
                    self._work.wait()
                    self._control_waits = False
                    outputs = self._master.take(CONTROL)
                if self._stopping and not outputs and not self._notices:
                    return
            self._deliver(deliver)
            self._run(CONTROL, outputs, lambda: self._deliver(deliver))

    def set_boundary(self, version: int, seconds: float) -> None:
        """Raise the GC boundary; returns when it is stored here and every replica was told."""
        self.change(lambda master: master.set_boundary(version))
        with self._told:
            self._told.wait_for(lambda: self._boundary >= version or self._is_over(), seconds)
            if self._boundary >= version:
                return
        self._raise_unreached(f"the GC boundary is not set after {seconds} s; it may still be")

    def stop(self) -> None:
        """Let ``run_control`` return when it has nothing left to do."""
        with self._lock:
            self._stopping = True
            self._wake_control()
            self._told.notify_all()

    def end(self, seconds: float) -> bool:
        """End the session in order, group commits that are due first; False if that failed."""
        with self._lock:
            if self._failure() is not None:
                return False
            self._master.close()
            self._wake_control()
            self._told.wait_for(
                lambda: self._master.is_ended or self._failure() is not None, seconds
            )
            return self._master.is_ended and self._failure() is None

    # -- what others ask ----------------------------------------------------------------------

    @property
    def failure(self) -> BaseException | None:
        with self._lock:
            return self._failure()

    def safe_epoch(self, durability: Durability) -> int:
        """Up to which epoch all is as safe as that."""
        if durability is Durability.STORED:
            return self._master.stored_epoch
        return self._master.propagated_epoch

    def wait_for(self, epoch: int, durability: Durability, seconds: float) -> None:
        """Wait until an epoch is as safe as that; raises what makes it impossible."""
        with self._told:
            self._told.wait_for(
                lambda: self.safe_epoch(durability) >= epoch or self._is_over(), seconds
            )
            if self.safe_epoch(durability) >= epoch:
                return
        self._raise_unreached(f"epoch {epoch} is not {durability.value} after {seconds} s")

    def check_sound(self) -> None:
        """Raise what stopped the datastore, if anything did."""
        with self._lock:
            self._check_sound()

    def store_failed(self, error: BaseException) -> None:
        """Something that only this side can do went wrong."""
        with self._lock:
            self._master.store_failed(str(error) or repr(error))
            self._look()
        self._replicas.shut_down()

    # -- inside: running a lane ---------------------------------------------------------------

    def _run(
        self, lane: int, outputs: list[MasterOutput], pause: Callable[[], None] | None = None
    ) -> None:
        """Carry out outputs, and those that follow from them; ``pause`` before each wait."""
        commit_begin = 0
        try:
            while outputs:
                begin = perf_counter_ns()
                begins_commit = lane == CONTROL and _has_record(outputs)
                if commit_begin and begins_commit:
                    self._spans.group_commit.add(begin - commit_begin)
                if begins_commit:
                    commit_begin = begin
                outputs = self._turn(lane, outputs, pause)
        except BaseException as error:
            self._tear(error)
            raise
        if commit_begin:
            self._spans.group_commit.add(perf_counter_ns() - commit_begin)

    def _turn(
        self, lane: int, outputs: list[MasterOutput], pause: Callable[[], None] | None
    ) -> list[MasterOutput]:
        """One round: outputs, then their answers; what is to be done next."""
        sent: list[Sent] = []
        tickets = self._carry_out(outputs, sent)
        with self._lock:
            for ticket in tickets:
                self._master.stored(ticket)
            waits = self._master.waits(lane)
            if not waits:
                self._note_boundary(outputs)
                outputs = self._master.take(lane)
                self._look()
                return outputs
            self._look()
        if pause is not None:
            pause()
        answers = self._receive(lane, waits, sent)
        with self._lock:
            for replica, answer in answers:
                self._master.answered(replica, lane, answer)
            self._note_boundary(outputs)
            outputs = self._master.take(lane)
            self._look()
        self._hang_up_if_failed()
        return outputs

    def _note_boundary(self, outputs: list[MasterOutput]) -> None:
        """Under the lock: whoever waits for a GC boundary is told when its last step is done."""
        if self._failure() is not None:
            return
        for output in outputs:
            if isinstance(output, Send) and isinstance(output.message, GcBoundarySwitch):
                self._boundary = int.from_bytes(output.message.write_version, "big")
                self._told.notify_all()
            elif isinstance(output, SetBoundaryLocally) and not len(self._replicas):
                self._boundary = output.version
                self._told.notify_all()

    def _carry_out(self, outputs: list[MasterOutput], sent: list[Sent]) -> list[int]:
        """Carry out outputs in their order; the tickets of local steps that are done."""
        tickets: list[int] = []
        lost = False
        for output in outputs:
            if isinstance(output, Send):
                if not lost:
                    lost = not self._send(output, sent)
            elif isinstance(output, SendBlob):
                if not lost:
                    lost = not self._send_blob(output)
            else:
                try:
                    self._do_locally(output)
                except (LogError, OSError) as error:
                    self.store_failed(error)
                    break
                tickets.append(output.ticket)
        return tickets

    def _do_locally(self, output: LocalOutput) -> None:
        store, spans = self._store, self._spans
        match output:
            case AppendLocally():
                timing = store.append(output.lane, output.epoch, output.batches)
                if timing.append_us:  # Otherwise they wait in memory.
                    spans.append.add(timing.append_us * 1000)
            case FlushLocally():
                timing = store.flush(output.lane)
                spans.append.add(timing.append_us * 1000)
                spans.fsync.add(timing.sync_us * 1000)
            case CutLocally():
                store.cut(output.lane, output.llsn_end)
            case RecordLocally():
                begin = perf_counter_ns()
                store.record(output.epoch)
                spans.epoch_write.add(perf_counter_ns() - begin)
            case SetBoundaryLocally():
                store.set_boundary(output.version)

    # -- inside: replicas ---------------------------------------------------------------------

    def _send(self, output: Send, sent: list[Sent]) -> bool:
        """Send a request; False if the replica is lost."""
        begin = perf_counter_ns()
        sent.append(Sent(begin, output.message))
        try:
            data = [batch.data for batch in output.batches]
            self._replicas.send(output.replica, output.lane, output.message, data)
        except LogError as error:
            self._lose(output.replica, error)
            return False
        if isinstance(output.message, LogEntryWrite):
            self._spans.send.add(perf_counter_ns() - begin)
        return True

    def _send_blob(self, output: SendBlob) -> bool:
        """Send a BLOB; False if the replica is lost, or the BLOB is."""
        begin = perf_counter_ns()
        try:
            with self._store.blobs.open(output.blob) as reader:
                taken = self._send_parts(output.replica, output.lane, reader)
        except LogError as error:
            self.store_failed(error)
            return False
        if taken:
            self._spans.blob.add(perf_counter_ns() - begin)
        return taken

    def _send_parts(self, replica: int, lane: int, reader: BlobReader) -> bool:
        """Send each part while the one before is on its way; False if the replica is lost."""
        is_first = True
        for message, part in parts_of(reader):
            try:
                self._replicas.send(replica, lane, message, [part])
            except LogError as error:
                self._lose(replica, error)
                return False
            if not is_first and not self._part_is_taken(replica, lane):
                return False
            is_first = False
        return self._part_is_taken(replica, lane)

    def _part_is_taken(self, replica: int, lane: int) -> bool:
        try:
            answer = self._replicas.receive(replica, lane, self._replicas.ack_deadline())
        except LogError as error:
            self._lose(replica, error)
            return False
        if isinstance(answer, Ack):
            return True
        with self._lock:
            self._master.answered(replica, lane, answer)
            self._look()
        self._hang_up_if_failed()
        return False

    def _receive(
        self, lane: int, waits: tuple[int, ...], sent: list[Sent]
    ) -> list[tuple[int, Answer]]:
        """The answers that are awaited on a lane, in their order; fewer if a replica is lost."""
        answers: list[tuple[int, Answer]] = []
        deadline = self._replicas.ack_deadline()
        for replica, request in zip(waits, sent, strict=True):
            try:
                answer = self._replicas.receive(replica, lane, deadline)
            except LogError as error:
                self._lose(replica, error)
                break
            answers.append((replica, answer))
            if isinstance(answer, Ack):
                self._measure(request, answer)
        return answers

    def _measure(self, request: Sent, answer: Ack) -> None:
        """Spans of a request that made the replica write entries, or sync them."""
        message, spans = request.message, self._spans
        if isinstance(message, LogEntryWrite):
            spans.round_trip.add(perf_counter_ns() - request.begin_ns)
            spans.remote_append.add(answer.append_us * 1000)
            if message.flush:
                spans.remote_fsync.add(answer.sync_us * 1000)
        elif isinstance(message, LogChannelFlush):
            spans.remote_fsync.add(answer.sync_us * 1000)

    def _lose(self, replica: int, error: LogError) -> None:
        with self._lock:
            self._master.failed(replica, f"{self._replicas.name(replica)}: {error}")
            self._look()
        self._replicas.shut_down()  # Y4, and threads that wait for others are told.

    def _hang_up_if_failed(self) -> None:
        if self._master.failure is not None:
            self._replicas.shut_down()

    # -- inside: telling ----------------------------------------------------------------------

    def _look(self) -> None:
        """Under the lock, after each change: wake whoever has to know."""
        notices = self._master.notices()
        if notices:
            self._notices.extend(notices)
        if notices or self._master.failure is not None or self._master.is_ended:
            self._told.notify_all()
            self._wake_control()
        elif self._control_waits and not self._master.is_idle(CONTROL):
            self._wake_control()

    def _wake_control(self) -> None:
        self._work.notify()

    def _deliver(self, deliver: Callable[[Notice], None]) -> None:
        while self._notices:
            deliver(self._notices.popleft())

    def _failure(self) -> BaseException | None:
        return self._torn or self._master.failure

    def _is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._stopping or self._failure() is not None

    def _raise_unreached(self, text: str) -> NoReturn:
        """Why somebody waited in vain."""
        self.check_sound()
        if self._stopping:
            raise LogClosed("the datastore was closed meanwhile")
        raise DeadlineExceeded(text)

    def _tear(self, error: BaseException) -> None:
        """Y3: nobody can tell what the other side has now."""
        with self._lock:
            self._torn = self._torn or error
            self._told.notify_all()
            self._wake_control()
        self._replicas.shut_down()

    def _check_sound(self) -> None:
        if self._torn is not None:
            raise StorageFailed(
                f"the datastore has stopped in the middle of a write ({self._torn!r}): "
                "close it and open it again"
            ) from self._torn
        if self._master.failure is not None:
            # Without what it gathered when it was raised before, which would only ever grow.
            raise self._master.failure.with_traceback(None)


def _has_record(outputs: list[MasterOutput]) -> bool:
    return any(isinstance(output, RecordLocally) for output in outputs)
