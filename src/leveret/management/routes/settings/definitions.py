"""`/api/definitions`: all that was declared and set, as RabbitMQ's JSON."""

from __future__ import annotations

import secrets
from typing import Final

from aiohttp import web

from leveret.broker.admin.definitions import export_definitions, export_vhost
from leveret.broker.admin.definitions_import import import_definitions
from leveret.management.definitions import read_definitions, write_definitions
from leveret.management.routes.shared import BROKER, OPERATOR, json_response
from leveret.session.settings import RABBITMQ_VERSION


async def export(request: web.Request) -> web.Response:
    """Return the definitions of the broker or of a vhost."""
    broker = request.app[BROKER]
    vhost = request.match_info.get("vhost")
    found = export_definitions(broker) if vhost is None else export_vhost(broker, vhost)
    return web.Response(
        body=write_definitions(found, RABBITMQ_VERSION), content_type="application/json"
    )


async def take(request: web.Request) -> web.Response:
    """Add definitions to what is there, all or nothing; return what came of them."""
    definitions = read_definitions(await request.read())
    salt = secrets.token_bytes(16)
    vhost = request.match_info.get("vhost")
    async with request.app[OPERATOR].changing():
        report = import_definitions(request.app[BROKER], definitions, salt, vhost)
    return json_response(
        {"changed": report.changed, "left_out": report.notes, "without_effect": report.kept}
    )


ROUTES: Final = (
    web.get("/api/definitions", export),
    web.get("/api/definitions/{vhost}", export),
    web.post("/api/definitions", take),
    web.post("/api/definitions/{vhost}", take),
)
