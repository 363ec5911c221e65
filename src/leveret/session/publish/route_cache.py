"""The resolved routes that a connection caches for its next publishes.

Invariants: their memory is booked in the connection's account; all belong to one revision of the
topology.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.accounts import ROUTE_BYTES
from leveret.limits import ROUTE_TARGETS_CACHED_MAX, ROUTES_CACHED_MAX
from leveret.session.client_session import ClientSession
from leveret.session.publish.route import Route


@final
class RouteCache:
    """The cached routes of one connection, by a key that depends on its protocol."""

    def __init__(self, connection: ClientSession) -> None:
        self._connection: Final = connection
        self.known: Final[dict[bytes, Route]] = {}
        #: The route used last, and its key; empty without one.
        self.last: Route | None = None
        self.last_key = b""
        #: The bytes booked for the routes, and the number of all their targets.
        self._booked: i64 = 0
        self._targets: i64 = 0
        #: The topology revision of the routes.
        self._revision: i64 = 0

    def remember(self, key: bytes, route: Route) -> None:
        """Cache a route, dropping all others if the cache is full."""
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

    def find(self, key: bytes) -> Route | None:
        """Return a cached route, or None."""
        if key is self.last_key:
            return self.last
        route = self.known.get(key)
        if route is not None:
            self.last = route
            self.last_key = key
        return route

    def forget_stale(self) -> None:
        """Drop the routes if the topology has changed, because they reference deleted queues."""
        vhost = self._connection.vhost
        if vhost is not None and vhost.revision != self._revision:
            self._revision = vhost.revision
            self.forget()

    def forget(self) -> None:
        """Drop all routes."""
        self.known.clear()
        self.last = None
        self.last_key = b""
        self._connection.account.book(-self._booked)
        self._booked = 0
        self._targets = 0
