"""BLOBs of a topic, embedded and served."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

import tidelog
from tests.client.served import node
from tests.client.uploads import (
    LONG,
    LONG_PARTS,
    Source,
    delete_in_part,
    descriptions_of,
    parts_left,
    parts_of,
    tear,
)
from tidelog.errors import (
    BadEntry,
    BadOption,
    CorruptData,
    DiskFull,
    PartlyAppended,
    UnknownBlob,
)
from tidelog.formats.topic_blob import (
    BlobDescription,
    BlobState,
    blob_key,
    encode_description,
    encode_part,
    part_key,
)
from tidelog.interface.blobs.figures import BlobCollection
from tidelog.interface.blobs.upload import PARTS_UNDER_WAY
from tidelog.interface.handles import LogHandle
from tidelog.limits import BLOB_PART_BYTES, ENTRY_BLOBS_MAX

SIZES = (0, 1, BLOB_PART_BYTES - 1, BLOB_PART_BYTES, BLOB_PART_BYTES + 1, len(LONG))


@pytest.fixture(params=["embedded", "served"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LogHandle]:
    with ExitStack() as stack:
        if request.param == "embedded":
            yield stack.enter_context(tidelog.open(tmp_path / "log", streams=2))
        else:
            running = stack.enter_context(node(tmp_path / "log"))
            yield stack.enter_context(
                tidelog.connect(running.url, topic="wide", create=True, streams=2)
            )


# -- putting and reading ---------------------------------------------------------------------------


def test_blobs_of_all_sizes_come_back(log: LogHandle, tmp_path: Path) -> None:
    blobs = [log.put_blob(LONG[:size]) for size in SIZES]
    file = tmp_path / "file"
    file.write_bytes(LONG)
    blobs += [log.put_blob(file), log.put_blob(io.BytesIO(LONG))]
    for blob, size in zip(blobs, (*SIZES, len(LONG), len(LONG)), strict=True):
        assert log.blob_size(blob) == size
        with log.open_blob(blob) as reader:
            assert (reader.blob, reader.size) == (blob, size)
            assert reader.read() == LONG[:size]
    assert [info.blob for info in log.list_blobs()] == blobs
    assert [info.size for info in log.list_blobs()] == [*SIZES, len(LONG), len(LONG)]


def test_a_blob_is_read_like_a_file(log: LogHandle) -> None:
    chance = random.Random(1)
    reader, model = log.open_blob(log.put_blob(LONG)), io.BytesIO(LONG)
    for _ in range(60):
        whence = chance.choice([io.SEEK_SET, io.SEEK_END])
        offset = chance.randrange(len(LONG) + 10) - (len(LONG) if whence else 0)
        size = chance.randrange(100)
        assert reader.seek(offset, whence) == model.seek(offset, whence)
        # At the end of a part a raw file may bring less.
        found = reader.read(size)
        assert found is not None
        assert model.read(len(found)) == found
        assert len(found) == size or reader.tell() % BLOB_PART_BYTES == 0 or not model.read(1)
    with pytest.raises(BadOption):
        reader.seek(-1)
    reader.seek(0)
    copy = io.BytesIO()
    shutil.copyfileobj(io.BufferedReader(reader), copy)
    assert copy.getvalue() == LONG
    assert reader.closed
    with pytest.raises(ValueError, match="closed"):
        reader.read(1)


def test_entries_tell_which_blobs_are_theirs(log: LogHandle) -> None:
    blob = log.put_blob(b"scan")
    log.append(b"plain")
    log.append(b"with one", blobs=(blob,))
    log.append(b"numbered", blobs=(blob, 5), producer="p", sequence=1)
    log.append(b"by key", key=b"k", blobs=(blob,))
    with log.appender() as appender:
        assert appender.append(b"unwaited", blobs=(blob,)).result().count == 1
    found = {record.value: record.blobs for record in log.read()}
    assert found == {
        b"plain": (),
        b"with one": (blob,),
        b"numbered": (blob, 5),
        b"by key": (blob,),
        b"unwaited": (blob,),
    }
    columns = [batch.to_pydict() for batch in log.read_arrow(columns=["value", "blobs"])]
    rows = {v: tuple(b) for part in columns for v, b in zip(*part.values(), strict=True)}
    assert rows == found
    with pytest.raises(BadEntry):
        log.append(b"too many", blobs=tuple(range(ENTRY_BLOBS_MAX + 1)))


def test_few_parts_are_in_memory_while_a_blob_is_put(log: LogHandle) -> None:
    ahead: list[int] = []

    def at_part(read: int) -> None:
        ahead.append(read - parts_of(log).high_watermark)

    log.put_blob(Source(LONG * 3, at_part))
    assert len(ahead) > 15
    assert max(ahead) <= PARTS_UNDER_WAY


def test_many_threads_put_blobs_at_once(log: LogHandle) -> None:
    with ThreadPoolExecutor(4) as pool:
        blobs = list(pool.map(lambda size: log.put_blob(LONG[:size]), range(0, 2_000_000, 99_991)))
        assert len({*blobs}) == len(blobs) == 21
        found = list(pool.map(lambda blob: log.open_blob(blob).read(), blobs))
    assert found == [LONG[:size] for size in range(0, 2_000_000, 99_991)]


def test_progress_is_told_while_a_blob_is_put(log: LogHandle) -> None:
    told: list[int] = []
    log.put_blob(LONG, progress=told.append)
    assert told == [*range(BLOB_PART_BYTES, len(LONG), BLOB_PART_BYTES), len(LONG)]


# -- what is wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("blob", [0, -1, 1, 1 << 63, 1 << 64, "7"])
def test_an_id_that_no_blob_has_is_told(log: LogHandle, blob: int) -> None:
    for _ in range(2):  # Without any BLOB, and with one.
        for call in (log.open_blob, log.blob_size, log.delete_blob):
            with pytest.raises(UnknownBlob):
                call(blob)
        log.put_blob(b"another")


def test_a_topic_without_blobs_has_nothing_to_list_or_collect(log: LogHandle) -> None:
    assert list(log.list_blobs()) == []
    assert log.collect_blobs(0) == BlobCollection()
    with pytest.raises(BadOption):
        log.collect_blobs(-1)
    with pytest.raises(BadOption):
        log.put_blob(Path("nowhere"))
    assert log.topics() == sorted({"default", log.name}), "nothing was made for it"


def test_the_topics_of_blobs_have_no_blobs(log: LogHandle) -> None:
    log.put_blob(b"")
    with pytest.raises(BadOption):
        descriptions_of(log).put_blob(b"")


def test_a_flipped_byte_is_noticed(log: LogHandle) -> None:
    blob = log.put_blob(LONG)
    key = part_key(blob, 1)
    found = parts_of(log).get(key)
    assert found is not None
    value = bytearray(found.value)
    value[1000] ^= 1
    parts_of(log).put(key, bytes(value))
    with log.open_blob(blob) as reader:
        assert reader.read(BLOB_PART_BYTES) == LONG[:BLOB_PART_BYTES]
        with pytest.raises(CorruptData):
            reader.read(1)
        reader.seek(2 * BLOB_PART_BYTES)
        assert reader.read() == LONG[2 * BLOB_PART_BYTES :]


def test_a_sound_part_with_other_bytes_is_noticed_by_who_reads_all(log: LogHandle) -> None:
    blob = log.put_blob(LONG)
    parts_of(log).put(part_key(blob, 2), encode_part(blob, 2, bytes(BLOB_PART_BYTES)))
    with log.open_blob(blob) as reader:
        for _ in range(2):  # Trying again does not help.
            with pytest.raises(CorruptData):
                reader.readall()


def test_a_description_that_is_damaged_is_told_and_left_alone(log: LogHandle) -> None:
    blob = log.put_blob(LONG)
    described = encode_description(BlobDescription(blob, 1, BlobState.COMPLETE, 7))
    descriptions_of(log).put(blob_key(blob), described[:-1] + b"\7")
    for call in (log.open_blob, log.blob_size, log.delete_blob):
        with pytest.raises(CorruptData):
            call(blob)
    descriptions_of(log).put(b"mine", b"what a user put there")
    assert list(log.list_blobs()) == []
    assert log.collect_blobs(0).unreadable == 2
    assert parts_left(log, blob) == LONG_PARTS


# -- deleting and collecting -----------------------------------------------------------------------


def test_a_deleted_blob_is_gone(log: LogHandle) -> None:
    gone, kept = log.put_blob(LONG), log.put_blob(LONG)
    with log.open_blob(gone) as reader:
        reader.read(1)
        log.delete_blob(gone)
        with pytest.raises(UnknownBlob):
            reader.readall()
    for call in (log.open_blob, log.blob_size, log.delete_blob):
        with pytest.raises(UnknownBlob):
            call(gone)
    assert parts_left(log, gone) == []
    assert log.open_blob(kept).read() == LONG
    assert [info.blob for info in log.list_blobs()] == [kept]


def test_a_deletion_that_broke_off_is_gone_on_with(log: LogHandle) -> None:
    """By whoever deletes the BLOB again, or by a collection; meanwhile nobody sees it."""
    again, collected = log.put_blob(LONG), log.put_blob(LONG)
    log.append(b"a", blobs=(again, collected))
    for blob in (again, collected):
        delete_in_part(log, blob)
        assert parts_left(log, blob) == LONG_PARTS
        with pytest.raises(UnknownBlob):
            log.open_blob(blob)
    assert [info.is_complete for info in log.list_blobs()] == [False, False]
    log.delete_blob(again)
    assert parts_left(log, again) == []
    assert log.collect_blobs(0).torn == 1
    assert parts_left(log, collected) == []
    assert list(log.list_blobs()) == []


def test_a_deletion_that_fails_half_way_is_not_told_as_refused(log: LogHandle) -> None:
    blob = log.put_blob(LONG)

    def full(_: object) -> None:
        raise DiskFull("no room")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.interface.blobs.calls.deletes_of", full)
        with pytest.raises(PartlyAppended, match="no room; delete it again") as caught:
            log.delete_blob(blob)
    assert not caught.value.definite
    with pytest.raises(UnknownBlob):
        log.open_blob(blob)
    log.delete_blob(blob)
    assert parts_left(log, blob) == []


def test_an_upload_that_broke_off_is_not_seen_and_is_collected(log: LogHandle) -> None:
    torn = tear(log)
    assert parts_left(log, torn) == [0, 1, 2]
    for call in (log.open_blob, log.blob_size, log.delete_blob):
        with pytest.raises(UnknownBlob):
            call(torn)
    assert log.collect_blobs(3600).torn == 0, "it may go on"
    assert log.collect_blobs(0).torn == 1
    assert parts_left(log, torn) == []
    assert list(log.list_blobs()) == []
    assert log.collect_blobs(0) == BlobCollection()


def test_collection_keeps_all_that_entries_refer_to(log: LogHandle) -> None:
    names = ("append", "put", "appender", "nobody", "nobody too")
    blobs = {name: log.put_blob(name.encode()) for name in names}
    log.append(b"a", blobs=(blobs["append"],))
    log.put(b"k", b"p", blobs=(1, blobs["put"]))
    with log.appender() as appender:
        appender.append(b"b", blobs=(blobs["appender"],))
    young = log.collect_blobs()
    assert (young.deleted, young.kept) == (0, 5)
    told: list[BlobCollection] = []
    done = log.collect_blobs(0, progress=told.append)
    assert (done.deleted, done.kept, done.entries) == (2, 3, 3)
    assert done.bytes == len("nobody" + "nobody too")
    assert told[-1] == done
    for name in names[:3]:
        assert log.open_blob(blobs[name]).read() == name.encode()
    assert {info.blob for info in log.list_blobs()} == {blobs[name] for name in names[:3]}


def test_a_blob_goes_when_the_last_entry_that_refers_to_it_is_gone(log: LogHandle) -> None:
    trimmed, replaced = log.put_blob(b"trimmed"), log.put_blob(b"replaced")
    receipt = log.append(b"a", blobs=(trimmed,))
    log.put(b"k", b"old", blobs=(replaced,))
    log.put(b"k", b"new")
    assert log.collect_blobs(0).deleted == 0, "readers see both entries"
    log.trim(receipt.glsn_end)
    log.compact(full=True)
    assert log.collect_blobs(0).deleted == 2
    assert list(log.list_blobs()) == []


def test_entries_that_come_during_a_collection_are_looked_at(log: LogHandle) -> None:
    blob, unused = log.put_blob(b"late"), log.put_blob(b"unused")
    log.append_batch([b"x"] * 1000)

    def late(figures: BlobCollection) -> None:
        if figures.entries == 1000:
            log.append(b"late", blobs=(blob,))

    done = log.collect_blobs(0, progress=late)
    assert (done.deleted, done.entries) == (1, 1001)
    assert log.open_blob(blob).read() == b"late"
    with pytest.raises(UnknownBlob):
        log.open_blob(unused)


def test_what_was_deleted_leaves_the_disk(log: LogHandle) -> None:
    kept, gone = log.put_blob(LONG), log.put_blob(LONG)
    log.append(b"a", blobs=(kept,))
    log.collect_blobs(0)
    parts = parts_of(log)
    parts.compact(full=True)
    assert sum(len(record.value) for record in parts.read()) < 1.1 * len(LONG)
    assert log.open_blob(kept).read() == LONG
    with pytest.raises(UnknownBlob):
        log.open_blob(gone)
