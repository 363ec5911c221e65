"""Conversion of field table values to JSON.

Properties from a client may contain values that JSON cannot represent.  In definitions, these are
only bytes, timestamps and decimals.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from leveret.wire.tables import Timestamp


def plain(value: object) -> object:
    """Return a field table value as JSON: bytes as base64, a timestamp as seconds.

    Text that is not UTF-8 is converted like bytes, and a number that is not finite becomes null.
    Invalid UTF-8 in a field name is replaced.
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
    """Return whether `text` can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_unicode(text: str) -> str:
    """Return `text` with each byte of invalid UTF-8 replaced."""
    if is_unicode(text):
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
