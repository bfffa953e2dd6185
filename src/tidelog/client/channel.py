"""The way to a log: requests over one connection to one of its nodes, and what becomes of them.

C1  a request that is harmless to repeat is repeated until its deadline: after a lost connection, or
    when a node says that it cannot answer now
C2  a definite error is told only if no try of the request may have had an effect
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NoReturn

from tidelog.client.connecting import Connecting
from tidelog.client.link import Link, Reply
from tidelog.client.outgoing import checked_message
from tidelog.client.refusals import error_of
from tidelog.client.retries import WITHOUT_EFFECT, in_doubt, is_worth_repeating
from tidelog.errors import (
    BadOption,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    LogClosed,
    LogError,
    Unreachable,
)
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Refused, Request
from tidelog.net.endpoint import Endpoint

_UNREAD_MAX: Final = 3
"""Connections that a node may end because it cannot read something, while a request is on them.

Nobody knows which request it was; the one that it was must not end all connections to come.
"""


class Channel(Connecting):
    """All calls belong into one event loop."""

    _unrepeatable = 0
    """How many requests are under way that must not be repeated."""

    def beside(self, endpoint: Endpoint) -> Channel:
        """Another channel of the same client, to one node; BadOption if TLS is a difference."""
        if endpoint.tls != self._has_tls:
            with_or_without = "without" if self._has_tls else "with"
            raise BadOption(f"{endpoint} is {with_or_without} TLS, unlike the node that named it")
        return Channel(
            (endpoint,),
            client=self._client,
            log_id=self._log_id,
            # Where this one fails, the first connection can do the same.
            reconnect=replace(self.reconnect, keep_alive=self._keep_alive_beside()),
            patience=self._patience,
            dialer=self._dialer,
        )

    async def ask(
        self,
        request: Request,
        *,
        seconds: float,
        attachments: Sequence[Buffer] = (),
        repeat: bool = True,
        patient: bool = True,
        waits: bool = False,
        doubt: LogError | None = None,
        telling: tuple[type[LogError], ...] = (),
    ) -> Reply:
        """The answer to a request; raises what it was refused with.

        ``repeat``: also after a lost connection.  ``patient``: also after a refusal that another
        try may change.  ``waits``: it may take its time at the end of a log.  ``doubt``: what
        befell a try that the caller made before.  ``telling``: refusals that tell the caller what
        became of earlier tries.
        """
        message = checked_message(request, attachments)
        deadline = self._loop.time() + seconds
        lost = doubt
        refusals = unread = 0
        while True:
            link = await self._link_before(deadline, lost)
            await self._reserve(link, deadline, lost, waits=waits)
            self._unrepeatable += not repeat
            try:
                reply = await self._ask_once(
                    link, type(request).__name__, message, attachments, deadline, seconds
                )
            finally:
                self._unrepeatable -= not repeat
                if waits:
                    link.waits.release()
            if reply is None:
                lost = None if isinstance(request, WITHOUT_EFFECT) else self.trouble
                unread += link.was_not_read
                if not repeat or unread == _UNREAD_MAX:
                    raise ConnectionLost(
                        f"{self.trouble}; whether it took effect is not known: look before you "
                        "try again"
                    )
                continue
            if not isinstance(reply.answer, Refused):
                return reply
            error = error_of(reply.answer)
            if isinstance(error, LogClosed):
                # The node is stopping and did nothing: the next one, or this one once it is back.
                await self._leave_stopping(link, error, patient=patient)
                continue
            if isinstance(error, telling):
                raise error
            if not patient or not is_worth_repeating(request, error, repeat=repeat):
                _refuse(error, lost)
            refusals += 1
            await self._before_next_try(link, error, refusals, deadline, lost)
            if not error.definite and not isinstance(request, WITHOUT_EFFECT):
                lost = error

    async def _before_next_try(
        self, link: Link, error: LogError, refusals: int, deadline: float, lost: LogError | None
    ) -> None:
        """Pause, if there is time for another try; else raise what is true."""
        pause = self.reconnect.retry_pause(refusals)
        if self._loop.time() + pause >= deadline:
            _refuse(error, lost)
        await asyncio.sleep(pause)
        is_current = self.link is link and self.has_others
        # It cannot reach the others: one of them can, perhaps.  But to hang up on a request that
        # must not be repeated would leave somebody in doubt.
        if isinstance(error, Unreachable) and is_current and not self._unrepeatable:
            await self.leave(link, error)

    async def _leave_stopping(self, link: Link, error: LogError, *, patient: bool) -> None:
        """Go on with the next node; who is not patient knows better whom to ask."""
        stopping = Unreachable(f"the node is stopping: {error}")
        await self.leave(link, stopping)
        if not patient:
            raise stopping

    async def _reserve(
        self, link: Link, deadline: float, lost: LogError | None, *, waits: bool
    ) -> None:
        """Take a place for a request, and one for those that wait if it may."""
        try:
            async with asyncio.timeout_at(deadline):
                await (link.reserve_waiting() if waits else link.reserve())
        except TimeoutError:
            if lost is None:
                raise Busy("too many requests are under way: nothing was sent") from None
            raise ConnectionLost(f"{lost}; it may have taken effect") from None

    async def _ask_once(
        self,
        link: Link,
        name: str,
        message: bytes,
        attachments: Sequence[Buffer],
        deadline: float,
        seconds: float,
    ) -> Reply | None:
        """The answer; None if the connection broke before it came."""
        answered: asyncio.Future[Reply | None] = self._loop.create_future()
        try:
            number = link.post_encoded(
                message,
                partial(_set, answered),
                attachments=attachments,
                timeout_ms=timeout_ms(deadline - self._loop.time()),
            )
        except BaseException:
            link.release()
            raise
        try:
            async with asyncio.timeout_at(deadline):
                return await answered
        except TimeoutError:
            raise DeadlineExceeded(
                f"{name} had no answer within {seconds:g} s; it may still take effect"
            ) from None
        finally:
            link.cancel(number)  # Does nothing if it was answered.

    async def _link_before(self, deadline: float, lost: LogError | None) -> Link:
        """The connection, or the next one; raises what is true when the deadline passes."""
        self._check_open(lost)
        if self.link is not None:
            return self.link
        try:
            async with asyncio.timeout_at(deadline):
                return await self.next_link()
        except TimeoutError:
            if lost is None:
                raise Unreachable(f"{self.trouble}; nothing was sent") from None
            raise ConnectionLost(f"{lost}; it may have taken effect") from None
        except LogError as error:
            if lost is None:
                raise
            raise in_doubt(lost, error) from error

    def _check_open(self, lost: LogError | None) -> None:
        if not self.closed:
            return
        if lost is not None:
            raise ConnectionLost("the client was closed; the request may have taken effect")
        raise LogClosed("the client is closed: connect again")


def timeout_ms(seconds: float) -> int:
    """What a frame says of a deadline; 0 would stand for none."""
    return min(max(int(seconds * 1000), 1), (1 << 32) - 1)


def _refuse(error: LogError, lost: LogError | None) -> NoReturn:
    """Raise a refusal, or what is true of it after a try that may have had an effect."""
    if lost is None or not error.definite:
        raise error
    raise in_doubt(lost, error) from error


def _set(future: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not future.done():
        future.set_result(reply)
