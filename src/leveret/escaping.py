"""Escapes control characters in untrusted text for terminals and logs.

Names, routing keys, error messages and bodies come from clients, and may contain any character.  A
line feed could forge a line of the log, and an escape sequence could move the cursor of a user who
lists the queues.  Therefore text is escaped on output, by the renderer of the log (`server/log.py`)
and by the print functions of the commands (`cli/printing/output.py`).  All other code has the
original text.

The text of an exception may quote the input of a library, such as a header with a password.
`unquoted` therefore describes an exception without its text.

The escaped characters are the controls of ASCII and Latin-1, characters that reorder or hide text
(bidirectional marks, zero-width characters), line and paragraph separators, and lone surrogates.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

#: The maximum number of calls that `unquoted` returns.
_CALLS_SHOWN: Final = 4


def escaped(text: str) -> str:
    r"""Return `text` with control characters escaped as in Python: `\n`, `\x1b`, `\u202e`."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def unquoted(fault: BaseException) -> str:
    """Return the type of an exception and the last calls before it was raised, without its text.

    The innermost call comes first.
    """
    places: list[str] = []
    trace = fault.__traceback__
    while trace is not None:
        file = "/".join(trace.tb_frame.f_code.co_filename.split("/")[-2:])
        places.insert(0, f"{file}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"{type(fault).__name__} at {', '.join(places[:_CALLS_SHOWN]) or 'an unknown place'}"


def escaped_json(text: str) -> str:
    """Return JSON with control characters escaped as in JSON, and with the same value.

    Line feeds and tabs are not escaped, because in valid JSON they occur only between values.
    """
    return _CONTROLS.sub(_in_json, text)


def _in_json(found: re.Match[str]) -> str:
    letter = found[0]
    if letter in "\n\t":
        return letter
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
