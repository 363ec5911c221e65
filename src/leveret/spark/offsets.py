"""Positions in a stream, as Spark keeps them and as users write them.

An offset is the number of the *next* message to read: `{"orders": 1200}` means that everything
below 1200 was read.  Spark stores that JSON in its checkpoint, so its form is for ever.

In options -2 stands for the earliest and -1 for the latest, as in Spark's Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

EARLIEST: Final = -2
LATEST: Final = -1

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


def parse_position(text: str, stream: str) -> int:
    """Return the offset that an option names: `earliest`, `latest` or `{"orders": 1200}`.

    Raises: ValueError.
    """
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return word
    try:
        named = json.loads(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither earliest, latest nor JSON") from None
    if not isinstance(named, dict) or list(named) != [stream]:
        raise ValueError(f'{text!r} does not name the stream: {{"{stream}": 1200}}')
    offset = named[stream]
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
        raise ValueError(f"{offset!r} is not an offset (-2 is the earliest, -1 the latest)")
    return offset


def to_json(stream: str, offset: int) -> dict[str, int]:
    """Return a stream's next offset as Spark stores it."""
    return {stream: offset}


def from_json(stream: str, stored: Mapping[str, object]) -> int:
    """Return a stream's next offset from what Spark stored.

    Raises: ValueError when the checkpoint belongs to another stream.
    """
    offset = stored.get(stream)
    if len(stored) != 1 or not isinstance(offset, int):
        raise ValueError(
            f"the checkpoint is not one of stream {stream!r}: it holds {json.dumps(stored)}"
        )
    return offset
