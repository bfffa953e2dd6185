"""Questions to other processes of the cluster, and their answers.

Invariants:
  Q1  an answer counts for the question of its number, from the node that was asked, once
  Q2  numbers begin with chance, so that an answer to an earlier life of this process counts nothing
"""

from __future__ import annotations

import asyncio
from secrets import randbits

from tidelog.client.refusals import error_of
from tidelog.errors import BadFrame, Unreachable
from tidelog.formats.admin_messages import AdminRequest
from tidelog.formats.cluster_messages import AskNode, ClusterMessage, NodeAnswer
from tidelog.formats.messages import Answer, Refused, decode_answer, encode_message
from tidelog.runtime.admin.parts import Mail
from tidelog.types import NodeId


class Asking:
    """Asks over the post, where anything may be lost."""

    def __init__(self, post: Mail) -> None:
        self._post = post
        self._next = randbits(47)
        self._waiting: dict[int, tuple[NodeId, asyncio.Future[Answer]]] = {}
        post.on((NodeAnswer,), self._on_answer)

    async def ask(
        self, target: NodeId, request: AdminRequest, *, seconds: float, repeat: bool = True
    ) -> Answer:
        """The answer of a node; raises what it refused with, Unreachable if it says nothing.

        ``repeat``: ask a second time at half the time, for what has no effect or the same twice.
        """
        self._next += 1
        number = self._next
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (target, answered)
        message = AskNode(number, encode_message(request))
        try:
            for share in (seconds / 2, seconds / 2) if repeat else (seconds,):
                self._post.send(target, message)
                done, _ = await asyncio.wait([answered], timeout=share)
                if done:
                    return _accepted(answered.result())
        finally:
            del self._waiting[number]
        raise Unreachable(f"node {target} does not answer within {seconds:g} s")

    def _on_answer(self, source: NodeId, message: ClusterMessage) -> None:
        if not isinstance(message, NodeAnswer):
            return
        target, answered = self._waiting.get(message.number, (None, None))
        if answered is None or target != source or answered.done():
            return  # Q1: late, repeated, or not from the one that was asked.
        try:
            answered.set_result(decode_answer(message.answer))
        except BadFrame as error:
            answered.set_exception(error)
            raise


def _accepted(answer: Answer) -> Answer:
    if isinstance(answer, Refused):
        raise error_of(answer)
    return answer
