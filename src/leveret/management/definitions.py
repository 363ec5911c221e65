"""Conversion of definitions between JSON and the tables of `broker.definitions`.

Argument values that JSON cannot represent are written as in the rest of the API: bytes as base64, a
timestamp as seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from leveret import __version__
from leveret.broker.attributes.arguments import Arguments
from leveret.errors import PreconditionFailed
from leveret.management.fields import plain
from leveret.management.requests.slices import next_slice

#: JSON bytes decoded per slice (a millisecond or two), and the bytes added for each row.
_READ_AT_ONCE: Final = 256 * 1024
_ROW_BYTES: Final = 128


def read_definitions(data: bytes) -> Arguments:
    """Decode a definitions file.  Raises: PreconditionFailed (406) if it is not a JSON object."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreconditionFailed(f"the definitions are not JSON: {error}") from None
    except RecursionError:
        raise PreconditionFailed("the definitions are nested too deeply") from None
    if not isinstance(found, dict):
        raise PreconditionFailed("the definitions should be an object")
    return found


async def read_in_slices(data: bytes) -> Arguments:
    """Decode a definitions file in slices of some thousand rows.

    Raises: PreconditionFailed (406) if it is not a JSON object.
    """
    if len(data) <= _READ_AT_ONCE:
        return read_definitions(data)
    found: Arguments = {}
    try:
        # `Raw` only finds the end of a value, which is ten times as fast as decoding it.
        for name, raw in msgspec.json.decode(data, type=dict[str, msgspec.Raw]).items():
            await next_slice()
            found[name] = (
                await _rows(raw) if bytes(memoryview(raw)[:1]) == b"[" else msgspec.json.decode(raw)
            )
    except msgspec.ValidationError:
        raise PreconditionFailed("the definitions should be an object") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreconditionFailed(f"the definitions are not JSON: {error}") from None
    except RecursionError:
        raise PreconditionFailed("the definitions are nested too deeply") from None
    return found


async def _rows(raw: msgspec.Raw) -> list[object]:
    """Return the elements of an array."""
    rows: list[object] = []
    size = 0
    for row in msgspec.json.decode(raw, type=list[msgspec.Raw]):
        rows.append(msgspec.json.decode(row))
        size += _ROW_BYTES + len(row)
        if size >= _READ_AT_ONCE:
            size = 0
            await next_slice()
    return rows


def write_definitions(definitions: Arguments, rabbit_version: str) -> bytes:
    """Return definitions as a file; `rabbit_version` is the version that the broker reports."""
    sections = {name: rows for name, rows in definitions.items() if isinstance(rows, list)}
    others = {name: value for name, value in definitions.items() if name not in sections}
    writer = DefinitionsWriter(rabbit_version, others)
    parts = [writer.rows(name, rows) for name, rows in sections.items()]
    return b"".join([*parts, writer.end()])


class DefinitionsWriter:
    """Writes a definitions file in parts: the fields of the head, then the rows of each section."""

    def __init__(self, rabbit_version: str, head: Arguments) -> None:
        """Begin a file with the fields of `head`."""
        fields: Arguments = {
            "rabbit_version": rabbit_version,
            "rabbitmq_version": rabbit_version,
            "product_name": "Leveret",
            "product_version": __version__,
            **head,
        }
        #: The beginning of the JSON object, until it is written.
        self._begun = _formatted(fields, 0)[:-2]
        self._section = ""
        self._is_empty = True

    def rows(self, section: str, rows: Sequence[object]) -> bytes:
        """Return the next rows of a section as JSON, with its beginning if the section is new."""
        parts: list[bytes] = []
        if section != self._section:
            parts += [self._end_section(), b",\n ", msgspec.json.encode(section), b": ["]
            self._section = section
            self._is_empty = True
        for row in rows:
            parts += [b"\n  " if self._is_empty else b",\n  ", _formatted(row, 2)]
            self._is_empty = False
        return b"".join(parts)

    def end(self) -> bytes:
        """Return the end of the file as JSON."""
        return self._end_section() + b"\n}"

    def _end_section(self) -> bytes:
        if not self._section:
            begun, self._begun = self._begun, b""
            return begun
        return b"]" if self._is_empty else b"\n ]"


def _formatted(value: object, depth: int) -> bytes:
    """Return a value as JSON, with its lines indented by `depth` more spaces."""
    text = msgspec.json.format(msgspec.json.encode(plain(value)), indent=1)
    # JSON text contains no raw line ends.
    return text.replace(b"\n", b"\n" + b" " * depth)
