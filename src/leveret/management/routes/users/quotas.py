"""`GET /api/quotas`: the number of objects of users and vhosts, and their limits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.broker import Broker
from leveret.broker.stats.quota_use import user_quotas, vhost_quotas
from leveret.management.api_route import ApiRoute
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MONITORING
from leveret.management.routes.shared import BROKER, Row, as_it_is, stream_slices


async def quotas(request: web.Request) -> web.StreamResponse:
    """Return a row for each limit of each user and vhost, and for objects without a limit.

    Users and vhosts deleted meanwhile are left out.
    """
    left = _quotas(request.app[BROKER])

    async def take(count: int) -> list[Row]:
        while judged := list(islice(left, count)):
            if rows := [row for rows in judged for row in rows]:
                return rows
            # Users without limits and without objects have no rows.
            await next_slice()
        return []

    return await stream_slices(request, take, as_it_is)


def _quotas(broker: Broker) -> Iterator[list[Row]]:
    """Yield the rows of each user and each vhost; a list may be empty."""
    for name in list(broker.users.by_name):
        yield user_quotas(broker, name) if name in broker.users.by_name else []
    for name in list(broker.vhosts):
        yield vhost_quotas(broker, name) if name in broker.vhosts else []


ROUTES: Final = (ApiRoute("GET", "/api/quotas", quotas, MONITORING, rows=True, heavy=True),)
