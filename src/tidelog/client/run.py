"""One lane on its way: over one connection at a time, to whoever leads its log stream.

D1  unanswered shipments are on one connection: another one is taken when all of them were answered,
    or when nobody listens to the answers any more
D2  after a refusal that another try may change, or a lost connection, nothing new is sent before
    all that is unanswered is sent again, in order
D3  a node that answers nothing for a while is left if another node says that somebody else leads
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, time_ns
from typing import Final

from tidelog.client.channel import Channel, timeout_ms
from tidelog.client.lanes import Lane
from tidelog.client.link import Link, Reply
from tidelog.client.pool import Pool
from tidelog.client.refusals import error_of
from tidelog.client.shipments import Loose, Shipment
from tidelog.errors import (
    BadFrame,
    Busy,
    ConnectionLost,
    LeaderLost,
    LogClosed,
    LogError,
    NotLeader,
    OutOfOrder,
    Sealed,
    StorageFailed,
    Unreachable,
)
from tidelog.formats.batch import seal_batch
from tidelog.formats.checksum import Buffer
from tidelog.formats.message_fields import WireReceipt
from tidelog.formats.messages import AppendBatches, Receipts, Refused
from tidelog.interface.appends import Part
from tidelog.interface.records import Ack, Receipt
from tidelog.types import FIRST_LLSN, FIRST_TERM

SETTLE_SECONDS: Final = 0.3
"""How long answers may take that are still to come when something has to be sent again."""
STALL_SECONDS: Final = 1.5
"""How long a node may be silent before another one is asked who leads (D3)."""
_PASSING: Final = (NotLeader, OutOfOrder, LeaderLost, Busy, Unreachable, ConnectionLost)
"""Refusals that another try may change."""


class Run:
    """Made by the shipper; ``on_settled`` is told how many bytes of the lane were settled.

    ``on_turn`` is told before something is sent, so that what is gathered goes along.
    """

    def __init__(
        self,
        lane: Lane,
        pool: Pool,
        on_settled: Callable[[int], None],
        on_turn: Callable[[Run], None],
    ) -> None:
        self.lane: Final = lane
        lane.wake = self.schedule
        self._pool = pool
        self._on_settled = on_settled
        self._on_turn = on_turn
        self._loop = asyncio.get_running_loop()
        self._channel = pool.main
        self._posted: dict[int, int] = {}
        """The requests on the connection, by the sequences of their shipments (D1)."""
        self._scheduled = False
        self._hungry = False
        """Whether it waits for a place on the link."""
        self._failures = 0
        """Refusals since the last answer that was none."""
        self._pause: asyncio.TimerHandle | None = None
        """Set while nothing is sent (D2)."""
        self._settling = False
        """Whether the pause is over, and only answers are waited for."""
        self._watch: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._heard = 0.0
        """When the node gave its last sign, by the loop's clock."""
        self.gathering: Loose | None = None
        """What entries are added to; the lane has not got it yet."""
        self.trouble: LogError | None = None
        """Why nothing was appended since the last try."""

    def schedule(self) -> None:
        """Send at the end of this turn of the loop: what is appended until then goes along."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def uses(self, channel: Channel) -> bool:
        """Whether something is on its way over this channel."""
        return bool(self._posted) and self._channel is channel

    def close(self) -> None:
        for timer in (self._pause, self._watch):
            if timer is not None:
                timer.cancel()
        if self._looking is not None:
            self._looking.cancel()

    # -- sending ------------------------------------------------------------------------------

    def _pump(self) -> None:
        self._on_turn(self)
        self._scheduled = False
        if self._pause is not None or not self._take_way():
            return
        link = self._channel.link
        if link is None:
            self._channel.want()
            return
        while link.try_reserve():
            shipment = None if self._is_probing() else self.lane.next_shipment(time_ns() // 1000)
            if shipment is None:
                link.release()
                return
            self._send(link, shipment)
        if not self._hungry:
            self._hungry = True
            link.when_room(self._on_room)

    def _is_probing(self) -> bool:
        """After a refusal, one shipment goes first: the others would only be refused with it."""
        return self._failures > 0 and bool(self._posted)

    def _take_way(self) -> bool:
        """Choose the connection; False: first, answers have to come over the present one (D1)."""
        channel = self._pool.towards(self.lane.topic, self.lane.stream, self._failures)
        if channel is not self._channel:
            if self._posted:
                return False
            self._channel = channel
        return True

    def _on_room(self) -> None:
        self._hungry = False
        self.schedule()

    def _send(self, link: Link, shipment: Shipment) -> None:
        lane = self.lane
        if not self._posted:
            self._heard = self._loop.time()
        self._posted[shipment.sequence] = link.post(
            AppendBatches(
                lane.topic,
                tuple([part.stream for part in shipment.parts]),
                lane.producer,
                shipment.sequence,
                shipment.after,
                shipment.ack.value,
            ),
            partial(self._on_reply, link, shipment),
            attachments=attachments_of(shipment.parts),
            timeout_ms=timeout_ms(shipment.deadline - monotonic()),
        )
        if self._watch is None and self._pool.is_cluster:
            self._watch = self._loop.call_later(STALL_SECONDS, self._look)

    # -- what became of it --------------------------------------------------------------------

    def _on_reply(self, link: Link, shipment: Shipment, reply: Reply | None) -> None:
        if reply is None:
            return  # ``on_down`` has seen to it.
        del self._posted[shipment.sequence]
        self._heard = self._loop.time()
        answer = reply.answer
        if isinstance(answer, Receipts) and _fits(answer.receipts, shipment.parts):
            self._on_receipts(shipment, answer)
        elif not isinstance(answer, Refused):
            link.abort(BadFrame(f"a node answered an append with {type(answer).__name__}"))
            return
        elif answer.error == LogClosed.__name__:
            # The node is stopping and appended nothing: the next one, or this one once it is back.
            self.lane.put_off(shipment.sequence, is_certain=True)
            link.abort(Unreachable(f"the node is stopping: {answer.message}"))
            return
        else:
            self._on_refused(shipment, answer)
        if self._settling and not self._posted:
            self._send_again()
        self.schedule()

    def _on_receipts(self, shipment: Shipment, answer: Receipts) -> None:
        lane = self.lane
        self._failures = 0
        self.trouble = None
        self._pool.routes.led_by(lane.topic, lane.stream, answer.leader)
        for part in shipment.parts:
            self._pool.topics.note_open(lane.topic, part.stream)
        receipts = receipts_of(lane.topic, answer.receipts, shipment.ack)
        self._on_settled(lane.answered(shipment.sequence, receipts))

    def _on_refused(self, shipment: Shipment, answer: Refused) -> None:
        error = error_of(answer)
        is_single = len(shipment.parts) == 1  # Else nobody knows which log stream is meant.
        if isinstance(error, Sealed) and is_single:
            self._pool.topics.note_sealed(self.lane.topic, self.lane.stream)
        if not self._is_passing(error):
            self._on_settled(self.lane.refused(shipment.sequence, partial(error_of, answer)))
            return
        self.lane.put_off(shipment.sequence, is_certain=error.definite)
        self.trouble = error
        if isinstance(error, NotLeader):
            lane, routes = self.lane, self._pool.routes
            routes.not_led_by(lane.topic, lane.stream, self._channel.endpoint)
            routes.led_by(lane.topic, lane.stream, answer.leader if is_single else "")
        self._stop()

    def _is_passing(self, error: LogError) -> bool:
        """Whether another try may do better; a node whose disk failed has others beside it."""
        return isinstance(error, _PASSING) or (
            self._pool.is_cluster and isinstance(error, StorageFailed)
        )

    # -- once more, in order (D2) -------------------------------------------------------------

    def _stop(self) -> None:
        if self._pause is None:
            self._failures += 1
            seconds = self._pool.main.reconnect.retry_pause(self._failures)
            self._pause = self._loop.call_later(seconds, self._settle)

    def _settle(self) -> None:
        """The pause is over; let answers arrive that are on their way."""
        if not self._posted:
            self._send_again()
            return
        self._settling = True
        self._pause = self._loop.call_later(SETTLE_SECONDS, self._send_again)

    def _send_again(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = None
        self._settling = False
        link = self._channel.link
        posted, self._posted = self._posted, {}
        if link is not None:
            for number in posted.values():
                link.cancel(number)
        self.lane.send_again()
        self.schedule()

    def on_up(self) -> None:
        """There is a connection, perhaps a better one."""
        if not self.lane.idle:
            self.schedule()

    def on_down(self, channel: Channel) -> None:
        """A connection is gone; no answers will come over it."""
        if self._channel is not channel:
            return
        self._posted.clear()
        if self._settling:
            self._send_again()
            return
        self.lane.send_again()
        self.schedule()

    # -- silence (D3) -------------------------------------------------------------------------

    def _look(self) -> None:
        self._watch = None
        if not self._posted:
            return
        silent = self._loop.time() - self._heard
        if silent >= STALL_SECONDS and self._looking is None:
            self._looking = self._loop.create_task(self._look_elsewhere(), name="tidelog-look")
        self._watch = self._loop.call_later(
            max(STALL_SECONDS - silent, STALL_SECONDS / 2), self._look
        )

    async def _look_elsewhere(self) -> None:
        here, heard = self._channel, self._heard
        try:
            await self._pool.look_elsewhere(self.lane.topic, here)
        finally:
            self._looking = None
        leader = self._pool.routes.leader(self.lane.topic, self.lane.stream)
        is_silent = self._heard == heard and self.uses(here)
        if is_silent and leader is not None and leader != here.endpoint:
            self.trouble = Unreachable("the node is silent, and another one leads")
            self._send_again()


def attachments_of(parts: Sequence[Part]) -> list[Buffer]:
    """The batches of an append, back to back; the node gives them their places."""
    buffers: list[Buffer] = []
    for part in parts:
        header = seal_batch(part.body, stream=part.stream, term=FIRST_TERM, first_llsn=FIRST_LLSN)
        buffers += (header, part.body.data)
    return buffers


def receipts_of(topic: str, receipts: Sequence[WireReceipt], ack: Ack) -> list[Receipt]:
    """Receipts for what this client numbered itself: a repeated request is no duplicate."""
    return [Receipt(topic, r.stream, r.glsn, r.llsn, r.count, _level(r, ack)) for r in receipts]


def _level(receipt: WireReceipt, ack: Ack) -> Ack:
    """What was reached: who has a GLSN is ordered, whatever was waited for."""
    return Ack.ORDERED if receipt.glsn else ack


def _fits(receipts: tuple[WireReceipt, ...], parts: Sequence[Part]) -> bool:
    return [(r.stream, r.count) for r in receipts] == [(p.stream, p.body.count) for p in parts]
