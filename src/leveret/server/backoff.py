"""Increases the delay of repeated refused logins, and remembers who logged in, and from where.

Each refusal counts for its address, and for its pair of address and user.  The counts halve every
minute and lengthen the delay of the next refusal.  Refusals are never counted against a user alone,
and a correct password is never delayed, so guessing cannot lock out another user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.server.login_queue import NETWORK_KNOWN, PAIR_KNOWN, UNKNOWN

#: The maximum factor of the delay of a refused login.
LOGIN_BACKOFF_MAX: Final = 8

#: The maximum number of addresses, and of pairs of address and user, that are counted or known; and
#: how long a login is remembered.
LOGIN_NETWORKS_KNOWN_MAX: Final = 4096
LOGIN_PAIRS_KNOWN_MAX: Final = 4096
LOGINS_KNOWN_SECONDS: Final = 86_400


#: The numbers of refusals of an address, and of a pair of address and user, that increase the
#: factor by one.
NETWORK_REFUSALS: Final = 100
PAIR_REFUSALS: Final = 10

#: The half-life of a count.
HALVES_SECONDS: Final = 60.0


def _pair(network: str, user: str) -> str:
    """Return the key of a pair of address and user; no user name is longer than the limit."""
    return f"{network} {user[:SHORT_STRING_BYTES_MAX]}"


class _Counts:
    """Decaying counts of at most `names_max` names; the least recently counted is dropped first."""

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


class LoginThrottle:
    """The counts of refused logins, and the known logins, of one broker.

    `now` returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.networks = _Counts(LOGIN_NETWORKS_KNOWN_MAX, now)
        self.pairs = _Counts(LOGIN_PAIRS_KNOWN_MAX, now)
        #: When known pairs and known addresses expire; the oldest entry is dropped first.
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
        """Return whether this user, any user or none logged in from an address in the last day."""
        now = self._now()
        if self._known.get(_pair(network, user), 0.0) > now:
            return PAIR_KNOWN
        return NETWORK_KNOWN if self._networks_known.get(network, 0.0) > now else UNKNOWN

    def factor(self, network: str, user: str) -> int:
        """Return the factor for the delay of the next refusal, 1 or more."""
        of_network = self.networks.of(network) / NETWORK_REFUSALS
        of_pair = self.pairs.of(_pair(network, user)) / PAIR_REFUSALS
        return min(LOGIN_BACKOFF_MAX, 1 + int(max(of_network, of_pair)))
