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


#: What `Recovery.on_event` is called with: `Disconnected`, `Reconnecting`, `Recovered` or `GaveUp`.
RecoveryEvent = Disconnected | Reconnecting | Recovered | GaveUp


@dataclass(frozen=True, slots=True)
class Recovery:
    """The limits, delays and callback of recovery, for `connect(recover=…)`.

    Raises: ValueError for a negative limit or delay.
    """

    #: The attempts after a loss before the connection ends with the last error; None: no limit.
    reconnect_attempts_max: int | None = None
    #: The seconds after a loss in which another attempt begins; None: no limit.
    reconnect_seconds_max: float | None = None
    #: How often a consumer that the broker cancels looks for its queue, before it ends.
    consumer_attempts_max: int = 10
    #: The seconds after a loss in which the lost connection is assumed to hold a locked exclusive
    #: queue or consumer; after that, it counts as refused.  None: no limit.
    exclusive_seconds_max: float | None = EXCLUSIVE_SECONDS_MAX
    #: The delay before the first attempt, which doubles with each one.  The actual delay is random,
    #: between half of it and the whole.
    delay_seconds: float = DELAY_SECONDS
    #: The maximum of the delay.
    delay_seconds_max: float = DELAY_SECONDS_MAX
    #: Whether to add the headers `x-publisher` and `x-publishing-id` to publishes in confirm mode,
    #: if the broker is Leveret, so that it drops repeats (publisher deduplication).
    numbered: bool = False
    #: A function that is called with each `RecoveryEvent`; its errors are logged and ignored.
    on_event: Callable[[RecoveryEvent], object] | None = None
    #: The source of the random delays: a function that returns a number from 0 to 1.
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
