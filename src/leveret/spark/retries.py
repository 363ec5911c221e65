"""How often and how soon a broker is asked again after an interruption.

It is asked again `numRetries` times in a row, after 0.5, 1, 2, 4 … seconds (15 at most), so that
the default rides out the restart of a broker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from leveret.spark.transports.base import Interrupted

FIRST_WAIT_SECONDS: Final = 0.5
WAIT_SECONDS_MAX: Final = 15.0

T = TypeVar("T")
log = logging.getLogger("leveret.spark")


class Patience(Protocol):
    """The options that say how often."""

    @property
    def num_retries(self) -> int:
        """How often in a row."""


class Retries:
    """Counts interruptions in a row, those of `what`; `wait` is how to let time pass."""

    def __init__(
        self, options: Patience, what: str, wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._options = options
        self._what = what
        self._wait = wait
        self._count = 0

    def succeeded(self) -> None:
        """Take note of progress: interruptions are counted afresh."""
        self._count = 0

    def failed(self, error: Interrupted) -> None:
        """Wait before the next attempt.  Raises: `error` when there is to be none."""
        self._count += 1
        if self._count > self._options.num_retries:
            raise error
        seconds = min(WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2 ** (self._count - 1))
        log.warning("%s: %s; again in %.1f s", self._what, error, seconds)
        self._wait(seconds)


def ask(
    options: Patience,
    what: str,
    question: Callable[[], T],
    wait: Callable[[float], object] = time.sleep,
) -> T:
    """Return the answer to a question, asked again after interruptions; `what` is it about.

    Raises: Interrupted.
    """
    retries = Retries(options, what, wait)
    while True:
        try:
            return question()
        except Interrupted as error:
            retries.failed(error)
