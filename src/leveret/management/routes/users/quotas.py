"""`GET /api/quotas`: the numbers of objects of users and vhosts, and the limits on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web

from leveret.broker.broker import Broker
from leveret.broker.stats.quota_use import user_quotas, vhost_quotas
from leveret.management.api_route import ApiRoute
from leveret.management.rights import MONITORING
from leveret.management.routes.lists import as_it_is, stream_rows
from leveret.management.routes.shared import BROKER, Row


async def quotas(request: web.Request) -> web.StreamResponse:
    """Return the limits of users and vhosts, and the numbers of their objects.

    Users and vhosts that are deleted during the request are omitted.
    """
    return await stream_rows(request, _quotas(request.app[BROKER]), as_it_is)


def _quotas(broker: Broker) -> Iterator[Row | None]:
    """Yield the rows of users and vhosts, and None for each one that has no rows."""
    for name in list(broker.users.by_name):
        rows = user_quotas(broker, name) if name in broker.users.by_name else []
        yield from rows or (None,)
    for name in list(broker.vhosts):
        rows = vhost_quotas(broker, name) if name in broker.vhosts else []
        yield from rows or (None,)


ROUTES: Final = (ApiRoute("GET", "/api/quotas", quotas, MONITORING, rows=True, heavy=True),)
