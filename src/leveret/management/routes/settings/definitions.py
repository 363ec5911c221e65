"""`/api/definitions`: exports and imports declared objects and settings in RabbitMQ's JSON."""

from __future__ import annotations

import secrets
from email.parser import BytesParser
from email.policy import HTTP
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.definitions.exports import definition_rows, sections_of, vhost_head
from leveret.broker.definitions.imports import add_definitions
from leveret.errors import PreconditionFailed
from leveret.limits import HTTP_WRITE_BYTES_MAX
from leveret.management.api_route import ApiRoute
from leveret.management.definitions import DefinitionsWriter, read_in_slices
from leveret.management.requests.slices import next_slice
from leveret.management.rights import ADMINISTRATION
from leveret.management.routes.lists import RowSlices
from leveret.management.routes.node.identity import cluster_name
from leveret.management.routes.shared import BROKER, OPERATOR, begins, json_response

#: Rows made per slice; a row may have thousands of values.
_ROWS_AT_ONCE: Final = 20


async def export(request: web.Request) -> web.StreamResponse:
    """Return the definitions of the broker or of a vhost."""
    broker = request.app[BROKER]
    vhost = request.match_info.get("vhost")
    version = request.app[OPERATOR].rabbitmq_version
    head = _head(request) if vhost is None else vhost_head(broker, vhost)
    writer = DefinitionsWriter(version, head)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    if not await begins(request, response):
        return response
    slices = RowSlices()
    for section in sections_of(vhost):
        part = writer.rows(section, [])
        rows = definition_rows(broker, vhost, section)
        while taken := list(islice(rows, _ROWS_AT_ONCE)):
            for row in taken:
                text = writer.rows(section, [row])
                part += text
                await slices.made(row, len(text))
                # Rows may have long arguments.
                if len(part) >= HTTP_WRITE_BYTES_MAX:
                    await response.write(part)
                    part = b""
            await next_slice()
        await response.write(part)
    await response.write(writer.end())
    await response.write_eof()
    return response


def _head(request: web.Request) -> Arguments:
    """Return the fields that precede the sections in the definitions of the whole broker."""
    name = cluster_name(request)
    return {
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": name,
        "explanation": f"Definitions of cluster '{name}'",
    }


async def take(request: web.Request) -> web.Response:
    """Import definitions, all or none; return changes, omissions and items without effect."""
    definitions = await read_in_slices(await _uploaded(request))
    vhost = request.match_info.get("vhost")
    operator = request.app[OPERATOR]
    broker = request.app[BROKER]
    operator.begin()
    adding = add_definitions(broker, definitions, secrets.token_bytes(16), vhost)
    report = await operator.performed(broker.core, adding)
    return json_response(
        {"changed": report.changed, "left_out": report.notes, "without_effect": report.kept}
    )


async def _uploaded(request: web.Request) -> bytes:
    """Return the definitions in a body: the whole body, or the file in a form from a browser.

    Raises: PreconditionFailed (400 in HTTP) for a form without the part `file`.
    """
    raw = await request.read()
    if request.content_type != "multipart/form-data":
        return raw
    head = f"Content-Type: {request.headers.get('Content-Type', '')}\r\n\r\n"
    form = BytesParser(policy=HTTP).parsebytes(head.encode("utf-8", "replace") + raw)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_param("name", header="Content-Disposition") == "file":
            content = part.get_payload(decode=True)
            return content if isinstance(content, bytes) else b""
    raise PreconditionFailed("the form has no part 'file' with the definitions")


ROUTES: Final = (
    ApiRoute("GET", "/api/definitions", export, ADMINISTRATION, heavy=True),
    # The path in RabbitMQ 2.
    ApiRoute("GET", "/api/all-configuration", export, ADMINISTRATION, heavy=True),
    ApiRoute("POST", "/api/all-configuration", take, ADMINISTRATION, heavy=True),
    ApiRoute("GET", "/api/definitions/{vhost}", export, ADMINISTRATION, heavy=True),
    ApiRoute("POST", "/api/definitions", take, ADMINISTRATION, heavy=True),
    ApiRoute("POST", "/api/definitions/{vhost}", take, ADMINISTRATION, heavy=True),
)
