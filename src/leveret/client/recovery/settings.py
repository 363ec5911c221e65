"""How a connection recovers, and what it tells of it.

The names that an application uses are exported by `leveret.client`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

#: Before the first attempt at most so many seconds, then twice as many each time.
DELAY_SECONDS: Final = 0.1

#: Between two attempts at most so many seconds.
DELAY_SECONDS_MAX: Final = 10.0

#: A broker misses a client after two heartbeats, which are mostly of a minute.
EXCLUSIVE_SECONDS_MAX: Final = 180.0


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection was lost by `error` and is about to be recovered."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Attempt number `attempt` (from 1) begins in `delay_seconds`; `error` is why it has to."""

    attempt: int
    delay_seconds: float
    error: Exception


@dataclass(frozen=True, slots=True)
class Recovered:
    """The connection is open again after `attempts`, and everything on it was done again.

    `failures` are the errors of what the broker refused to declare or to bind again.
    """

    attempts: int
    failures: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The connection has ended for good, by the limits of its recovery; `error` is the last one."""

    error: Exception


RecoveryEvent = Disconnected | Reconnecting | Recovered | GaveUp


@dataclass(frozen=True, slots=True)
class Recovery:
    """The limits of recovery, its delays and who hears of it; None is no limit.

    The delay before an attempt is random between half of its value and the whole.  `on_event` is
    called with each of the events above; what it raises is logged and goes no further.  A consumer
    that the broker cancels looks for its queue `consumer_attempts_max` times.  What is exclusive
    counts as held by the lost connection for `exclusive_seconds_max`, and as refused after that.
    `numbered` gives confirmed publishes the headers `x-publisher` and `x-publishing-id` where the
    broker is Leveret, so that it drops what is sent a second time.

    Raises: ValueError for a limit or a delay below 0.
    """

    reconnect_attempts_max: int | None = None
    reconnect_seconds_max: float | None = None
    consumer_attempts_max: int = 10
    exclusive_seconds_max: float | None = EXCLUSIVE_SECONDS_MAX
    delay_seconds: float = DELAY_SECONDS
    delay_seconds_max: float = DELAY_SECONDS_MAX
    numbered: bool = False
    on_event: Callable[[RecoveryEvent], object] | None = None
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        for name in (
            "reconnect_attempts_max",
            "reconnect_seconds_max",
            "consumer_attempts_max",
            "exclusive_seconds_max",
        ):
            limit = getattr(self, name)
            if limit is not None and limit < 0:
                raise ValueError(f"{name} is {limit}; it is None (no limit), 0 or more")
        for name in ("delay_seconds", "delay_seconds_max"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it is 0 or more")


def settings_of(recover: bool | Recovery) -> Recovery | None:
    """Return the settings that the argument `recover` of `connect` means; None for no recovery."""
    if isinstance(recover, Recovery):
        return recover
    return Recovery() if recover else None
