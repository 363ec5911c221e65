"""Settings and events of connection recovery.

The names that an application uses are exported by `leveret.client`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

#: The delay before the first attempt, in seconds; it doubles for each further attempt.
DELAY_SECONDS: Final = 0.1

#: The maximum delay between two attempts, in seconds.
DELAY_SECONDS_MAX: Final = 10.0

#: A broker notices a lost client after two heartbeat intervals, usually of one minute each.
EXCLUSIVE_SECONDS_MAX: Final = 180.0


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection was lost because of `error`; recovery begins."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Reconnecting:
    """Attempt `attempt` (from 1) begins in `delay_seconds`, because of `error`."""

    attempt: int
    delay_seconds: float
    error: Exception


@dataclass(frozen=True, slots=True)
class Recovered:
    """The connection is open again after `attempts` attempts, and its state is restored.

    `failures` are the errors of declarations and bindings that the broker refused.
    """

    attempts: int
    failures: tuple[Exception, ...] = ()


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Recovery has reached its limits and the connection has ended; `error` is the last error."""

    error: Exception


RecoveryEvent = Disconnected | Reconnecting | Recovered | GaveUp


@dataclass(frozen=True, slots=True)
class Recovery:
    """The limits, delays and callback of recovery; a limit of None means no limit.

    Each delay is random, between half and all of the current value.  `on_event` is called with each
    `RecoveryEvent`; its errors are logged and ignored.  A consumer that the broker cancels checks
    for its queue up to `consumer_attempts_max` times.  If an exclusive queue or consumer is locked,
    the lost connection is assumed to own it for `exclusive_seconds_max`; after that it counts as
    refused.  If the broker is Leveret, `numbered` adds the headers `x-publisher` and
    `x-publishing-id` to publishes in confirm mode, so that the broker drops repeats (publisher
    deduplication).

    Raises: ValueError for a negative limit or delay.
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
                raise ValueError(f"{name} is {limit}; it must be None (no limit), 0 or more")
        for name in ("delay_seconds", "delay_seconds_max"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be 0 or more")


def settings_of(recover: bool | Recovery) -> Recovery | None:
    """Return the settings for the `recover` argument of `connect`, or None for no recovery."""
    if isinstance(recover, Recovery):
        return recover
    return Recovery() if recover else None
