"""The routes that a connection remembers for what it publishes next.

Invariants: what they take is booked in the connection's account; they are of one topology.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.accounts import ROUTE_BYTES
from leveret.limits import ROUTE_TARGETS_CACHED_MAX, ROUTES_CACHED_MAX
from leveret.session.client_session import ClientSession
from leveret.session.publish.route import Route


@final
class RouteCache:
    """The routes of one connection, by what names them in its protocol."""

    def __init__(self, connection: ClientSession) -> None:
        self._connection: Final = connection
        self.known: Final[dict[bytes, Route]] = {}
        #: What is booked for them, and the targets that they have in all.
        self._booked: i64 = 0
        self._targets: i64 = 0
        #: The topology that they are of.
        self._revision: i64 = 0

    def remember(self, key: bytes, route: Route) -> None:
        """Remember a route, in place of all others where they are too many."""
        self.forget_stale()
        targets: i64 = len(route.targets)
        full = len(self.known) >= ROUTES_CACHED_MAX
        if full or self._targets + targets > ROUTE_TARGETS_CACHED_MAX:
            self.forget()
        self._targets += targets
        size = ROUTE_BYTES + 2 * i64(len(key)) + 8 * targets
        self._booked += size
        self._connection.account.book(size)
        self.known[key] = route

    def forget_stale(self) -> None:
        """Forget routes of a topology that has changed: they hold what was deleted."""
        vhost = self._connection.vhost
        if vhost is not None and vhost.revision != self._revision:
            self._revision = vhost.revision
            self.forget()

    def forget(self) -> None:
        """Forget every route."""
        self.known.clear()
        self._connection.account.book(-self._booked)
        self._booked = 0
        self._targets = 0
