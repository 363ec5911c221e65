"""Text of others as it may reach a terminal or a line of a log: its control characters escaped.

Names, routing keys, error texts and bodies come from whoever could send them, and hold what they
like.  As they are, a line feed in one forges a line of a log, and an escape sequence moves the
cursor of who lists the queues.  So they are escaped where text leaves: by the renderer of the log
(`server/log.py`) and by what the commands print with (`cli/printing/output.py`), and nowhere
before, so that all between knows the text itself.

The text of an exception may quote the input of a library, such as a header with a password:
`unquoted` describes an exception without its text.

Escaped are the controls of ASCII and of Latin-1, what turns or hides the text after it
(bidirectional marks, characters without width), separators of lines and paragraphs, and lone halves
of characters.
"""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)

#: How many calls `unquoted` names.
_CALLS_SHOWN: Final = 4


def escaped(text: str) -> str:
    r"""Return a text with its control characters as in Python: `\n`, `\x1b`, `\u202e`."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def unquoted(fault: BaseException) -> str:
    """Return the type of an exception and the last calls to where it was raised, without its text.

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
    """Return JSON with its control characters as JSON has them; it means the same.

    The line feeds and tabs between its values stay: inside a text JSON escapes them anyway.
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
