"""What the gate of the HTTP API is handed in: who judges passwords, and where peers are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


def _usual(_user: str, _address: str) -> int:
    """Have each refusal wait for the usual delay."""
    return 1


@dataclass
class Keeper:
    """The keeper of a gate.

    `judge` tells whether a password is the user's who asks from an address, None if too many wait
    to look; `is_local` whether an address is of the broker's own machine; `loopback_users` come in
    from there only, and only for a host that is an address, localhost or one of `names`.
    `backoff` says by how many times the delay a user from an address waits.  Where settings are
    reloaded, `loopback_users`, `names` and `login_failure_delay_ms` change, and hold from the next
    login on.
    """

    judge: Callable[[str, bytes, str], Awaitable[bool | None]]
    is_local: Callable[[str], bool]
    loopback_users: tuple[str, ...]
    login_failure_delay_ms: int
    backoff: Callable[[str, str], int] = _usual
    names: frozenset[str] = frozenset()
