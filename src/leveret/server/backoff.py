"""How much longer refused logins of an address wait, and who has logged in from where.

Each refusal counts for its address, and for its pair of address and user; the count halves each
minute.  The answer to the next refusal is held back by that much longer.  It never counts for a
user alone, and no right password waits: nobody can lock out another one by guessing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.limits import (
    LOGIN_BACKOFF_MAX,
    LOGIN_NETWORKS_KNOWN_MAX,
    LOGIN_PAIRS_KNOWN_MAX,
    LOGINS_KNOWN_SECONDS,
    SHORT_STRING_BYTES_MAX,
)
from leveret.server.login_queue import NETWORK_KNOWN, PAIR_KNOWN, UNKNOWN

#: The refusals of an address, and of a pair of address and user, that each make an answer wait once
#: longer.
NETWORK_REFUSALS: Final = 100
PAIR_REFUSALS: Final = 10

#: In this time a count is halved.
HALVES_SECONDS: Final = 60.0


def _pair(network: str, user: str) -> str:
    """Return what counts for a user at an address; nobody has a longer name than what is kept."""
    return f"{network} {user[:SHORT_STRING_BYTES_MAX]}"


class _Counts:
    """Counts that fade, of so many names at most; the one that was not counted for longest goes."""

    def __init__(self, names_max: int, now: Callable[[], float]) -> None:
        self._names_max = names_max
        self._now = now
        self._counts: dict[str, tuple[float, float]] = {}

    def of(self, name: str) -> float:
        count, since = self._counts.get(name, (0.0, 0.0))
        return float(count * 0.5 ** ((self._now() - since) / HALVES_SECONDS))

    def add(self, name: str) -> None:
        count = self.of(name) + 1
        self._counts.pop(name, None)
        if len(self._counts) >= self._names_max:
            del self._counts[next(iter(self._counts))]
        self._counts[name] = (count, self._now())

    def forget(self, name: str) -> None:
        self._counts.pop(name, None)

    def __len__(self) -> int:
        return len(self._counts)


class Backoff:
    """What a broker remembers of who logs in; `now` tells seconds that never go back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.networks = _Counts(LOGIN_NETWORKS_KNOWN_MAX, now)
        self.pairs = _Counts(LOGIN_PAIRS_KNOWN_MAX, now)
        #: Until when a pair counts as known that logged in; the one that did so first goes first.
        self._known: dict[str, float] = {}
        self._networks_known: dict[str, float] = {}

    def refused(self, network: str, user: str) -> None:
        """Count a refusal."""
        self.networks.add(network)
        self.pairs.add(_pair(network, user))

    def accepted(self, network: str, user: str) -> None:
        """Remember that a user logged in from an address."""
        pair = _pair(network, user)
        self.pairs.forget(pair)
        self._know(self._known, pair, LOGIN_PAIRS_KNOWN_MAX)
        self._know(self._networks_known, network, LOGIN_NETWORKS_KNOWN_MAX)

    def _know(self, known: dict[str, float], name: str, names_max: int) -> None:
        known.pop(name, None)
        if len(known) >= names_max:
            del known[next(iter(known))]
        known[name] = self._now() + LOGINS_KNOWN_SECONDS

    def standing(self, network: str, user: str) -> int:
        """Return who has logged in from an address within the last day: the user, or somebody."""
        now = self._now()
        if self._known.get(_pair(network, user), 0.0) > now:
            return PAIR_KNOWN
        return NETWORK_KNOWN if self._networks_known.get(network, 0.0) > now else UNKNOWN

    def factor(self, network: str, user: str) -> int:
        """Return by how many times the delay of a refusal the next one is to wait, 1 or more."""
        of_network = self.networks.of(network) / NETWORK_REFUSALS
        of_pair = self.pairs.of(_pair(network, user)) / PAIR_REFUSALS
        return min(LOGIN_BACKOFF_MAX, 1 + int(max(of_network, of_pair)))
