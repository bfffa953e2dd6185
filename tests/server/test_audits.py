"""What an audit asks of a served node, over a real socket; and what nobody should ask."""

from __future__ import annotations

import msgspec
import pytest

from tests.server.raw import TOPIC, RawClient, run, serving
from tidelog.client.pages import unpacked
from tidelog.formats.audit_messages import (
    AuditRequest,
    CheckFiles,
    FilesChecked,
    ListReplicas,
    ReadReplica,
    ReplicaPage,
)
from tidelog.formats.messages import Done, Figures, Ping, Refused
from tidelog.interface.audit_figures import AuditedNode
from tidelog.testing.disk import SimDisk

MOST = (1 << 63) - 1


async def read(client: RawClient, request: ReadReplica) -> tuple[ReplicaPage, list[bytes]]:
    answer, attachment = await client.answer(client.send(request))
    assert isinstance(answer, ReplicaPage), answer
    slices = unpacked(answer.pieces, attachment)
    found = [e.value for _, piece in slices for e in piece.batch.entries(piece.begin, piece.end)]
    return answer, found


def test_a_node_shows_its_own_entries_by_llsn() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for number in range(3):
                await client.append(b"%d.a" % number, b"%d.b" % number)
            page, found = await read(client, ReadReplica(1, 2, 6))
            assert (page.llsn_begin, page.llsn_end, page.damage) == (2, 6, "")
            assert found == [b"0.b", b"1.a", b"1.b", b"2.a"]
            page, found = await read(client, ReadReplica(1, 1, MOST, 1))
            assert (page.llsn_end, found) == (3, [b"0.a", b"0.b"]), "one batch at least"

    run(main())


def test_a_node_tells_what_it_holds() -> None:
    async def main() -> None:
        async with serving(streams=2) as served, served.client() as client:
            await client.append(b"a", b"b", stream=2)
            answer = await client.ask(ListReplicas())
            assert isinstance(answer, Figures)
            told = msgspec.json.decode(answer.json, type=AuditedNode)
            assert told.log_id == served.engine.node.manifest.log_id.hex()
            mine = [one for one in told.replicas if one.topic == TOPIC]
            assert [(one.stream, one.ordered_end_llsn) for one in mine] == [(1, 1), (2, 3)]

    run(main())


def test_a_flipped_byte_of_the_wal_is_an_answer_and_no_error() -> None:
    disk = SimDisk()

    async def main() -> None:
        async with serving(disk) as served, served.client() as client:
            await client.append(b"a" * 100)
            await client.append(b"b" * 100)
            answer = await client.ask(CheckFiles(0))
            assert isinstance(answer, FilesChecked)
            assert [one.problem for one in answer.files] == [""]
            [path] = [path for path in disk.files() if path.endswith(".wal")]
            disk.flip_bit(path, 250, 1)
            answer = await client.ask(CheckFiles(0))
            assert isinstance(answer, FilesChecked)
            assert "checksum" in answer.files[0].problem
            await client.append(b"appends go on")

    run(main())


@pytest.mark.parametrize(
    "request_",
    [
        ReadReplica(99, 1, 2),
        ReadReplica(0, 1, 2),
        CheckFiles(99),
        CheckFiles(MOST, MOST),
    ],
    ids=["stream", "no stream", "files", "far files"],
)
def test_a_stream_that_is_not_there_is_refused(request_: AuditRequest) -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            answer = await client.ask(request_)
            assert isinstance(answer, Refused)
            assert answer.error == "UnknownStream"
            assert isinstance(await client.ask(Ping()), Done)

    run(main())


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [(0, 0, (1, 1)), (0, MOST, (1, 3)), (5, 2, (5, 5)), (MOST, MOST, (MOST, MOST)), (2, 2, (2, 2))],
)
def test_any_range_has_an_answer(begin: int, end: int, expected: tuple[int, int]) -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            await client.append(b"a", b"b")
            page, _ = await read(client, ReadReplica(1, begin, end, MOST))
            assert (page.llsn_begin, page.llsn_end) == expected

    run(main())


def test_files_beyond_the_last_are_none() -> None:
    async def main() -> None:
        async with serving() as served, served.client() as client:
            for stream in (0, 1):
                answer = await client.ask(CheckFiles(stream, MOST))
                assert answer == FilesChecked((), 0)

    run(main())
