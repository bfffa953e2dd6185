"""Frames out of the bytes of one connection, as they arrive.

A1  lengths are checked against the limits before anything is allocated; until ``open_up`` the
    limits are those of a hello, and an owner with a budget admits every frame
A2  a peer that says nothing takes no memory
A3  every byte is copied at most once; large parts arrive where they stay
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from tidelog.errors import BadFrame
from tidelog.formats.wire import (
    HEADER_BYTES,
    FrameHeader,
    check_message,
    check_start,
    decode_header,
)
from tidelog.limits import HELLO_BYTES_MAX, KIB
from tidelog.net.tls import opens_with_tls

Frame: TypeAlias = tuple[FrameHeader, bytes, memoryview]
"""Header, message and attachment."""

_BUFFER_BYTES: Final = 64 * KIB
_NOTHING: Final = memoryview(b"")
_SCRATCH: Final = memoryview(bytearray(_BUFFER_BYTES))
"""Of all connections: what they put there is not looked at."""


class FrameAssembly:
    """Give it bytes by ``room`` and ``arrived``, take frames by ``next``, then ``make_room``."""

    def __init__(self, admit: Callable[[FrameHeader], bool] | None) -> None:
        """``admit`` is asked at the header of each frame, and again until it says yes (A1)."""
        self._admit = admit
        self._message_max, self._attachment_max = HELLO_BYTES_MAX, 0
        self._buffer = _NOTHING
        """From the first byte on."""
        self._begin = self._end = 0
        self._head: tuple[FrameHeader, bytes] | None = None
        """Header, checked against the limits, and its bytes; its message is awaited."""
        self._admitted = False
        """Whether there is room for the frame of ``_head``."""
        self._message: bytes | None = None
        """The message of ``_head``; its attachment is awaited."""
        self._part = _NOTHING
        """A message or attachment that is too large for the buffer, received in place."""
        self._filled = 0

    def open_up(self, message_max: int, attachment_max: int) -> None:
        """Both sides have said hello: from now on frames may be large."""
        self._message_max, self._attachment_max = message_max, attachment_max

    @property
    def awaits_hello(self) -> bool:
        return self._attachment_max == 0

    @property
    def has_begun(self) -> bool:
        """Whether a part of a frame is there."""
        return self._head is not None or self._begin != self._end

    @property
    def scratch(self) -> memoryview:
        """Room for bytes that nobody looks at."""
        return _SCRATCH

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._filled < len(self._part):
            return self._part[self._filled :]
        if not self._buffer:
            self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        return self._buffer[self._end :]

    def arrived(self, size: int) -> None:
        """So many bytes were put into ``room``."""
        if self._filled < len(self._part):
            self._filled += size
        else:
            self._end += size

    def forget(self) -> None:
        """No frame will be taken any more: give the memory of a large one back."""
        self._part = _NOTHING

    def make_room(self) -> None:
        """Frames were taken: move what is left to the beginning of the buffer."""
        if self._begin:
            rest = self._end - self._begin
            # Few bytes, and these only once: a frame lies before them that was taken.
            self._buffer[:rest] = self._buffer[self._begin : self._end]
            self._begin, self._end = 0, rest

    def next(self) -> Frame | None:
        """The frame that begins here; None if it has not arrived as a whole, or has no room."""
        found = self._head or self._read_head()
        if found is None:
            return None
        header, head = found
        if not self._admitted:
            self._admitted = self._admit is None or self._admit(header)
            if not self._admitted:
                return None
        if self._message is None:
            part = self._take(header.message_bytes)
            if part is None:
                return None
            check_message(header, head, part)
            self._message = part if isinstance(part, bytes) else bytes(part)
        attachment = self._take(header.attachment_bytes)
        if attachment is None:
            return None
        message = self._message
        self._head = self._message = None
        return header, message, memoryview(attachment)

    def _read_head(self) -> tuple[FrameHeader, bytes] | None:
        """The header and its bytes, checked against the limits; None if it is not there."""
        if self._attachment_max == 0:
            _check_not_tls(self._buffer[self._begin : self._end])
        if self._end - self._begin < HEADER_BYTES:
            check_start(self._buffer[self._begin : self._end])
            return None
        head = bytes(self._buffer[self._begin : self._begin + HEADER_BYTES])
        header = decode_header(
            head, message_max=self._message_max, attachment_max=self._attachment_max
        )
        self._begin += HEADER_BYTES
        self._head = header, head
        self._admitted = self._admit is None
        return self._head

    def _take(self, size: int) -> bytes | memoryview | None:
        """The next ``size`` bytes; None if they have not all arrived."""
        if len(self._part):
            if self._filled < len(self._part):
                return None
            part, self._part, self._filled = self._part, _NOTHING, 0
            return part
        if not size:
            return b""
        there = self._end - self._begin
        if there >= size:
            begin, self._begin = self._begin, self._begin + size
            return bytes(self._buffer[begin : self._begin])
        if self._message is None and self._begin + size <= _BUFFER_BYTES:
            return None  # A message that the buffer has room for.
        # Pages cost nothing until bytes arrive, so an announcement alone takes no memory; those
        # of a bytearray would be written to at once.
        self._part = np.empty(size, np.uint8).data
        self._part[:there] = self._buffer[self._begin : self._end]
        self._filled, self._begin = there, self._end
        return None


def _check_not_tls(start: memoryview) -> None:
    """Raise with the reason if a peer that has not said hello yet speaks TLS to us."""
    if opens_with_tls(start):
        raise BadFrame(
            "the peer speaks TLS, and there is none at this address: connect to tidelog:// or "
            "tcp://, or let the node listen at tls://"
        )
