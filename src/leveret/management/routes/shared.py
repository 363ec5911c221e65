"""Functions that the routes share: objects named in a path, and JSON answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from leveret.broker.broker import Broker
from leveret.broker.vhost.vhost import Vhost
from leveret.clock import Clock
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.management.chunk_source import ChunkSource
from leveret.management.direct import DirectChannel, direct_channel
from leveret.management.gate import seen_vhosts
from leveret.management.login.origin import is_page
from leveret.management.operator import Operator
from leveret.management.page import takes_gzip
from leveret.management.paging import PageOutOfRange, columns_of
from leveret.names import Name, cleaned

#: The broker of an application.
BROKER: Final = web.AppKey("broker", Broker)

#: The functions that change the broker.
OPERATOR: Final = web.AppKey("operator", Operator)

#: The clock for timeouts of peers, which stops while the process is suspended.
CLOCK: Final = web.AppKey("clock", Clock)

#: The reader of stored chunks.
CHUNKS: Final = web.AppKey("chunks", ChunkSource)

Row = dict[str, object]

#: The headers of every JSON answer.
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
    """Return the answer for an error of the broker, with RabbitMQ's status and wording.

    With `names`, the `detail` of a 404 names the missing object, for callers who may see all.
    """
    status = error.http_status
    if isinstance(error, PageOutOfRange):
        return json_response({"error": "page_out_of_range", "reason": error.text}, status)
    if status == HTTPStatus.NOT_FOUND:
        body: Row = {"error": "Object Not Found", "reason": "Not Found"}
        if names and error.text:
            body["detail"] = error.text
        return json_response(body, status)
    if status == HTTPStatus.UNAUTHORIZED:
        # RabbitMQ's text, which does not name the refused operation.
        return json_response({"error": "not_authorised", "reason": "Access refused."}, status)
    name = HTTPStatus(status).phrase.lower().replace(" ", "_")
    return json_response({"error": name, "reason": error.text}, status)


def name_of(request: web.Request, part: str) -> Name:
    """Return the name of an exchange, a queue or a super stream at `part` of the path.

    Line ends are removed from it, as over AMQP.  Check, look up and change only the returned name.

    Raises: PreconditionFailed (400 in HTTP) for a name that consists only of line ends.
    """
    return cleaned(request.match_info[part])


def vhost_of(request: web.Request) -> str | None:
    """Return the name of the vhost in the path, or None without one.  Raises: NotFound (404)."""
    vhost = request.match_info.get("vhost")
    if vhost is not None and vhost not in request.app[BROKER].vhosts:
        raise NotFound(f"no vhost '{vhost}'")
    return vhost


def found_vhost(request: web.Request) -> Vhost:
    """Return the vhost in the path.  Raises: NotFound (404)."""
    vhost = request.app[BROKER].vhosts.get(request.match_info["vhost"])
    if vhost is None:
        raise NotFound(f"no vhost '{request.match_info['vhost']}'")
    return vhost


def number_of_query(request: web.Request, name: str, default: int | None, most: int) -> int:
    """Return a number from 0 to `most` in the query string; it is required if `default` is None.

    Raises: PreconditionFailed (400 in HTTP).
    """
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 20:
        raise PreconditionFailed(f"the query must have a number '{name}'")
    if int(text) > most:
        raise PreconditionFailed(f"the number '{name}' in the query must be at most {most}")
    return int(text)


def seen(request: web.Request) -> list[Vhost]:
    """Return the vhost of the path, or all vhosts visible to the user without one.

    Raises: NotFound (404) for a missing vhost.
    """
    if "vhost" in request.match_info:
        return [found_vhost(request)]
    vhosts = request.app[BROKER].vhosts
    names = seen_vhosts(request)
    return list(vhosts.values()) if names is None else [vhosts[name] for name in names]


def exchange_of(request: web.Request, part: str) -> Name:
    """Return the name of an exchange in the path; `amq.default` means the empty name."""
    name = name_of(request, part)
    return Name("") if name == "amq.default" else name


def as_user(request: web.Request, vhost: str) -> AbstractAsyncContextManager[DirectChannel]:
    """Open an AMQP channel in a vhost as the user of a request; see `direct_channel`."""
    opens = request.app[OPERATOR].direct
    assert opens is not None, "the API was created without channels"
    return direct_channel(request, request.app[BROKER], opens, vhost)


async def begins(request: web.Request, response: web.StreamResponse) -> bool:
    """Send the headers of an answer; return False for HEAD, when no body must be sent.

    The framework would send a body even for HEAD, and the client would read it as the next answer.
    """
    await response.prepare(request)
    return request.method != hdrs.METH_HEAD


async def shared_response(
    request: web.Request, make: Callable[[], Awaitable[object]]
) -> web.Response:
    """Return the result of `make` as JSON; a page in a browser may get a recent answer instead.

    The result must be the same for all users with permission for the request.
    """
    if not is_page(request):
        return json_response(await make())
    answers = request.app[OPERATOR].sampler.answers
    asked = request.rel_url.raw_path_qs
    answer = answers.find(asked)
    if answer is None:
        answer = answers.keep(asked, json.dumps(await make(), ensure_ascii=False).encode())
    headers = {**JSON_HEADERS, hdrs.VARY: "Accept-Encoding"}
    if takes_gzip(request):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=answer.compressed, headers=headers)
    return web.Response(body=answer.body, headers=headers)


def columns_asked(request: web.Request, row: Row) -> object:
    """Return an object with the requested columns only."""
    columns = columns_of(request.query)
    return row if columns is None else columns.of(row)


def row_response(request: web.Request, row: Row) -> web.Response:
    """Return the answer with one object, with the requested columns only."""
    return json_response(columns_asked(request, row))
