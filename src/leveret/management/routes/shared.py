"""What the routes share: where the broker is, JSON, and listings that are sent in slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

from aiohttp import web

from leveret.broker.admin.stats import has_vhost
from leveret.broker.node.broker import Broker
from leveret.broker.vhost.vhost import Vhost
from leveret.clock import Clock
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.management.chunk_source import ChunkSource
from leveret.management.operator import Operator
from leveret.names import Name, cleaned

#: The broker that an application shows.
BROKER: Final = web.AppKey("broker", Broker)

#: Who operates it.
OPERATOR: Final = web.AppKey("operator", Operator)

#: Snapshots taken and written before the loop does something else (about 5 ms of work).
SLICE_ROWS: Final = 500

#: The clock that peers are judged by; it stands still while the process does.
CLOCK: Final = web.AppKey("clock", Clock)

#: Where it has its chunks read.
CHUNKS: Final = web.AppKey("chunks", ChunkSource)

Row = dict[str, object]
Stats = TypeVar("Stats")

#: What every answer in JSON has.
JSON_HEADERS: Final = {"Cache-Control": "no-cache", "Content-Type": "application/json"}


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=json.dumps(body, ensure_ascii=False).encode(),
        status=status,
        headers={**(headers or {}), **JSON_HEADERS},
    )


def error_response(error: AmqpError, *, names: bool = False) -> web.Response:
    """Return an error of the domain by the table of statuses in `errors`, in RabbitMQ's words.

    With `names` a 404 tells in `detail` what is missing, for who may know all that is there.
    """
    status = error.http_status
    if status == HTTPStatus.NOT_FOUND:
        body: Row = {"error": "Object Not Found", "reason": "Not Found"}
        if names and error.text:
            body["detail"] = error.text
        return json_response(body, status)
    if status == HTTPStatus.UNAUTHORIZED:
        # RabbitMQ's spelling here, and it does not say what is not allowed.
        return json_response({"error": "not_authorised", "reason": "Access refused."}, status)
    name = HTTPStatus(status).phrase.lower().replace(" ", "_")
    return json_response({"error": name, "reason": error.text}, status)


def name_of(request: web.Request, part: str) -> Name:
    """Return the name of an exchange, a queue or a super stream that the path has at `part`.

    Nothing but it is judged, looked up and changed: the path itself may have line ends in it.

    Raises: PreconditionFailed (400 in HTTP) for line ends alone.
    """
    return cleaned(request.match_info[part])


def vhost_of(request: web.Request) -> str | None:
    """Return the vhost that the path names; None without.  Raises: NotFound (404)."""
    vhost = request.match_info.get("vhost")
    if vhost is not None and not has_vhost(request.app[BROKER], vhost):
        raise NotFound(f"no vhost '{vhost}'")
    return vhost


def found_vhost(request: web.Request) -> Vhost:
    """Return the vhost that the path names.  Raises: NotFound (404)."""
    vhost = request.app[BROKER].vhosts.get(request.match_info["vhost"])
    if vhost is None:
        raise NotFound(f"no vhost '{request.match_info['vhost']}'")
    return vhost


def number_of_query(request: web.Request, name: str, default: int | None, most: int) -> int:
    """Return a number from 0 to `most` in a request's query; without a default it must be there.

    Raises: PreconditionFailed (400 in HTTP).
    """
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 20:
        raise PreconditionFailed(f"the query must have a number '{name}'")
    if int(text) > most:
        raise PreconditionFailed(f"the number '{name}' of the query is {most} at most")
    return int(text)


async def stream_rows(
    request: web.Request, take: Callable[[int], list[Stats]], row: Callable[[Stats], Row]
) -> web.StreamResponse:
    """Answer with an array of what `take` gives, slice by slice, so that nobody waits for it."""
    response = web.StreamResponse(headers=JSON_HEADERS)
    await response.prepare(request)
    separator = "["
    while taken := take(SLICE_ROWS):
        texts = ",".join([json.dumps(row(stats), ensure_ascii=False) for stats in taken])
        await response.write((separator + texts).encode())
        separator = ","
        await asyncio.sleep(0)
    await response.write(b"[]" if separator == "[" else b"]")
    await response.write_eof()
    return response
