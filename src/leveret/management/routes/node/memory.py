"""`GET /api/memory`: the accounted memory, by kind."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.stats.memory_use import memory_use
from leveret.management.api_route import ApiRoute
from leveret.management.rights import MONITORING
from leveret.management.routes.shared import BROKER, json_response


async def memory(request: web.Request) -> web.Response:
    """Return the accounted memory, with a row for each kind."""
    return json_response(memory_use(request.app[BROKER]))


ROUTES: Final = (ApiRoute("GET", "/api/memory", memory, MONITORING, rows=True),)
