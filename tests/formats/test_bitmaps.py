"""Bitmaps from arrays of LLSNs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from tidelog.formats.bitmaps import bitmap_of
from tidelog.formats.live_index import LiveIndex, decode_live_index, encode_live_index


@given(st.lists(st.integers(1, 40) | st.integers(2**40, 2**40 + 9) | st.integers(1, 2**63)))
def test_a_bitmap_has_the_llsns_of_its_array(llsns: list[int]) -> None:
    """However they lie: as a range, close together, far apart."""
    for chosen in (llsns, [llsn for llsn in llsns if llsn <= 40]):
        assert bitmap_of(np.array(chosen, dtype=np.uint64)) == BitMap64(chosen)


@given(
    st.lists(st.tuples(st.integers(1, 6000), st.integers(1, 4000)), min_size=1, max_size=4),
    st.sampled_from([0, 2**63]),
    st.randoms(use_true_random=False),
)
def test_a_bitmap_has_the_llsns_of_long_ranges_in_any_order(
    ranges: list[tuple[int, int]], base: int, chance: Random
) -> None:
    chosen = list(
        {base + llsn for first, length in ranges for llsn in range(first, first + length)}
    )
    chance.shuffle(chosen)
    assert bitmap_of(np.array(chosen, dtype=np.uint64)) == BitMap64(sorted(chosen))


@pytest.mark.parametrize("first", [1, 65_536, 2**32 - 3, 2**32 - 65_536])
@pytest.mark.parametrize("count", [1, 4096, 4097, 65_535, 65_536, 65_537, 140_000])
@pytest.mark.parametrize("step", [1, 3])
def test_a_bitmap_made_of_bytes_is_one_that_pyroaring_would_make(
    first: int, count: int, step: int
) -> None:
    """At the borders of containers, of their kinds, and of the upper halves."""
    llsns = np.arange(first, first + count * step, step, dtype=np.uint64)
    made = bitmap_of(llsns)
    assert made == BitMap64(range(first, first + count * step, step))
    assert len(made) == count
    live_index = LiveIndex(term=1, index=int(llsns[-1]), live=made)
    assert decode_live_index(encode_live_index(live_index)) == live_index
