"""Messages between replicas as bytes: what goes in comes out, and damage is noticed."""

from __future__ import annotations

import tracemalloc
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.replica_samples import (
    BATCHES,
    CONTEXT,
    SAMPLES,
    SOURCE,
    STREAM,
    TARGET,
    entry,
)
from tidelog.core.replica.entries import GlsnRun
from tidelog.core.replica.messages import (
    AddEntriesRequest,
    AddEntriesResponse,
    BetweenReplicas,
    CutsResponse,
    FenceRequest,
    Message,
    SyncEntriesRequest,
    SyncRequest,
)
from tidelog.errors import BadFrame, BatchTooLarge, CorruptData
from tidelog.formats.replica_messages import (
    Payload,
    awaits_disk,
    decode_carried,
    decode_replica_message,
    encode_replica_message,
    is_for_leader,
)
from tidelog.limits import (
    ATTACHMENT_BYTES_MAX,
    BATCH_BODY_BYTES_MAX,
    CARRIED_BATCHES_MAX,
    KIB,
    MESSAGE_BYTES_MAX,
)
from tidelog.types import Llsn, NodeId, StreamId, Term

names = [type(message).__name__ for message in SAMPLES]
every_sample = pytest.mark.parametrize("message", SAMPLES, ids=names)


def decode(payload: Payload) -> Message:
    return decode_replica_message(payload.message, b"".join(payload.attachment))


def add_entries(**fields: object) -> AddEntriesRequest:
    (message,) = (one for one in SAMPLES if isinstance(one, AddEntriesRequest))
    return replace(message, **fields)


# -- there and back ------------------------------------------------------------------------------


def test_there_is_a_sample_of_each_message() -> None:
    assert {type(message) for message in SAMPLES} == set(get_args(Message))


@every_sample
def test_a_message_comes_back_as_it_was(message: Message) -> None:
    assert decode(encode_replica_message(message)) == message


@every_sample
def test_what_is_attached_may_lie_in_a_buffer(message: Message) -> None:
    payload = encode_replica_message(message)
    buffer = bytearray(b"".join(payload.attachment))
    decoded = decode_replica_message(memoryview(payload.message), memoryview(buffer))
    buffer[:] = bytes(len(buffer))  # The buffer is used again for the next frame.
    assert decoded == message


def test_the_data_of_batches_is_attached_as_it_is() -> None:
    """No byte of it is copied on its way out, and none is in the message."""
    payload = encode_replica_message(add_entries())
    data = [batch.data for batch in BATCHES if batch.data]
    assert all(one is other for one, other in zip(payload.attachment, data, strict=True))
    assert data[1] not in payload.message


def test_a_message_has_always_the_same_bytes() -> None:
    message = AddEntriesResponse(NodeId(2), NodeId(1), StreamId(70), Term(9), Llsn(14))
    assert encode_replica_message(message).message.hex() == "9596cc8902014609" + "0e90000000"


@given(
    st.lists(st.binary(max_size=50), max_size=5),
    st.lists(st.tuples(*[st.integers(0, (1 << 64) - 1)] * 3), max_size=5),
    st.binary(max_size=50),
)
def test_entries_runs_and_state_come_back(
    data: list[bytes], runs: list[tuple[int, int, int]], state: bytes
) -> None:
    batches = tuple(replace(BATCHES[0], data=one) for one in data)
    rows = tuple(GlsnRun(Llsn(llsn), glsn, length) for llsn, glsn, length in runs)
    (sample,) = (one for one in SAMPLES if isinstance(one, SyncEntriesRequest))
    message = replace(sample, batches=batches, runs=rows, state=state, context=None)
    assert decode(encode_replica_message(message)) == message


# -- damage --------------------------------------------------------------------------------------


