"""Requests as bytes, held against the bounds that a node will hold them against.  No state.

A node hangs up on what it cannot read, and so on everybody whose requests share the connection.
The appends of lanes are not looked at here: what they are made of was checked by then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tidelog.errors import BadFrame, BadOption, BatchTooLarge
from tidelog.formats.checksum import Buffer
from tidelog.formats.messages import Request, decode_request, encode_message
from tidelog.limits import ATTACHMENT_BYTES_MAX, MESSAGE_BYTES_MAX

_FIELD: Final = re.compile(r"`\$\[(\d+)\]")
"""Where msgspec says that something is wrong; the message's tag is number 0."""


def checked_message(request: Request, attachments: Sequence[Buffer]) -> bytes:
    """The request as it is sent; BadOption or BatchTooLarge if no node would read it."""
    name = type(request).__name__
    try:
        message = encode_message(request)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadOption(f"{name} cannot be sent: {error}") from error
    if len(message) > MESSAGE_BYTES_MAX:
        raise BadOption(
            f"{name} has {len(message)} bytes, the limit is {MESSAGE_BYTES_MAX}: ask for less"
        )
    size = sum([memoryview(attachment).nbytes for attachment in attachments])
    if size > ATTACHMENT_BYTES_MAX:
        raise BatchTooLarge(
            f"{name} brings {size} bytes, the limit is {ATTACHMENT_BYTES_MAX}: send it in parts"
        )
    try:
        decode_request(message)
    except BadFrame as error:
        raise BadOption(f"{name} cannot be sent: {_explained(request, error)}") from error
    return message


def _explained(request: Request, error: BadFrame) -> str:
    """What is wrong, with the name of the field."""
    text = str(error).removeprefix("not a request: ")
    found = _FIELD.search(text)
    if found is None:
        return text
    return f"{request.__struct_fields__[int(found[1]) - 1]}: {text}"
