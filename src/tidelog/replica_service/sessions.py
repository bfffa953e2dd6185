"""Drives the session core of a replica: what connections say goes in, what it wants is done.

D1  the core is told of things in the order in which they happened, one at a time
D2  a step of the store ends in ``done``, ``prepared`` or ``failed``, each ticket once
D3  batches are decoded before the core hears of them: nothing unsound is ever stored
D4  a broken invariant, of the core or of the store, ends the service: nothing may follow it; so
    does what the core asks of the disk and cannot be told
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from secrets import token_hex
from typing import Final, assert_never

from tidelog.core.session.messages import (
    Answer,
    BlobWrite,
    LogEntryWrite,
    Request,
    SessionBegin,
)
from tidelog.core.session.output import (
    CONTROL,
    ChannelBatch,
    Commit,
    DropBlob,
    Hang,
    Prepare,
    ReplicaOutput,
    Reply,
    SetBoundary,
    StoreOutput,
    Write,
    WriteBlob,
)
from tidelog.core.session.replica import ReplicaSessions
from tidelog.datastore.epoch_store import Timing
from tidelog.errors import BadFrame, CorruptData, LogError
from tidelog.formats.channel_batch import decode_channel_batches
from tidelog.invariants import InvariantViolation
from tidelog.limits import KIB
from tidelog.net.threads import WorkThreads
from tidelog.replica_service.counters import Counters
from tidelog.replica_service.peer import Peer
from tidelog.replica_service.replica_store import ReplicaStore
from tidelog.replica_service.store_work import ALONE, Step, StoreWork

_logger: Final = logging.getLogger(__name__)

_INLINE_BYTES: Final = 256 * KIB
"""Larger attachments are decoded in a thread: meanwhile others are served."""
_SECRET_BYTES: Final = 32


class Sessions:
    """Belongs to one event loop; the store must be open."""

    def __init__(
        self,
        store: ReplicaStore,
        work: StoreWork,
        aside: WorkThreads,
        counters: Counters,
        on_failure: Callable[[LogError], None],
    ) -> None:
        opened = store.store
        self.core = ReplicaSessions(
            configuration_id=None if opened is None else opened.configuration_id,
            epoch=0 if opened is None else opened.epoch,
            boundary=0 if opened is None else opened.boundary,
            blob_exists=store.has_blob,
            stamp=lambda: store.stamp,
        )
        self._store = store
        self._work = work
        self._aside = aside
        self._counters = counters
        self._on_failure = on_failure
        self._peers: dict[int, Peer] = {}
        self._words: deque[Callable[[], None]] = deque()
        """What the core is told now, and what it is told after that."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._compacting = False
        self._is_compaction_due = False
        """Whether the GC boundary was moved since the last compaction began."""

    # -- what connections say -----------------------------------------------------------------

    @property
    def channels(self) -> int:
        """How many log channels have a connection."""
        return sum(peer.channel is not None for peer in self._peers.values())

    def greeted(self, peer: Peer) -> None:
        self._peers[peer.number] = peer
        self._tell(partial(self.core.connected, peer.number))

    def lost(self, peer: Peer) -> None:
        """Also of those that were never greeted."""
        if self._peers.pop(peer.number, None) is not None:
            self._tell(partial(self.core.lost, peer.number))

    def undecodable(self, peer: Peer) -> None:
        self._tell(partial(self.core.undecodable, peer.number))

    async def stop(self) -> None:
        """Wait for all that works aside."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def request(self, peer: Peer, request: Request, attachment: memoryview) -> None:
        """BadFrame if bytes are attached to a message that has none."""
        self._counters.requests[type(request).__name__] += 1
        if isinstance(request, LogEntryWrite) and peer.channel is not None:
            self._decode(peer, peer.channel, request, attachment)
        elif isinstance(request, BlobWrite):
            self._received(peer, request, data=attachment)
        elif len(attachment):
            raise BadFrame(f"{type(request).__name__} came with {len(attachment)} bytes attached")
        else:
            self._received(peer, request)

    def _received(
        self,
        peer: Peer,
        request: Request,
        *,
        batches: tuple[ChannelBatch, ...] | None = (),
        data: memoryview | bytes = b"",
    ) -> None:
        secret = token_hex(_SECRET_BYTES) if isinstance(request, SessionBegin) else ""
        self._tell(
            partial(
                self.core.received,
                peer.number,
                request,
                fresh_secret=secret,
                batches=batches,
                data=data,
            )
        )

    # -- batches (D3) -------------------------------------------------------------------------

    def _decode(
        self, peer: Peer, channel: int, request: LogEntryWrite, attachment: memoryview
    ) -> None:
        decode = partial(_sound_batches, channel, request.epoch, attachment)
        if len(attachment) <= _INLINE_BYTES:
            self._received(peer, request, batches=decode())
            return
        self._start(self._decode_aside(peer, request, decode))

    async def _decode_aside(
        self,
        peer: Peer,
        request: LogEntryWrite,
        decode: Callable[[], tuple[ChannelBatch, ...] | None],
    ) -> None:
        batches = await self._aside.run(decode)
        if self._peers.get(peer.number) is peer:
            self._received(peer, request, batches=batches)

    # -- what the core wants ------------------------------------------------------------------

    def _tell(self, word: Callable[[], None]) -> None:
        """Tell the core something (D1), and do what it wants."""
        self._words.append(word)
        if len(self._words) > 1:
            return  # Something that the core wanted is done already: it hears of that next.
        try:
            while self._words:
                self._words[0]()
                for output in self.core.take():
                    self._carry_out(output)
                self._words.popleft()
        except (Exception, InvariantViolation) as error:
            self._words.clear()
            self._end(error)

    def _carry_out(self, output: ReplicaOutput) -> None:
        match output:
            case Reply():
                self._answer(output.connection, output.answer)
            case Hang():
                peer = self._peers.get(output.connection)
                if peer is not None:
                    peer.hang_up()
            case Prepare():
                self._work.add(Step(ALONE, partial(self._prepare, output)))
            case Write():
                self._write(output)
            case WriteBlob() | DropBlob():
                self._work.add(Step(output.channel, partial(self._run, output)))
            case Commit() | SetBoundary():
                is_brief = isinstance(output, Commit)
                self._work.add(Step(CONTROL, partial(self._run, output), is_brief))
            case _:
                assert_never(output)

    def _write(self, write: Write) -> None:
        """In a thread, unless it takes no time: entries that need not be durable yet."""
        if not write.flush and write.cut_to is None and self._work.is_free(write.channel):
            try:
                timing = self._store.append_at_once(write)
            except (Exception, InvariantViolation) as error:
                self._on_error(write.ticket, error)
                return
            if timing is not None:
                self._on_done(write, timing)
                return
        is_brief = sum(len(batch.data) for batch in write.batches) <= _INLINE_BYTES
        self._work.add(Step(write.channel, partial(self._run, write), is_brief))

    def _answer(self, connection: int, answer: Answer) -> None:
        peer = self._peers.get(connection)
        if peer is not None:
            peer.answer(answer)

    # -- in threads (D2) ----------------------------------------------------------------------

    def _prepare(self, output: Prepare) -> Callable[[], None]:
        try:
            ends = self._store.prepare(output)
        except (Exception, InvariantViolation) as error:
            return partial(self._on_error, output.ticket, error)
        return partial(self._tell, partial(self.core.prepared, output.ticket, ends))

    def _run(self, output: StoreOutput | DropBlob) -> Callable[[], None]:
        try:
            timing = self._store.carry_out(output)
        except (Exception, InvariantViolation) as error:
            ticket = None if isinstance(output, DropBlob) else output.ticket
            return partial(self._on_error, ticket, error)
        return partial(self._on_done, output, timing)

    # -- in the event loop again --------------------------------------------------------------

    def _on_done(self, output: StoreOutput | DropBlob, timing: Timing) -> None:
        self._count(output, timing)
        if isinstance(output, DropBlob):
            return
        append_us, sync_us = timing
        self._tell(partial(self.core.done, output.ticket, append_us=append_us, sync_us=sync_us))
        if isinstance(output, SetBoundary):
            # Whoever moved the boundary has its answer: group commits do not wait for this.
            self._is_compaction_due = True
            if not self._compacting:
                self._compacting = True
                self._start(self._compact_while_due())

    def _on_error(self, ticket: int | None, error: BaseException) -> None:
        if ticket is not None:
            self._tell(partial(self.core.failed, ticket, str(error)))
        self._judge(error)

    def _judge(self, error: BaseException) -> None:
        """End the service after an error that leaves the store in doubt."""
        failure = self._store.failure
        if failure is not None:
            self._on_failure(failure)
        elif isinstance(error, LogError) and error.definite:
            _logger.warning("a step of the store failed: %s", error)
        else:  # If it may still take effect, the core must not go on with what it knows.
            self._end(error)

    def _end(self, error: BaseException) -> None:
        """D4."""
        if not isinstance(error, LogError):
            _logger.error("the replica contradicts itself", exc_info=error)
            error = LogError(f"{type(error).__name__}: {error}")
        self._on_failure(error)

    # -- aside --------------------------------------------------------------------------------

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compact_while_due(self) -> None:
        while self._is_compaction_due:
            self._is_compaction_due = False
            await self._compact()
        self._compacting = False

    async def _compact(self) -> None:
        try:
            failures = await self._aside.run(self._store.compact)
        except (Exception, InvariantViolation) as error:
            self._counters.compaction_failures += 1
            self._judge(error)
        else:
            self._counters.compactions += 1
            self._counters.compaction_failures += len(failures)
            for failure in failures:
                _logger.warning("compaction: %s", failure)

    def _count(self, output: StoreOutput | DropBlob, timing: Timing) -> None:
        self._counters.count_time(timing.append_us, timing.sync_us)
        if isinstance(output, WriteBlob) and output.offset + len(output.data) == output.size:
            self._counters.blobs += 1


def _sound_batches(
    channel: int, epoch: int, attachment: memoryview
) -> tuple[ChannelBatch, ...] | None:
    """None if there is anything wrong with them."""
    try:
        return decode_channel_batches(channel, epoch, attachment)
    except CorruptData as error:
        _logger.warning("log channel %d: %s", channel, error)
        return None
