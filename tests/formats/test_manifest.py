"""The manifest file."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.formats.flips import check_damage, damaged, golden
from tidelog.core.replica.commit_context import NONE, CommitContext
from tidelog.core.replica.entries import EntryId
from tidelog.core.replica.output import HardState
from tidelog.errors import CorruptData, UnsupportedVersion
from tidelog.formats.envelope import seal
from tidelog.formats.manifest import (
    Manifest,
    ProducerState,
    ReplicaManifest,
    StreamManifest,
    StreamState,
    TopicManifest,
    TruncationLimit,
    decode_manifest,
    encode_manifest,
    fit_producers,
)
from tidelog.invariants import InvariantViolation
from tidelog.limits import MANIFEST_PRODUCERS_MAX, PRODUCER_WINDOW, PRODUCERS_PER_STREAM_MAX
from tidelog.types import Llsn, Term

STATE = StreamState(
    context=CommitContext(version=9, high_watermark=70, glsn_begin=61, llsn_begin=30, length=10),
    trim_llsn_end=5,
    trim_glsn_end=11,
    boundary=2**100 + 17,
    producers=(ProducerState(77, 3, ((2, 20, 5), (3, 25, 15))), ProducerState(78, 1)),
)
EXAMPLE = Manifest(
    log_id=bytes(range(16)),
    hash_seed=2**64 - 1,
    topics=(
        TopicManifest(1, "orders", (1, 2), 2, "explicit"),
        TopicManifest(2, "größe", (), 0, "log"),
    ),
    streams=(
        StreamManifest(1, 1, 4, STATE, (TruncationLimit(3, 40),), 6, 38),
        StreamManifest(
            2,
            1,
            replica=ReplicaManifest(
                hard_state=HardState(Term(7), is_complete=False, had=EntryId(Term(6), Llsn(90))),
                terms=((Term(3), Llsn(1)), (Term(6), Llsn(80))),
                filled_index=60,
                generation=2,
            ),
        ),
    ),
    wal_file=12,
    wal_sequence=3456,
    next_topic=3,
    next_stream=3,
)

naturals = st.integers(0, 2**64 - 1)
states = st.builds(
    StreamState,
    context=st.just(NONE) | st.just(STATE.context),
    trim_llsn_end=st.integers(1, 2**64 - 1),
    trim_glsn_end=st.integers(1, 2**64 - 1),
    boundary=st.integers(0, 2**128 - 1),
    producers=st.lists(
        st.builds(
            ProducerState,
            naturals,
            naturals,
            st.lists(st.tuples(naturals, naturals, naturals), max_size=PRODUCER_WINDOW).map(tuple),
        ),
        max_size=3,
        unique_by=lambda producer: producer.producer,
    ).map(tuple),
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    names = draw(st.lists(st.text(min_size=1, max_size=9), max_size=3, unique=True))
    topics = tuple(
        TopicManifest(
            number,
            name,
            tuple(draw(st.sets(naturals, max_size=3))),
            draw(naturals),
            draw(st.sampled_from(["log", "explicit"])),
        )
        for number, name in enumerate(names, 1)
    )
    streams = tuple(
        StreamManifest(
            number,
            draw(naturals),
            draw(naturals),
            draw(states),
            tuple(draw(st.lists(st.builds(TruncationLimit, naturals, naturals), max_size=2))),
            draw(naturals),
            draw(naturals),
        )
        for number in range(1, 1 + draw(st.integers(0, 3)))
    )
    return Manifest(
        log_id=draw(st.binary(min_size=16, max_size=16)),
        hash_seed=draw(naturals),
        topics=topics,
        streams=streams,
        wal_file=draw(naturals),
        wal_sequence=draw(naturals),
        next_topic=len(topics) + 1,
        next_stream=len(streams) + 1,
    )


@given(manifests())
@settings(max_examples=60)
def test_a_manifest_comes_back(manifest: Manifest) -> None:
    data = encode_manifest(manifest)
    assert decode_manifest(data) == decode_manifest(memoryview(data)) == manifest


def test_all_damage_is_noticed() -> None:
    data = encode_manifest(EXAMPLE)
    assert check_damage(data, decode_manifest) == sum(1 for _ in damaged(data))


@given(st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    for attempt in (data, seal(b"TLMF", 1, data)):
        with pytest.raises(CorruptData):
            decode_manifest(attempt)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
def test_a_body_with_a_good_checksum_but_other_bytes_is_refused_or_whole(
    changes: list[tuple[int, int]],
) -> None:
    body = bytearray(golden("manifest.bin")[24:])
    for place, byte in changes:
        body[place % len(body)] = byte
    try:
        found = decode_manifest(seal(b"TLMF", 1, bytes(body)))
    except CorruptData:
        return
    assert decode_manifest(encode_manifest(found)) == found


def test_a_claim_of_very_many_streams_costs_no_memory() -> None:
    body = msgspec.msgpack.encode([[bytes(16), 1, 1, 1, 1, []]])[:-1] + b"\xdd\xff\xff\xff\xff"
    with pytest.raises(CorruptData):
        decode_manifest(seal(b"TLMF", 1, body))


@pytest.mark.parametrize(
    "bad",
    [
        replace(EXAMPLE, log_id=b"short"),
        replace(EXAMPLE, topics=EXAMPLE.topics[:1] * 2),
        replace(EXAMPLE, topics=(replace(EXAMPLE.topics[0], name=""),)),
        replace(EXAMPLE, topics=(replace(EXAMPLE.topics[0], name="x" * 201),)),
        replace(EXAMPLE, topics=(replace(EXAMPLE.topics[0], streams=(1, 1)),)),
        replace(EXAMPLE, topics=(replace(EXAMPLE.topics[0], versions="other"),)),
        replace(EXAMPLE, streams=EXAMPLE.streams[:1] * 2),
        replace(EXAMPLE, next_topic=2),
        replace(EXAMPLE, next_stream=2),
        replace(
            EXAMPLE, streams=(replace(EXAMPLE.streams[0], state=replace(STATE, boundary=2**128)),)
        ),
        replace(
            EXAMPLE, streams=(replace(EXAMPLE.streams[0], state=replace(STATE, trim_llsn_end=0)),)
        ),
        replace(
            EXAMPLE,
            streams=(
                replace(
                    EXAMPLE.streams[0],
                    state=replace(STATE, producers=(ProducerState(1, 9, ((1, 1, 1),) * 9),)),
                ),
            ),
        ),
        replace(
            EXAMPLE,
            streams=(
                replace(
                    EXAMPLE.streams[0],
                    state=replace(STATE, producers=(ProducerState(1, 9),) * 2),
                ),
            ),
        ),
    ],
)
def test_a_manifest_that_contradicts_itself_is_never_written(bad: Manifest) -> None:
    with pytest.raises(InvariantViolation):
        encode_manifest(bad)


def test_a_newer_version_is_told_apart() -> None:
    with pytest.raises(UnsupportedVersion, match="manifest: format version 2"):
        decode_manifest(seal(b"TLMF", 2, b""))


def test_the_golden_manifest_is_read_and_written_the_same() -> None:
    assert encode_manifest(EXAMPLE) == golden("manifest.bin")
    assert decode_manifest(golden("manifest.bin")) == EXAMPLE


def test_of_too_many_producers_each_stream_keeps_its_last_ones() -> None:
    full = tuple([ProducerState(n, 1) for n in range(1, PRODUCERS_PER_STREAM_MAX + 1)])
    streams = MANIFEST_PRODUCERS_MAX // len(full)
    crowd = [StreamManifest(n, 1, state=StreamState(producers=full)) for n in range(streams)]
    few = StreamManifest(streams, 1, state=replace(STATE, producers=full[:3]))

    assert fit_producers(crowd) == tuple(crowd), "there is just room for them"

    *kept, last = fit_producers([*crowd, few])
    assert last == few, "a stream with few producers loses none"
    assert {stream.state.producers for stream in kept} == {full[-len(full) // 2 :]}
    assert sum(len(stream.state.producers) for stream in (*kept, last)) <= MANIFEST_PRODUCERS_MAX
