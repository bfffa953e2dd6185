"""An audit's connection to one node: its own entries, and answers that no node should give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from tests.server.raw import batch_of
from tidelog.client.link import Reply
from tidelog.client.loop_thread import LoopThread
from tidelog.client.replica_reading import NodeConnection
from tidelog.client.session import Session
from tidelog.errors import BadFrame, CorruptData
from tidelog.formats.audit_messages import CheckedFile, CheckFiles, FilesChecked, ReplicaPage
from tidelog.formats.message_fields import PieceHeader
from tidelog.formats.messages import Answer, Done, Figures, Request

BATCH = batch_of(b"a", b"b")
PIECE = PieceHeader(1, 0, 2, len(BATCH), ((1, 1, 2),))


class ScriptedSession:
    """Gives answers one after the other, whatever is asked."""

    timeout = 1.0

    def __init__(self, answers: Sequence[tuple[Answer, bytes]]) -> None:
        self._answers = iter(answers)
        self.asked: list[Request] = []
        self.channel = self

    async def ask(self, request: Request, kind: Any = None, **options: Any) -> Any:
        self.asked.append(request)
        answer, attachment = next(self._answers)
        return Reply(answer, memoryview(attachment)) if kind is None else answer

    async def close(self) -> None:
        pass


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


def connection(
    thread: LoopThread, *answers: tuple[Answer, bytes]
) -> tuple[NodeConnection, ScriptedSession]:
    session = ScriptedSession(answers)
    return NodeConnection(cast("Session", session), thread), session


def test_a_page_is_unpacked(thread: LoopThread) -> None:
    node, _ = connection(thread, (ReplicaPage((PIECE,), 1, 3, 0), BATCH))
    page = node.page(1, 1, 9)
    [(stream, piece)] = page.slices
    assert (stream, list(piece.llsns()), list(piece.glsns())) == (1, [1, 2], [1, 2])


def placed(*runs: tuple[int, int, int]) -> PieceHeader:
    """Both entries of the batch, with these runs."""
    return PieceHeader(1, 0, 2, len(BATCH), runs)


@pytest.mark.parametrize(
    ("page", "attachment", "error"),
    [
        (ReplicaPage((), 2, 3, 0), b"", BadFrame),
        (ReplicaPage((), 1, 10, 0), b"", BadFrame),
        (ReplicaPage((), 1, 0, 0), b"", BadFrame),
        (ReplicaPage((PIECE,), 1, 3, 0), b"", CorruptData),
        (ReplicaPage((PIECE,), 1, 3, 0), BATCH[:-1] + b"\xff", CorruptData),
        (ReplicaPage((PieceHeader(1, 0, 3, len(BATCH), ()),), 1, 3, 0), BATCH, BadFrame),
        (ReplicaPage((PieceHeader(1, 0, 2, len(BATCH), ()),), 1, 3, 0), BATCH, CorruptData),
        (ReplicaPage((placed((1, 1, 1)),), 1, 3, 0), BATCH, CorruptData),
        (ReplicaPage((placed((2, 2, 1)),), 1, 3, 0), BATCH, CorruptData),
        (ReplicaPage((placed((2, 2, 9)),), 1, 3, 0), BATCH, CorruptData),
        (ReplicaPage((placed((1, 1, 1), (3, 3, 1)),), 1, 3, 0), BATCH, CorruptData),
        (Done(), b"", BadFrame),
    ],
    ids=[
        "begins elsewhere",
        "goes too far",
        "goes back",
        "no batch",
        "a flipped byte",
        "more entries than there are",
        "entries without GLSNs",
        "the last one without",
        "the first one without",
        "the first one without, and more behind",
        "one between two runs",
        "another answer",
    ],
)
def test_what_is_no_page_of_the_range_is_refused(
    thread: LoopThread, page: Answer, attachment: bytes, error: type[Exception]
) -> None:
    node, _ = connection(thread, (page, attachment))
    with pytest.raises(error):
        node.page(1, 1, 9)


def test_files_are_asked_for_until_there_are_no_more(thread: LoopThread) -> None:
    first, second = CheckedFile("a", 1), CheckedFile("b", 2, "torn")
    node, session = connection(
        thread, (FilesChecked((first,), 7), b""), (FilesChecked((second,), 0), b"")
    )
    assert list(node.check_files(3)) == [first, second]
    assert session.asked == [CheckFiles(3, 0), CheckFiles(3, 7)]


def test_a_node_that_never_ends_to_tell_of_files_is_left(thread: LoopThread) -> None:
    same = (FilesChecked((CheckedFile("a", 1),), 7), b"")
    node, session = connection(thread, same, same, same)
    assert len(list(node.check_files(3))) == 2
    assert len(session.asked) == 2


def test_facts_that_cannot_be_read_are_a_bad_frame(thread: LoopThread) -> None:
    node, _ = connection(thread, (Figures(b'{"node": "x"}'), b""))
    with pytest.raises(BadFrame):
        node.replicas()
