"""The hash by which keys are known, for many keys at once.  No state.

XXH3 with 128 bits, of the eight bytes of a storage id and the key behind them.  ``xxhash`` takes
one key at a time; of equally long keys numpy takes thousands, several times as fast, and other
threads run meanwhile.  The rules for up to 128 bytes are spelt out here for that: they are those
of the published algorithm, and a test holds the two together.

  X1  Both ways give the same hash, so nobody has to know which one was taken.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

U64: TypeAlias = NDArray[np.uint64]
U8: TypeAlias = NDArray[np.uint8]

PREFIX_BYTES: Final = 8
_HASHED_BYTES_MAX: Final = 128
"""What is longer follows other rules, and takes so long that a call for each is no matter."""
_FEW: Final = 64
_ROWS_AT_ONCE: Final = 32768
"""The columns of so many rows stay in the processor's cache, and take long enough that threads
which append get on meanwhile."""

_SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
        "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
        "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
        "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    ),
    dtype=np.uint64,
)
_PRIME_1: Final = np.uint64(0x9E3779B185EBCA87)
_PRIME_2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_4: Final = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_32: Final = np.uint64(0x85EBCA77 - 1)
_PRIME_MIX: Final = np.uint64(0x165667919E3779F9)
_HALF: Final = np.uint64(32)
_LOW_32: Final = np.uint64((1 << 32) - 1)


def hash_keys(keys: U8, storage: U64, seed: int) -> tuple[U64, U64]:
    """The high and low halves for each row of ``keys``, with its storage id."""
    count, length = keys.shape
    if count < _FEW or length + PREFIX_BYTES > _HASHED_BYTES_MAX:
        return _one_by_one(keys, storage, seed)
    high, low = np.empty(count, np.uint64), np.empty(count, np.uint64)
    for begin in range(0, count, _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            high[rows], low[rows] = _hash(_Hashed(keys[rows], storage[rows]), np.uint64(seed))
    return high, low


def _one_by_one(keys: U8, storage: U64, seed: int) -> tuple[U64, U64]:
    table = _prefixed(keys, storage)
    hashed = table.view(f"V{table.shape[1]}").ravel().tolist()
    digests = b"".join(map(xxh3_128_digest, hashed, repeat(seed)))
    # A digest is the big-endian hash, so its two words are the high and the low half.
    words = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def _prefixed(keys: U8, storage: U64) -> U8:
    count, length = keys.shape
    table = np.empty((count, PREFIX_BYTES + length), dtype=np.uint8)
    _words(table, 0)[:] = storage
    table[:, PREFIX_BYTES:] = keys
    return table


def _words(table: U8, offset: int) -> U64:
    """The eight bytes at ``offset`` of each row."""
    count, stride = table.shape
    return np.ndarray((count,), np.uint64, table.data, offset, (stride,))


class _Hashed:
    """The bytes that are hashed, to be read as words."""

    def __init__(self, keys: U8, storage: U64) -> None:
        self._keys = np.ascontiguousarray(keys)
        self._storage = storage
        self.length: Final = PREFIX_BYTES + keys.shape[1]

    def word(self, offset: int) -> U64:
        """The eight bytes at ``offset`` of each row; few of them are of both prefix and key."""
        if offset == 0:
            return self._storage.copy()
        if offset >= PREFIX_BYTES:
            return _words(self._keys, offset - PREFIX_BYTES).copy()
        return _words(_prefixed(self._keys, self._storage), offset).copy()


def _hash(hashed: _Hashed, seed: np.uint64) -> tuple[U64, U64]:
    return _hash_short(hashed, seed) if hashed.length <= 16 else _hash_long(hashed, seed)


def _hash_short(hashed: _Hashed, seed: np.uint64) -> tuple[U64, U64]:
    """9 to 16 bytes."""
    length = hashed.length
    last = hashed.word(length - 8)
    first = hashed.word(0) ^ last ^ ((_SECRET[4] ^ _SECRET[5]) - seed)
    low, high = _multiply(first, _PRIME_1)
    low += np.uint64((length - 1) << 54)
    last ^= (_SECRET[6] ^ _SECRET[7]) + seed
    high += last + (last & _LOW_32) * _PRIME_32
    low ^= high.byteswap()
    carried = high * _PRIME_2
    low, high = _multiply(low, _PRIME_2)
    high += carried
    return _avalanche(high), _avalanche(low)


def _hash_long(hashed: _Hashed, seed: np.uint64) -> tuple[U64, U64]:
    """17 to 128 bytes: pairs of 16 bytes from both ends, the inner ones first."""
    length = hashed.length
    low: U64 | np.uint64 = np.uint64(length) * _PRIME_1
    high: U64 | np.uint64 = np.uint64(0)
    for pair in reversed(range((length - 1) // 32 + 1)):
        begin, end = 16 * pair, length - 16 * (pair + 1)
        a, b = hashed.word(begin), hashed.word(begin + 8)
        c, d = hashed.word(end), hashed.word(end + 8)
        secret = _SECRET[4 * pair : 4 * pair + 4]
        low = (low + _fold(a ^ (secret[0] + seed), b ^ (secret[1] - seed))) ^ (c + d)
        high = (high + _fold(c ^ (secret[2] + seed), d ^ (secret[3] - seed))) ^ (a + b)
    mixed = low * _PRIME_1 + high * _PRIME_4 + (np.uint64(length) - seed) * _PRIME_2
    return np.uint64(0) - _avalanche(mixed), _avalanche(low + high)


def _multiply(a: U64, b: U64 | np.uint64) -> tuple[U64, U64]:
    """The low and high words of the products."""
    a_low, a_high = a & _LOW_32, a >> _HALF
    b_low, b_high = b & _LOW_32, b >> _HALF
    middle = a_high * b_low
    cross = a_low * b_low
    cross >>= _HALF
    cross += middle & _LOW_32
    cross += a_low * b_high
    high = a_high * b_high
    high += middle >> _HALF
    high += cross >> _HALF
    return a * b, high


def _fold(a: U64, b: U64) -> U64:
    low, high = _multiply(a, b)
    low ^= high
    return low


def _avalanche(word: U64 | np.uint64) -> U64:
    mixed: U64 = np.asarray(word ^ (word >> np.uint64(37)), dtype=np.uint64)
    mixed *= _PRIME_MIX
    mixed ^= mixed >> _HALF
    return mixed
