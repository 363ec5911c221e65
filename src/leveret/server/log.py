"""The log: one event a line on standard error, for people (text) or for machines (JSON).

What an event holds is chosen by who logs it; passwords and tokens never reach this module.

Invariants: a line is one event and shows no control character as such, whatever a client sent
(text has it escaped as in Python, JSON as in JSON, which means what it meant); only a traceback of
ours has lines of its own, and each begins with blanks; a log that cannot be written (its reader is
gone, the disk is full) ends nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal, TextIO

import structlog

from leveret.escaping import escaped, escaped_json

#: The one field of an event that may have several lines: a traceback of ours.
_LINES: Final = "exception"

#: What each of them begins with, so that none passes for an event.
_INDENT: Final = "    "


def _escape_fields(
    _log: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape what an event holds, before it becomes a line of text."""
    for name, value in event.items():
        if isinstance(value, int | float | None):
            continue
        text = value if isinstance(value, str) else repr(value)
        if name == _LINES:
            event[name] = "\n".join(_INDENT + escaped(line) for line in text.split("\n"))
        else:
            event[name] = escaped(text)
    return event


def _as_json(
    log: structlog.typing.WrappedLogger, method: str, event: MutableMapping[str, Any]
) -> str:
    """Return an event as JSON; what is no value of JSON is shown as Python does."""
    return escaped_json(str(structlog.processors.JSONRenderer(default=repr)(log, method, event)))


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
    renders: list[Any]
    if form == "json":
        renders = [_as_json]
    else:
        text = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
        renders = [_escape_fields, text]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *renders,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log
