"""`GET /api/quotas`: what users and vhosts have, beside what their limits allow."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.admin.quota_use import user_quotas, vhost_quotas
from leveret.management.routes.shared import BROKER, Row, json_response


async def quotas(request: web.Request) -> web.Response:
    """Return a row for each limit of each user and vhost, and for what they have without one."""
    broker = request.app[BROKER]
    rows: list[Row] = []
    for name in broker.users.by_name:
        rows += user_quotas(broker, name)
    for name in broker.vhosts:
        rows += vhost_quotas(broker, name)
    return json_response(rows)


ROUTES: Final = (web.get("/api/quotas", quotas),)
