"""The retry policy after interruptions, for driver and tasks, reads and writes.

Retries follow after 0.5, 1, 2 and 4 seconds and then every 5, until `retryTimeoutMs` have passed
since the first of the consecutive interruptions.  A broker takes 7 seconds or more to start after a
kill, and a machine some minutes to restart.  `numRetries` limits consecutive attempts instead; then
there is no time limit unless `retryTimeoutMs` is also given.

Invariants: no attempt begins after the time limit.  If a nested retry gives up, the outer one gives
up too.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from leveret.spark.connection.connecting import place_of
from leveret.spark.transport import Interrupted

FIRST_WAIT_SECONDS: Final = 0.5
WAIT_SECONDS_MAX: Final = 5.0

T = TypeVar("T")
log = logging.getLogger("leveret.spark")


class Patience(Protocol):
    """The options that limit the time and the number of retries."""

    @property
    def uri(self) -> str:
        """The broker's URI."""

    @property
    def retry_timeout_ms(self) -> int:
        """The time limit of retries."""

    @property
    def num_retries(self) -> int | None:
        """The maximum number of consecutive retries, or None for no limit."""

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the given options."""


class Pause(ABC):
    """A clock with a wait, which tests replace."""

    @abstractmethod
    def now(self) -> float:
        """Return monotonic seconds."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Wait for some seconds."""


class RealPause(Pause):
    """The real clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)


REAL_PAUSE: Final = RealPause()


class BrokerUnreachable(Interrupted):
    """All retries failed; the text contains the address and the cause."""


class ConnectionRetries:
    """Counts consecutive interruptions, and limits their number and time."""

    def __init__(self, options: Patience, what: str, pause: Pause = REAL_PAUSE) -> None:
        self._options = options
        self._place = place_of(options.uri)
        self._what = f"{what} at {self._place}"
        self._pause = pause
        self._count = 0
        self._began = 0.0

    def succeeded(self) -> None:
        """Reset the count of interruptions after progress."""
        self._count = 0

    def failed(self, error: Interrupted) -> None:
        """Wait before the next attempt.  Raises: BrokerUnreachable if no attempt is left."""
        if isinstance(error, BrokerUnreachable):
            raise error
        if self._count == 0:
            self._began = self._pause.now()
        self._count += 1
        seconds = self._seconds_left()
        if seconds <= 0:
            raise self._given_up(error) from error
        seconds = min(seconds, WAIT_SECONDS_MAX, FIRST_WAIT_SECONDS * 2 ** min(self._count - 1, 9))
        log.warning("%s: %s; again in %.1f s", self._what, self._cause(error), seconds)
        self._pause.wait(seconds)

    def _seconds_left(self) -> float:
        """Return the maximum wait before the next attempt, or 0 or less if no time is left."""
        options = self._options
        if options.num_retries is not None:
            if self._count > options.num_retries:
                return 0.0
            if "retryTimeoutMs" not in options.given:
                return WAIT_SECONDS_MAX
        return options.retry_timeout_ms / 1000 - (self._pause.now() - self._began)

    def _given_up(self, error: Interrupted) -> BrokerUnreachable:
        seconds = self._pause.now() - self._began
        by_count = self._options.num_retries is not None
        name = "numRetries" if by_count else "retryTimeoutMs"
        return BrokerUnreachable(
            f"{self._what}: {self._cause(error)}. The broker was asked {self._count} times in "
            f"{seconds:.1f} s, the limit of the option {name}: check that it runs at this address"
        )

    def _cause(self, error: Interrupted) -> str:
        """Return an interruption's text without the broker's address at its beginning."""
        return str(error).removeprefix(f"{self._place}: ")


def ask(options: Patience, what: str, question: Callable[[], T], pause: Pause = REAL_PAUSE) -> T:
    """Call `question` until it is not interrupted, and return its result.

    `what` is its subject, for logs and errors.

    Raises: BrokerUnreachable.
    """
    retries = ConnectionRetries(options, what, pause)
    while True:
        try:
            return question()
        except Interrupted as error:
            retries.failed(error)
