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
from typing import NoReturn, TypeVar

from tidelog.core.session.master import Master
from tidelog.core.session.messages import Answer, GcBoundarySwitch
from tidelog.core.session.output import (
    CONTROL,
    Durability,
    MasterOutput,
    Notice,
    RecordLocally,
    Send,
    SendBlob,
    SetBoundaryLocally,
)
from tidelog.datastore.epoch_store import EpochStore
from tidelog.datastore.lane_requests import LaneRequests, Sent
from tidelog.datastore.local_steps import LocalSteps
from tidelog.datastore.replicas import Replicas
from tidelog.datastore.spans import Spans
from tidelog.errors import DeadlineExceeded, LogClosed, LogError, StorageFailed

T = TypeVar("T")


class Lanes:
    """One master, its store and its replicas.  Thread-safe."""

    def __init__(self, master: Master, store: EpochStore, replicas: Replicas, spans: Spans) -> None:
        self._master = master
        self._replicas = replicas
        self._spans = spans
        self._local = LocalSteps(store, spans)
        self._requests = LaneRequests(replicas, store.blobs, spans, self)
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
        answers = self._requests.receive(lane, waits, sent)
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
                    lost = not self._requests.send(output, sent)
            elif isinstance(output, SendBlob):
                if not lost:
                    lost = not self._requests.send_blob(output)
            else:
                try:
                    self._local.carry_out(output)
                except (LogError, OSError) as error:
                    self.store_failed(error)
                    break
                tickets.append(output.ticket)
        return tickets

    # -- inside: replicas ---------------------------------------------------------------------

    def lose(self, replica: int, error: LogError) -> None:
        """A replica cannot be reached any more."""
        with self._lock:
            self._master.failed(replica, f"{self._replicas.name(replica)}: {error}")
            self._look()
        self._replicas.shut_down()  # Y4, and threads that wait for others are told.

    def refused(self, replica: int, lane: int, answer: Answer) -> None:
        """A replica did not take a part of a BLOB."""
        with self._lock:
            self._master.answered(replica, lane, answer)
            self._look()
        self._hang_up_if_failed()

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
