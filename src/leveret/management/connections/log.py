"""Forwards the web framework's warnings to the broker's log, one line each.

The framework quotes malformed input in its exceptions, possibly a header with a password.  Their
texts are therefore neither logged nor sent to clients; the type of the exception gives the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from aiohttp import http_exceptions as faults

from leveret.escaping import unquoted

#: Takes a level and the text of a message.
Log = Callable[[str, str], None]

#: The reasons why a request cannot be parsed.
_UNREADABLE: Final = {
    faults.LineTooLong: "the request line or a header is too long",
    faults.InvalidHeader: "a header is malformed",
    faults.InvalidURLError: "the target in the request line is not a URL",
    faults.BadHttpMethod: "the request line does not begin with an HTTP method",
    faults.BadStatusLine: "the request line is malformed",
    faults.ContentLengthError: "the body is not as long as Content-Length says",
    faults.TransferEncodingError: "the body is not encoded as Transfer-Encoding says",
}

#: The framework's text for a missing Host header; it quotes no input.
_NO_HOST: Final = "Missing 'Host' header in request."


def unreadable(fault: faults.HttpProcessingError) -> str:
    """Return why a request cannot be parsed, without quoting it."""
    if fault.message == _NO_HOST:
        return "the header Host is missing"
    return _UNREADABLE.get(type(fault), "the head or the body of the request is malformed")


class _Lines(logging.Handler):
    """Writes the framework's log records as lines of the broker's log, without tracebacks."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as a warning, even an error, since most errors are malformed input."""
        text = record.getMessage().strip()
        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, faults.HttpProcessingError):
            text += f": {unreadable(fault)}"
        elif fault is not None:
            text += f": {unquoted(fault)}"
        self._log("warning", f"HTTP: {text}")


def make_logger(log: Log) -> logging.Logger:
    """Return a new logger, so that brokers in one process do not share one."""
    logger = logging.Logger("leveret.http")  # noqa: LOG001 (one for each broker in the process)
    logger.addHandler(_Lines(log))
    return logger
