"""`GET /api/quotas`: the number of objects of users and vhosts, and their limits."""

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
    """Return a row for each limit of each user and vhost, and for objects without a limit.

    Users and vhosts deleted meanwhile are left out.
    """
    return await stream_rows(request, _quotas(request.app[BROKER]), as_it_is)


def _quotas(broker: Broker) -> Iterator[Row | None]:
    """Yield the rows of each user and each vhost; None for one without limits and objects."""
    for name in list(broker.users.by_name):
        rows = user_quotas(broker, name) if name in broker.users.by_name else []
        yield from rows or (None,)
    for name in list(broker.vhosts):
        rows = vhost_quotas(broker, name) if name in broker.vhosts else []
        yield from rows or (None,)


ROUTES: Final = (ApiRoute("GET", "/api/quotas", quotas, MONITORING, rows=True, heavy=True),)
