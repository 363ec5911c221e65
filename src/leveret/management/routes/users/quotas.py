"""`GET /api/quotas`: what users and vhosts have, beside what their limits allow."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.admin.quota_use import user_quotas, vhost_quotas
from leveret.management.requests.slices import next_slice
from leveret.management.routes.shared import (
    BROKER,
    SLICE_ROWS,
    Row,
    as_it_is,
    in_slices,
    stream_rows,
)


async def quotas(request: web.Request) -> web.StreamResponse:
    """Return a row for each limit of each user and vhost, and for what they have without one.

    Who is deleted meanwhile is left out.
    """
    broker = request.app[BROKER]
    rows: list[Row] = []
    for number, name in enumerate(list(broker.users.by_name), 1):
        if name in broker.users.by_name:
            rows += user_quotas(broker, name)
        if number % SLICE_ROWS == 0:
            await next_slice()
    for number, name in enumerate(list(broker.vhosts), 1):
        if name in broker.vhosts:
            rows += vhost_quotas(broker, name)
        if number % SLICE_ROWS == 0:
            await next_slice()
    return await stream_rows(request, in_slices(rows), as_it_is)


ROUTES: Final = (web.get("/api/quotas", quotas),)
