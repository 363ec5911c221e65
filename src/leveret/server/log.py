"""The log: one line for each event on standard error, as text or as JSON.

Callers choose the fields of an event; they never pass passwords or tokens to this module.

Invariants: a line is one event and contains no raw control characters, whatever a client sent (text
lines escape them as Python does, JSON lines as JSON does); only tracebacks span several lines, and
each of these is indented; the broker continues if the log cannot be written (its reader has ended,
or the disk is full).
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import structlog

from leveret.escaping import escaped, escaped_json

#: The only field of an event that may have several lines: a traceback.
_LINES: Final = "exception"

#: Takes the time, the level and the text of a logged event.
Keep = Callable[[str, str, str], None]

#: The fields of an event that are not part of its text over HTTP; tracebacks are only written to
#: the log itself.
_BESIDE: Final = ("event", "timestamp", "level", _LINES)

#: The indentation of a traceback's lines, so that none looks like an event.
_INDENT: Final = "    "


def _escape_fields(
    _log: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape the fields of an event before it is rendered as a line of text."""
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
    """Return an event as JSON; values that JSON cannot represent are written as their `repr`."""
    return escaped_json(str(structlog.processors.JSONRenderer(default=repr)(log, method, event)))


class Threshold:
    """The lowest level that is logged; it can change while the broker runs."""

    def __init__(self, level: str) -> None:
        self._number = _number_of(level)

    def set(self, level: str) -> None:
        """Log events of at least this level from now on."""
        self._number = _number_of(level)

    def __call__(
        self, _log: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass an event on, or drop it."""
        if _number_of(method) < self._number:
            raise structlog.DropEvent
        return event


def _number_of(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]


class Lines:
    """Writes lines to a stream, and drops lines that cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = msg


class _Keeping:
    """Passes events to `keep` before they are rendered as lines."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep

    def __call__(
        self, _log: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Pass the text of an event to `keep`; return the event unchanged."""
        more = [f"{name}={value}" for name, value in event.items() if name not in _BESIDE]
        time = str(event.get("timestamp") or datetime.now(UTC).isoformat())
        self._keep(time, method, " ".join([str(event.get("event", "")), *more]))
        return event


def make_log(
    level: str | Threshold, form: Literal["text", "json"], keep: Keep
) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that writes events of at least `level`, and passes them to `keep`."""
    threshold = level if isinstance(level, Threshold) else Threshold(level)
    renders: list[Any]
    if form == "json":
        renders = [_as_json]
    else:
        text = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
        renders = [_escape_fields, text]
    processors = [
        threshold,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _Keeping(keep),
        *renders,
    ]
    return _bound(Lines(sys.stderr), "debug", processors)


def forward_log(name: str, level: str, keep: Keep) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that passes events of at least `level` to Python's logger `name`.

    The logger also passes the events to `keep`.
    """
    text = structlog.dev.ConsoleRenderer(
        colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    processors = [structlog.processors.format_exc_info, _Keeping(keep), _escape_fields, text]
    return _bound(logging.getLogger(name), level, processors)


def _bound(
    logger: object, level: str, processors: list[Any]
) -> structlog.typing.FilteringBoundLogger:
    """Return a logger that does not depend on the process's global structlog settings."""
    bound: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        logger,
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(_number_of(level)),
        cache_logger_on_first_use=True,
    )
    return bound
