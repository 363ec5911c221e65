"""Values of field tables as JSON has them.

A client may put into its properties what JSON has no form for; what is shown of it must be JSON all
the same.  Definitions hold none of that but bytes, times and decimals, which are kept beside
(`management.definitions`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from leveret.wire.tables import Timestamp


def plain(value: object) -> object:
    """Return a value of a field table as JSON has it: bytes as base 64, a time as seconds.

    A text that is not UTF-8 is shown as its bytes are, and a number that is not finite as null; in
    a name what is not UTF-8 is replaced.
    """
    if isinstance(value, str):
        return value if is_unicode(value) else plain(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {as_unicode(str(key)): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return int(value.seconds)
    return float(value) if isinstance(value, Decimal) else value


def time_text(wall_ms: int) -> str:
    """Return a wall time as RabbitMQ writes it: `2026-01-31T12:00:00.000+00:00`."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def is_unicode(text: str) -> bool:
    """Tell whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_unicode(text: str) -> str:
    """Return a text as UTF-8 can hold it, with a replacement for each byte that was none."""
    if is_unicode(text):
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
