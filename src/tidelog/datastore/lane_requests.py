"""Sends the requests of a lane to its replicas, and takes their answers.

The thread that runs the lane does so; what goes wrong is told to the owner of all lanes, once.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import NamedTuple, Protocol

from tidelog.core.session.messages import (
    Ack,
    Answer,
    LogChannelFlush,
    LogEntryWrite,
    Request,
)
from tidelog.core.session.output import Send, SendBlob
from tidelog.datastore.blob_parts import parts_of
from tidelog.datastore.replicas import Replicas
from tidelog.datastore.spans import Spans
from tidelog.errors import LogError
from tidelog.storage.blob_reader import BlobReader
from tidelog.storage.blob_store import BlobStore


class Sent(NamedTuple):
    """A request under way."""

    begin_ns: int
    message: Request


class RequestOwner(Protocol):
    """Whom requests tell what went wrong."""

    def lose(self, replica: int, error: LogError) -> None:
        """A replica cannot be reached any more."""

    def refused(self, replica: int, lane: int, answer: Answer) -> None:
        """A replica did not take a part of a BLOB."""

    def store_failed(self, error: BaseException) -> None:
        """A BLOB of this side cannot be read."""


class LaneRequests:
    """Of all lanes; threads that run different ones may use it at once."""

    def __init__(
        self, replicas: Replicas, blobs: BlobStore, spans: Spans, owner: RequestOwner
    ) -> None:
        self._replicas = replicas
        self._blobs = blobs
        self._spans = spans
        self._owner = owner

    def send(self, output: Send, sent: list[Sent]) -> bool:
        """Send a request; False if the replica is lost."""
        begin = perf_counter_ns()
        sent.append(Sent(begin, output.message))
        try:
            data = [batch.data for batch in output.batches]
            self._replicas.send(output.replica, output.lane, output.message, data)
        except LogError as error:
            self._owner.lose(output.replica, error)
            return False
        if isinstance(output.message, LogEntryWrite):
            self._spans.send.add(perf_counter_ns() - begin)
        return True

    def send_blob(self, output: SendBlob) -> bool:
        """Send a BLOB; False if the replica is lost, or the BLOB is."""
        begin = perf_counter_ns()
        try:
            with self._blobs.open(output.blob) as reader:
                taken = self._send_parts(output.replica, output.lane, reader)
        except LogError as error:
            self._owner.store_failed(error)
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
                self._owner.lose(replica, error)
                return False
            if not is_first and not self._part_is_taken(replica, lane):
                return False
            is_first = False
        return self._part_is_taken(replica, lane)

    def _part_is_taken(self, replica: int, lane: int) -> bool:
        try:
            answer = self._replicas.receive(replica, lane, self._replicas.ack_deadline())
        except LogError as error:
            self._owner.lose(replica, error)
            return False
        if isinstance(answer, Ack):
            return True
        self._owner.refused(replica, lane, answer)
        return False

    def receive(
        self, lane: int, waits: tuple[int, ...], sent: list[Sent]
    ) -> list[tuple[int, Answer]]:
        """The answers that are awaited on a lane, in their order; fewer if a replica is lost."""
        answers: list[tuple[int, Answer]] = []
        deadline = self._replicas.ack_deadline()
        for replica, request in zip(waits, sent, strict=True):
            try:
                answer = self._replicas.receive(replica, lane, deadline)
            except LogError as error:
                self._owner.lose(replica, error)
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
