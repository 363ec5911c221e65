r"""Conversion of header values to text, and the latest times that Spark can represent.

Strings stay unchanged.  Booleans become `true` and `false`, numbers decimals, timestamps their
seconds since 1970, tables and arrays JSON, and missing values null.  Bytes that are not UTF-8 are
escaped (`\xff`).
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Final

from leveret.client import Timestamp

#: The end of the year 9999, the last year that Python and SQL can represent.  If a publisher sends
#: milliseconds instead of seconds, its timestamps are far beyond it.
SECONDS_MAX: Final = 253_402_300_799
MILLISECONDS_MAX: Final = SECONDS_MAX * 1000


def escaped(text: str) -> str:
    """Escape surrogates in text, which represent bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def text_of(value: object) -> str | None:
    """Return a header's value as text."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        return json.dumps(value, default=text_of, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, Timestamp):
        return str(value.seconds)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)
