"""The log of the web framework: each of its complaints is one line of the broker's log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

#: Takes a level and a text.
Log = Callable[[str, str], None]

#: How much of what was wrong with a request the log quotes.
_LINE_CHARACTERS_MAX: Final = 200


class _Lines(logging.Handler):
    """Writes what the framework logs as lines of the broker's log, without tracebacks."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line: what a client sent that is no HTTP is no fault of the broker."""
        text = record.getMessage().strip()
        fault = record.exc_info[1] if record.exc_info else None
        if fault is not None:
            text += ": " + " ".join(str(fault).split())[:_LINE_CHARACTERS_MAX]
        self._log("warning", f"HTTP: {text}")


def make_logger(log: Log) -> logging.Logger:
    """Return a logger of its own, so that brokers in one process do not share one."""
    logger = logging.Logger("leveret.http")  # noqa: LOG001 (one for each broker in a process)
    logger.addHandler(_Lines(log))
    return logger
