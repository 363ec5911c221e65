"""The server's functions that the HTTP gate uses: password checks and local addresses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


def _usual(_user: str, _address: str) -> int:
    """Apply the normal delay to each refusal."""
    return 1


@dataclass
class GateKeeper:
    """The login policy of a gate.

    `judge` verifies the password of a user at an address; it returns None if too many logins wait.
    `is_local` returns whether an address belongs to the broker's own machine.  `loopback_users` may
    connect from such addresses only, and only if the request's host is an address, localhost or one
    of `names`.  `backoff` returns the factor of the failure delay for a user at an address.  A
    reload of the settings changes `loopback_users`, `names` and `login_failure_delay_ms` for later
    logins.
    """

    judge: Callable[[str, bytes, str], Awaitable[bool | None]]
    is_local: Callable[[str], bool]
    loopback_users: tuple[str, ...]
    login_failure_delay_ms: int
    backoff: Callable[[str, str], int] = _usual
    names: frozenset[str] = frozenset()