@every_sample
def test_every_flipped_bit_behind_the_batches_is_noticed(message: Message) -> None:
    """P2.  What becomes of flipped bits in batches: ``test_sessions`` of the storage node."""
    payload = encode_replica_message(message)
    attachment = bytearray(b"".join(payload.attachment))
    begin = sum(len(batch.data) for batch in getattr(message, "batches", ()))
    for place in range(8 * begin, 8 * len(attachment)):
        attachment[place // 8] ^= 1 << place % 8
        with pytest.raises(CorruptData):
            decode_replica_message(payload.message, attachment)
        attachment[place // 8] ^= 1 << place % 8


@every_sample
def test_a_message_that_is_cut_off_is_no_message(message: Message) -> None:
    payload = encode_replica_message(message)
    attachment = b"".join(payload.attachment)
    for end in range(len(payload.message)):
        with pytest.raises(BadFrame):
            decode_replica_message(payload.message[:end], attachment)
    if attachment:
        with pytest.raises(BadFrame):
            decode_replica_message(payload.message, attachment[:-1])
    with pytest.raises(BadFrame):
        decode_replica_message(payload.message, attachment + b"x")


@given(st.data())
def test_damaged_messages_are_messages_or_bad_frames(data: st.DataObject) -> None:
    payload = encode_replica_message(data.draw(st.sampled_from(SAMPLES)))
    attachment = b"".join(payload.attachment)
    damaged = bytearray(payload.message)
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(damaged)))
        end = min(begin + data.draw(st.integers(0, 8)), len(damaged))
        damaged[begin:end] = data.draw(st.binary(max_size=8))
    try:
        message = decode_replica_message(bytes(damaged), attachment)
    except (BadFrame, CorruptData):
        return
    assert decode(encode_replica_message(message)) == message


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 64) - 1),
        st.text(max_size=5),
        st.binary(max_size=10),
    ),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=6,
)


@settings(max_examples=50)
@given(
    st.integers(120, 160),
    st.lists(anything, max_size=8),
    st.lists(anything, max_size=4),
    st.binary(max_size=30),
)
def test_made_up_messages_are_messages_or_bad_frames(
    tag: int, fields: list[object], rest: list[object], attachment: bytes
) -> None:
    data = msgspec.msgpack.encode([[tag, *fields], *rest])
    try:
        message = decode_replica_message(data, attachment)
    except (BadFrame, CorruptData):
        return
    assert decode(encode_replica_message(message)) == message


# -- what a hostile peer may try -----------------------------------------------------------------


def envelope(message: Message, *rest: object) -> bytes:
    return msgspec.msgpack.encode([message, *rest])


def head(size: int) -> list[object]:
    return [size, 9, 11, 1, 0, 0, False]


