"""Values of field tables as JSON has them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal

from leveret.wire.tables import Timestamp


def plain(value: object) -> object:
    """Return a value of a field table as JSON has it; bytes as base 64, a time as seconds."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Timestamp):
        return int(value.seconds)
    return float(value) if isinstance(value, Decimal) else value
