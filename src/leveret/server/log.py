"""The log: one event a line on standard error, for people (text) or for machines (JSON).

What an event holds is chosen by who logs it; passwords and tokens never reach this module.

Invariants: a line is one event and shows no control character as such, whatever a client sent; a
log that cannot be written (its reader is gone, the disk is full) ends nothing.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog

#: Control characters, and those that turn or hide the text after them (bidirectional marks, line
#: and paragraph separators, lone halves of characters).
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)

#: The one field of an event that may have several lines: a traceback of ours.
_LINES: Final = "exception"


def escape(text: str) -> str:
    """Return a text with its control characters escaped as in Python."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _escape_fields(
    _log: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape what an event holds; JSON does that by itself, but for some."""
    for name, value in event.items():
        if isinstance(value, str) and name != _LINES:
            event[name] = escape(value)
    return event


class Lines:
    """Writes lines to a stream; one that cannot be written is left out."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


def make_log(level: str, form: Literal["text", "json"]) -> structlog.typing.FilteringBoundLogger:
    """Return the logger for events of at least `level`."""
    render: Any
    if form == "json":
        render = structlog.processors.JSONRenderer()
    else:
        render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _escape_fields,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log
