r"""Values of headers and properties as text, and the times that Spark can represent.

Strings stay as they are, true and false become words, numbers decimals, times their seconds since
1970, tables and arrays JSON, and no value becomes null.  Bytes that are not UTF-8 are escaped
(`\xff`).
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Final

from leveret.client import Timestamp

#: The end of the year 9999, the last that Python and SQL can represent.  Timestamps of publishers
#: that send milliseconds instead of seconds are far beyond it.
SECONDS_MAX: Final = 253_402_300_799
MILLISECONDS_MAX: Final = SECONDS_MAX * 1000


def escaped(text: str) -> str:
    """Return text with its surrogates, which represent bytes that are not UTF-8, escaped."""
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
