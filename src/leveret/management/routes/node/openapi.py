"""`GET /api/openapi.json`: the API's own description."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.management.openapi import document
from leveret.management.routes.shared import json_response


async def openapi(request: web.Request) -> web.Response:
    """Return the description of the served routes, as OpenAPI 3.1."""
    return json_response(document(request.app.router.routes()))


ROUTES: Final = (web.get("/api/openapi.json", openapi),)
