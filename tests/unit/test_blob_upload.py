"""What is put for a BLOB, and when."""

from __future__ import annotations

import pytest

from tidelog.errors import BadEntry, DeadlineExceeded
from tidelog.formats.topic_blob import (
    TOPIC_BLOB_END,
    BlobDescription,
    BlobState,
    decode_description,
    part_key,
)
from tidelog.interface.blobs import upload as upload_module
from tidelog.interface.blobs.upload import Upload
from tidelog.invariants import InvariantViolation
from tidelog.limits import BLOB_PART_BYTES, BLOB_PAUSE_SECONDS

FULL = bytes(BLOB_PART_BYTES)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def announced(upload: Upload) -> BlobDescription | None:
    news = upload.announcement()
    return None if news is None else decode_description(upload.blob, news)


@pytest.mark.parametrize("size", [None, 1, 40 * BLOB_PART_BYTES])
def test_every_part_is_announced_before_it_is_put(size: int | None) -> None:
    """Also those of a source that turned out to be longer than it said."""
    upload, count, news = Upload(size), 0, 0
    for number in range(100):
        if (told := announced(upload)) is not None:
            assert told.state is BlobState.UPLOADING
            count, news = told.parts, news + 1
        key, _ = upload.part(FULL)
        assert number < count
        assert key == part_key(upload.blob, number)
    assert news < 10


def test_a_blob_of_known_size_is_announced_once() -> None:
    upload = Upload(100 * BLOB_PART_BYTES)
    told = [announced(upload)]
    for _ in range(100):
        upload.part(FULL)
        if upload.size < 100 * BLOB_PART_BYTES:
            told.append(announced(upload))
    assert told[0] == BlobDescription(upload.blob, 100)
    assert told[1:] == [None] * 99


def test_a_slow_upload_says_that_it_goes_on() -> None:
    clock = Clock()
    upload = Upload(10 * BLOB_PART_BYTES, clock=clock)
    for _ in range(10):
        assert announced(upload) is not None
        upload.part(FULL)
        clock.now += BLOB_PAUSE_SECONDS / 2
    assert decode_description(upload.blob, upload.description()).state is BlobState.COMPLETE


def test_an_upload_that_stood_still_too_long_is_not_gone_on_with() -> None:
    clock = Clock()
    upload = Upload(10 * BLOB_PART_BYTES, clock=clock)
    upload.announcement()
    upload.part(b"x")
    clock.now += BLOB_PAUSE_SECONDS + 1
    with pytest.raises(DeadlineExceeded):
        upload.announcement()
    with pytest.raises(DeadlineExceeded):
        upload.description()


def test_a_blob_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_module, "BLOB_BYTES_END", BLOB_PART_BYTES + 10)
    upload = Upload()
    upload.part(FULL)
    with pytest.raises(BadEntry):
        upload.part(b"x" * 10)
    upload.part(b"x" * 9)
    assert upload.size == BLOB_PART_BYTES + 9


def test_nothing_follows_a_part_that_is_not_full() -> None:
    upload = Upload()
    upload.part(b"x")
    with pytest.raises(InvariantViolation, match="U3"):
        upload.part(b"x")


def test_ids_fit_into_a_long_and_differ() -> None:
    found = {Upload().blob for _ in range(100)}
    assert len(found) == 100
    assert all(0 < blob < TOPIC_BLOB_END for blob in found)
