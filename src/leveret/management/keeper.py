"""What the gate of the HTTP API is handed in: who judges passwords, and where peers are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Keeper:
    """The keeper of a gate.

    `judge` tells whether a password is a user's, `is_local` whether an address is of the broker's
    own machine; `loopback_users` come in from there only.
    """

    judge: Callable[[str, bytes], Awaitable[bool]]
    is_local: Callable[[str], bool]
    loopback_users: tuple[str, ...]
    login_failure_delay_ms: int
