"""The log: one event a line on standard error, for people (text) or for machines (JSON).

What an event holds is chosen by who logs it; passwords and tokens never reach this module.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Literal

import structlog


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
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    log: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return log
