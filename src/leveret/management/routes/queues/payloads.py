"""Answers with messages, whose bodies are written in pieces so that no body is copied whole.

Properties are decoded when their message is written, one message at a time.  A header with only a
name takes 4 bytes in a message, 120 bytes once decoded, and 1 µs to write.  When all properties
were decoded first, 4 MiB of such headers blocked the loop for a quarter of a second and took 80 MB
that no account included.

As in RabbitMQ, a payload is text (`string`) if it is valid UTF-8, and base64 otherwise.  Here, text
with very many control characters is base64 too: JSON writes each of them as six characters, so
20 MB of NUL bytes would become an answer of 120 MB.
"""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.limits import HTTP_MESSAGES_BYTES_MAX, HTTP_WRITE_BYTES_MAX
from leveret.management.fields import plain
from leveret.management.requests.slices import next_slice
from leveret.management.routes.lists import RowSlices
from leveret.management.routes.shared import JSON_HEADERS, Row
from leveret.wire.properties import decode_properties

#: Bytes of a body written or examined per slice (about a millisecond).  The number is a multiple of
#: 3, so that base64 can be encoded piece by piece.
PIECE_BYTES: Final = 3 * 65_536

#: The control characters that JSON writes as six characters, and their maximum number in text: log
#: lines with colours are text, a file of zeros is not.
_CONTROLS: Final = bytes(set(range(32)) - set(b"\b\t\n\f\r"))
_CONTROLS_MAX: Final = 65_536


@dataclass(frozen=True)
class Shown:
    """A message in an answer: its fields, its properties, and the part of its body to send.

    With `auto`, the payload may be text; otherwise it is base64.
    """

    row: Row
    properties: bytes
    payload: bytes
    auto: bool


def shown_properties(properties: bytes) -> Row:
    """Return the properties that are set, by name."""
    decoded = decode_properties(properties)
    names = [name for name in decoded.FIELDS if getattr(decoded, name) is not None]
    return {name: plain(getattr(decoded, name)) for name in names}


def cut(body: bytes, truncate: int) -> bytes:
    """Return the first `truncate` bytes of a body, or the whole body if `truncate` is negative."""
    return body if truncate < 0 else body[:truncate]


class Room:
    """The remaining space of an answer: `HTTP_MESSAGES_BYTES_MAX`, or a single larger message."""

    def __init__(self) -> None:
        self._size = 0
        self._any = False

    def is_full(self) -> bool:
        """Return whether not even an empty message would fit."""
        return self._size >= HTTP_MESSAGES_BYTES_MAX

    def takes(self, size: int) -> bool:
        """Return whether a message of `size` bytes fits, and count it if so."""
        if self._any and self._size + size > HTTP_MESSAGES_BYTES_MAX:
            return False
        self._any = True
        self._size += size
        return True


async def answer_messages(
    request: web.Request, messages: Iterable[Shown], begin: str = "[", end: str = "]"
) -> web.StreamResponse:
    """Answer with an array of messages between `begin` and `end`, which are JSON."""
    response = web.StreamResponse(headers=JSON_HEADERS)
    await response.prepare(request)
    writer = _Writer(response, begin)
    separator = ""
    for message in messages:
        await writer.add(message, separator)
        separator = ","
    await writer.end(end)
    return response


class _Writer:
    """Writes messages one after another, in slices."""

    def __init__(self, response: web.StreamResponse, begin: str) -> None:
        self._response = response
        self._slices = RowSlices()
        self._unsent = begin

    async def add(self, message: Shown, separator: str) -> None:
        """Write a message."""
        payload = message.payload
        text = message.auto and await _is_text(payload)
        fields = {
            **message.row,
            "properties": shown_properties(message.properties),
            "payload_encoding": "string" if text else "base64",
        }
        head = json.dumps(fields, ensure_ascii=False)
        self._unsent += f'{separator}{head[:-1]}, "payload": "'
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(0, len(payload), PIECE_BYTES):
            piece = payload[at : at + PIECE_BYTES]
            if text:
                decoded = decoder.decode(piece)
                self._unsent += json.dumps(decoded, ensure_ascii=False)[1:-1]
            else:
                self._unsent += base64.b64encode(piece).decode()
            if len(piece) == PIECE_BYTES or len(self._unsent) >= HTTP_WRITE_BYTES_MAX:
                await self._flush()
        self._unsent += '"}'
        await self._slices.made(fields, len(head) + len(payload))

    async def _flush(self) -> None:
        part, self._unsent = self._unsent, ""
        await self._response.write(part.encode())
        await next_slice()

    async def end(self, end: str) -> None:
        """Write the end of the answer."""
        await self._response.write((self._unsent + end).encode())
        await self._response.write_eof()


async def _is_text(payload: bytes) -> bool:
    """Return whether a payload is UTF-8 with at most `_CONTROLS_MAX` control characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    controls = 0
    for at in range(0, len(payload), PIECE_BYTES):
        piece = payload[at : at + PIECE_BYTES]
        controls += len(piece) - len(piece.translate(None, _CONTROLS))
        if controls > _CONTROLS_MAX:
            return False
        try:
            decoder.decode(piece, final=at + PIECE_BYTES >= len(payload))
        except UnicodeDecodeError:
            return False
        if len(piece) == PIECE_BYTES:
            await next_slice()
    return True
