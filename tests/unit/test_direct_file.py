"""Files that are written once: past the page cache where that can be, and as ever where not."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tidelog.limits import KIB
from tidelog.storage.direct_file import PIECE_BYTES, DirectFile
from tidelog.storage.os_vfs import OsVfs


def opened_directly(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened to be written past the page cache."""
    paths: list[str] = []
    init = DirectFile.__init__

    def note(self: DirectFile, path: str) -> None:
        paths.append(path)
        init(self, path)

    monkeypatch.setattr(DirectFile, "__init__", note)
    return paths


def pieces(count: int) -> list[bytes | memoryview]:
    """Random parts whose ends fall anywhere, and which are whole pieces together."""
    data = os.urandom(count * PIECE_BYTES)
    cuts = [0, 5, PIECE_BYTES - 1, PIECE_BYTES + 7, len(data) - 3, len(data)]
    return [memoryview(data)[begin:end] for begin, end in pairwise(cuts)]


def test_a_file_that_is_written_once_goes_past_the_page_cache_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = opened_directly(monkeypatch)
    path, head, tail = str(tmp_path / "f"), pieces(3), os.urandom(1000)
    file = OsVfs().create(path, once=True)
    file.write_at(0, head)
    file.write_at(3 * PIECE_BYTES, [tail])
    file.sync()
    assert file.size() == 3 * PIECE_BYTES + len(tail)
    file.close()
    file.close()
    assert Path(path).read_bytes() == b"".join((*head, tail))
    assert paths == [path], "the tail is no whole piece, and needs no descriptor of its own"


def test_what_is_no_whole_piece_takes_the_usual_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = opened_directly(monkeypatch)
    data = os.urandom(PIECE_BYTES)
    with closing(OsVfs().create(str(tmp_path / "once"), once=True)) as file:
        file.write_at(1, [data])
        file.write_at(0, [data[:-1]])
    with closing(OsVfs().create(str(tmp_path / "usual"))) as file:
        file.write_at(0, [data])
    assert paths == []


@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_a_file_system_without_direct_writes_is_no_error(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(os, call)

    def refuse(*arguments: Any, **options: Any) -> Any:
        if call == "open" and not arguments[1] & os.O_DIRECT:
            return whole(*arguments, **options)
        raise OSError(errno.EINVAL, "not here")

    data = os.urandom(2 * PIECE_BYTES)
    with closing(OsVfs().create(str(tmp_path / "f"), once=True)) as file:
        monkeypatch.setattr(os, call, refuse)
        file.write_at(0, [data])
        monkeypatch.undo()
        file.sync()
        assert file.read_at(0, len(data)) == data


def test_short_direct_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, data = os.pwrite, os.urandom(2 * PIECE_BYTES)

    def at_most_a_block(descriptor: int, buffer: memoryview, offset: int) -> int:
        return whole(descriptor, buffer[: 64 * KIB], offset)

    monkeypatch.setattr(os, "pwrite", at_most_a_block)
    with closing(OsVfs().create(str(tmp_path / "f"), once=True)) as file:
        file.write_at(0, [data])
        assert file.read_at(0, len(data)) == data


@pytest.mark.parametrize(("outcome", "code"), [(0, errno.EIO), (errno.ENOSPC, errno.ENOSPC)])
def test_a_direct_write_that_fails_is_an_error(
    outcome: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> int:
        if outcome:
            raise OSError(outcome, "broken")
        return 0

    monkeypatch.setattr(os, "pwrite", fail)
    with (
        closing(OsVfs().create(str(tmp_path / "f"), once=True)) as file,
        pytest.raises(OSError, match="broken" if outcome else "took no bytes") as caught,
    ):
        file.write_at(0, [bytes(PIECE_BYTES)])
    assert caught.value.errno == code
