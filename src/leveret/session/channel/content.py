"""Content frame by frame: the header and the body frames that follow a basic.publish.

This is the path for what does not lie whole in one piece of input, and the one that tells what is
wrong with a sequence of frames (behaviours 9, 10 and 20).
"""

from __future__ import annotations

from io import BytesIO
from typing import Final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed, SyntaxFault, UnexpectedFrame
from leveret.session.channel.channel import BODY_NEXT, HEADER_NEXT, NO_CONTENT, Channel
from leveret.session.publish.publisher import PERSISTENT, accept
from leveret.wire.buffer import read_i16_be, read_i64_be
from leveret.wire.properties import skim_properties

_HEADER_FIXED: Final = 12


def begin(channel: Channel, arguments: bytes) -> None:
    """Start the content of a basic.publish whose arguments are given."""
    channel.content_state = HEADER_NEXT
    channel.content_arguments = arguments


def header(channel: Channel, data: bytes, start: i64, end: i64) -> None:
    """Take a content header frame.

    Raises: UnexpectedFrame (505) out of sequence or for another class; SyntaxFault (502);
    PreconditionFailed (406) for a body over the limit.
    """
    if channel.content_state != HEADER_NEXT:
        raise UnexpectedFrame("a content header without a method that has content")
    if end - start < _HEADER_FIXED + 2:
        raise SyntaxFault("a content header ends early")
    if read_i16_be(data, start) != 60:
        raise UnexpectedFrame("a content header of another class than its method's")
    size: i64 = read_i64_be(data, start + 4)
    most: i64 = channel.connection.settings.message_bytes_max
    channel.content_persistent = skim_properties(data, start + _HEADER_FIXED, end) == PERSISTENT
    if size < 0 or size > most:
        channel.content_state = NO_CONTENT
        raise PreconditionFailed(
            f"message size {size & 0x7FFFFFFFFFFFFFFF} is larger than configured max size {most}"
        )
    channel.content_properties = data[start + _HEADER_FIXED : end]
    channel.content_left = size
    channel.content_state = BODY_NEXT
    if size == 0:
        _complete(channel, b"")


def body(channel: Channel, data: bytes, start: i64, end: i64) -> None:
    """Take a body frame.

    Raises: UnexpectedFrame (505) out of sequence or beyond the announced size.
    """
    if channel.content_state != BODY_NEXT:
        raise UnexpectedFrame("a content body without a content header")
    size: i64 = end - start
    if size > channel.content_left:
        raise UnexpectedFrame("a content body goes beyond the size that its header announced")
    left: i64 = channel.content_left - size
    channel.content_left = left
    if left == 0 and channel.content_bytes == 0:
        _complete(channel, data[start:end])
        return
    # BytesIO grows in place and gives away what it holds: the body is there once, never twice.
    whole = channel.content_body
    if whole is None:
        whole = channel.content_body = BytesIO()
    whole.write(data[start:end])
    channel.content_bytes += size
    channel.assemble(size)
    if left == 0:
        _complete(channel, whole.getvalue())


def _complete(channel: Channel, whole: bytes) -> None:
    channel.end_content()
    channel.connection.at_fault(channel, 60, 40)
    accept(
        channel,
        channel.content_arguments,
        channel.content_properties,
        whole,
        channel.content_persistent,
    )
