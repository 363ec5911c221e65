"""`GET /api/memory`: what the account of memory holds, by kind."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.admin.memory_use import memory_use
from leveret.management.routes.shared import BROKER, json_response


async def memory(request: web.Request) -> web.Response:
    """Return a row for each kind."""
    return json_response(memory_use(request.app[BROKER]))


ROUTES: Final = (web.get("/api/memory", memory),)