@pytest.mark.parametrize(
    ("data", "attachment"),
    [
        (envelope(add_entries()), b""),
        (envelope(add_entries(batches=()), [], 1), bytes(24)),
        (envelope(add_entries(batches=()), [], 0, 5), b"state"),
        (envelope(SyncRequest(SOURCE, TARGET, STREAM, Term(1)), [head(1)]), b"x"),
        (
            envelope(
                CutsResponse(SOURCE, TARGET, STREAM, Term(1), Llsn(1), Llsn(1), (), CONTEXT),
                [head(1)],
            ),
            b"x",
        ),
        (envelope(add_entries(batches=()), [[*head(1), "more"]]), b"x"),
        (envelope(add_entries(batches=()), [], 0, 0, 0, "more"), b""),
    ],
    ids=["data in place", "runs", "state", "batches", "batches and cuts", "longer head", "longer"],
)
def test_parts_where_none_belong_are_refused(data: bytes, attachment: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_replica_message(data, attachment)


@pytest.mark.parametrize("size", [-1, BATCH_BODY_BYTES_MAX + 1, 1 << 63])
def test_the_size_of_a_batch_is_bounded_before_it_is_used(size: int) -> None:
    with pytest.raises(BadFrame):
        decode_replica_message(envelope(add_entries(batches=()), [head(size)]), b"")


@pytest.mark.parametrize("place", [1, 2], ids=["runs", "state"])
@pytest.mark.parametrize("size", [-1, ATTACHMENT_BYTES_MAX + 1])
def test_the_other_sizes_are_bounded_before_they_are_used(place: int, size: int) -> None:
    (message,) = (one for one in SAMPLES if isinstance(one, SyncEntriesRequest))
    bare = replace(message, batches=(), runs=(), state=b"")
    rest: list[object] = [[], 0, 0]
    rest[place] = size
    with pytest.raises(BadFrame):
        decode_replica_message(envelope(bare, *rest), b"")


def test_a_million_empty_batches_are_refused_in_bounded_memory() -> None:
    heads = [head(0)] * (CARRIED_BATCHES_MAX + 1)
    data = envelope(add_entries(batches=()), heads)
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            decode_replica_message(data, b"")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * KIB


def test_announced_elements_that_do_not_come_cost_nothing() -> None:
    data = envelope(add_entries(batches=()))[:-1] + b"\xdd\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            decode_replica_message(data, b"")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * KIB


def test_a_message_that_no_frame_can_hold_is_refused_where_it_is_made() -> None:
    terms = tuple((Term(1 << 40), Llsn(1 << 40)) for _ in range(MESSAGE_BYTES_MAX // 19 + 1))
    message = next(one for one in SAMPLES if type(one).__name__ == "SyncInitRequest")
    with pytest.raises(BatchTooLarge):
        encode_replica_message(replace(message, terms=terms))
    (parts,) = (one for one in SAMPLES if isinstance(one, SyncEntriesRequest))
    with pytest.raises(BatchTooLarge):
        encode_replica_message(replace(parts, state=bytes(ATTACHMENT_BYTES_MAX)))
    with pytest.raises(BatchTooLarge):
        encode_replica_message(add_entries(batches=BATCHES[1:2] * (CARRIED_BATCHES_MAX + 1)))


# -- between nodes -------------------------------------------------------------------------------


@every_sample
def test_only_words_between_replicas_are_carried(message: Message) -> None:
    payload = encode_replica_message(message)
    attachment = b"".join(payload.attachment)
    try:
        carried = decode_carried(
            payload.message, attachment, source=SOURCE, target=TARGET, stream=STREAM
        )
    except BadFrame:
        assert not isinstance(message, BetweenReplicas)
    else:
        assert isinstance(message, BetweenReplicas)
        assert carried == message


@pytest.mark.parametrize(
    ("source", "target", "stream"), [(3, 1, 70), (2, 3, 70), (2, 1, 71), (1, 2, 70)]
)
def test_a_node_cannot_speak_for_another_one_or_on_another_channel(
    source: int, target: int, stream: int
) -> None:
    payload = encode_replica_message(SyncRequest(SOURCE, TARGET, STREAM, Term(1)))
    with pytest.raises(BadFrame, match="P4"):
        decode_carried(
            payload.message,
            b"",
            source=NodeId(source),
            target=NodeId(target),
            stream=StreamId(stream),
        )


def test_what_brings_entries_belongs_to_an_epoch_and_what_answers_goes_with_its_answer() -> None:
    carried = {type(one).__name__ for one in SAMPLES if isinstance(one, BetweenReplicas)}
    epochs = {type(one).__name__ for one in SAMPLES if awaits_disk(one)}
    answers = {type(one).__name__ for one in SAMPLES if is_for_leader(one)}
    assert epochs == {"AddEntriesRequest", "SyncEntriesRequest"}
    assert epochs | answers <= carried
    assert carried - epochs - answers == {
        "TruncateRequest",
        "SyncInitRequest",
        "CutsRequest",
        "CutsResponse",
    }


def test_a_control_batch_without_data_is_carried() -> None:
    message = add_entries(batches=(BATCHES[1],), previous=entry(8, 12))
    payload = encode_replica_message(message)
    assert payload.attachment == ()
    assert decode(payload) == message


def test_a_fence_is_not_for_a_node_to_carry() -> None:
    payload = encode_replica_message(FenceRequest(SOURCE, TARGET, STREAM, Term(1), True))
    with pytest.raises(BadFrame, match="FenceRequest"):
        decode_carried(payload.message, b"", source=SOURCE, target=TARGET, stream=STREAM)
