"""The application of the HTTP API: its routes, middlewares, and errors as JSON.

Importing it loads the web framework.  A vhost in a path is percent-encoded (`/` is `%2F`).  The
framework routes on the raw path, and so distinguishes it from the path's own slashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from aiohttp import web, web_app
from aiohttp.typedefs import Handler, Middleware

from leveret.clock import Clock
from leveret.errors import AccessRefused, AmqpError, NotFound, PreconditionFailed
from leveret.escaping import unquoted
from leveret.limits import HTTP_BODY_BYTES_MAX
from leveret.management.api_route import DECLARED, ApiRoute, route_of
from leveret.management.audit import change_of, named, sender_of
from leveret.management.bodies import BODY_BYTES_MAX
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.connection import HttpConnection, OperatorConnection
from leveret.management.connections.log import Log, make_logger
from leveret.management.fields import is_unicode
from leveret.management.gate import (
    CHALLENGE,
    VISIT,
    Barred,
    Gate,
    TurnedAway,
    Visit,
)
from leveret.management.login.credentials import Unauthorized
from leveret.management.login.host import Misdirected
from leveret.management.login.origin import is_page
from leveret.management.login.reading import read_whole
from leveret.management.operator import Operator
from leveret.management.page import serving
from leveret.management.requests.slices import next_slice
from leveret.management.requests.steps import Steps
from leveret.management.rights import ADMINISTRATION, OPERATOR_ONLY
from leveret.management.routes import vhosts
from leveret.management.routes.exchanges import bindings, delayed, exchanges, publish, route
from leveret.management.routes.node import (
    about,
    backup,
    backups,
    channels,
    connections,
    health,
    logs,
    memory,
    metrics,
    nodes,
    openapi,
    overview,
)
from leveret.management.routes.node import consumers as all_consumers
from leveret.management.routes.queues import (
    actions,
    declare,
    messages,
    move,
    publishers,
    queues,
    sinks,
)
from leveret.management.routes.settings import definitions, parameters, policies
from leveret.management.routes.shared import (
    BROKER,
    CHUNKS,
    CLOCK,
    OPERATOR,
    error_response,
    json_response,
)
from leveret.management.routes.streams import chunks as stream_chunks
from leveret.management.routes.streams import consumers as stream_consumers
from leveret.management.routes.streams import queries as stream_queries
from leveret.management.routes.streams import streams, super_streams
from leveret.management.routes.users import login, permissions, quotas, users
from leveret.pages.assets import assets

if TYPE_CHECKING:
    from leveret.broker.broker import Broker

#: Methods that change nothing; their requests may be cancelled at any point.
_READING = ("GET", "HEAD")

#: A name in a path; aiohttp allows no braces in names unless the route gives a regex.
_NAME_IN_PATH = re.compile(r"\{(\w+)\}")

#: `Retry-After` of a 503 answer, in seconds.
_AGAIN_SECONDS = "5"

#: The time that a stop waits for requests in progress.
_STOP_SECONDS = 1.0

#: The modules of the routes, one for each concept.
MODULES = (
    overview,
    openapi,
    about,
    health,
    login,
    nodes,
    memory,
    metrics,
    logs,
    channels,
    all_consumers,
    queues,
    actions,
    declare,
    messages,
    move,
    exchanges,
    publish,
    route,
    bindings,
    connections,
    vhosts,
    users,
    quotas,
    permissions,
    policies,
    parameters,
    definitions,
    delayed,
    publishers,
    sinks,
    backup,
    backups,
    stream_consumers,
    streams,
    stream_chunks,
    stream_queries,
    super_streams,
)


def routes() -> list[ApiRoute]:
    """Return all routes, as they are served to the operator on the Unix socket."""
    return [one for module in MODULES for one in module.ROUTES]


def users_routes() -> list[ApiRoute]:
    """Return the routes that are served to the broker's users on TCP."""
    return [one for one in routes() if one.right is not OPERATOR_ONLY]


def metrics_routes() -> list[ApiRoute]:
    """Return the routes that are served to Prometheus without authentication."""
    return list(metrics.ROUTES)


def make_runner(
    broker: Broker, operator: Operator, chunks: ChunkSource, clock: Clock, log: Log
) -> web.AppRunner:
    """Return the API for the operator of a broker, not yet set up."""
    app = web.Application(
        middlewares=[
            _one_at_a_time,
            _errors_as_json(log, names=True),
            serving(assets()),
            _as_it_is,
            _check_names,
        ],
        client_max_size=BODY_BYTES_MAX,
    )
    app.on_response_prepare.append(_end_unread)
    return _runner(app, routes(), broker, operator, chunks, clock, False, log)


def make_users_runner(
    broker: Broker,
    operator: Operator,
    chunks: ChunkSource,
    gate: Gate,
    clock: Clock,
    log: Log,
) -> web.AppRunner:
    """Return the API for the users of a broker, not yet set up."""
    app = web.Application(
        middlewares=[
            _one_at_a_time,
            _errors_as_json(log),
            serving(assets()),
            _through(gate, clock),
            _check_names,
        ],
        client_max_size=HTTP_BODY_BYTES_MAX,
    )
    app.on_response_prepare.extend((_end_unread, _begin_answer))
    app.on_cleanup.append(partial(_close_gate, gate))
    return _runner(app, users_routes(), broker, operator, chunks, clock, True, log)


def make_metrics_runner(
    broker: Broker, operator: Operator, chunks: ChunkSource, clock: Clock, log: Log
) -> web.AppRunner:
    """Return the metrics without authentication, not yet set up."""
    app = web.Application(
        middlewares=[_one_at_a_time, _errors_as_json(log), _whole(clock)],
        client_max_size=1024,
    )
    app.on_response_prepare.extend((_end_unread, _begin_answer))
    return _runner(app, metrics_routes(), broker, operator, chunks, clock, True, log)


def _runner(
    app: web.Application,
    served: list[ApiRoute],
    broker: Broker,
    operator: Operator,
    chunks: ChunkSource,
    clock: Clock,
    users: bool,
    log: Log,
) -> web.AppRunner:
    """Return the runner of `app`; with `users`, a request ends when its client disconnects."""
    app.on_cleanup.append(_forget)
    app[BROKER] = broker
    app[OPERATOR] = operator
    app[CHUNKS] = chunks
    app[CLOCK] = clock
    app[DECLARED] = {(one.method, one.path): one for one in served}
    for one in served:
        kwargs: dict[str, Any] = {} if one.head else {"allow_head": False}
        if users:
            # Users are authenticated before 100 Continue is sent.
            kwargs["expect_handler"] = _wait
        path = _NAME_IN_PATH.sub(r"{\1:[^/]+}", one.path)
        app.add_routes([web.RouteDef(one.method, path, one.handler, kwargs)])
    return web.AppRunner(
        app,
        access_log=None,
        logger=make_logger(log),
        handle_signals=False,
        shutdown_timeout=_STOP_SECONDS,
        handler_cancellation=users,
    )


async def _end_unread(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after an answer whose request body has not arrived completely.

    A streamed answer is excluded, because it may begin before the body and end after it.
    """
    if isinstance(response, web.Response) and not request.content.is_eof():
        response.force_close()
        response.headers["Connection"] = "close"


async def _begin_answer(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of every answer, and mark the visit as begun."""
    response.headers["Server"] = "Leveret"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.secure and (hsts := request.app[OPERATOR].hsts):
        response.headers["Strict-Transport-Security"] = hsts
    visit = request.get(VISIT)
    if visit is not None:
        visit.begun = True


async def _forget(_app: web.Application) -> None:
    """Clear aiohttp's cache of handlers when the API ends.

    The cache is a global of aiohttp that references the last 1,024 handlers with their
    applications.  It would keep the broker in memory as long as the process runs.
    """
    cached = getattr(web_app, "_cached_build_middleware", None)
    if cached is not None:
        cached.cache_clear()


async def _close_gate(gate: Gate, _app: web.Application) -> None:
    """Close the gate when the API ends."""
    gate.close()


@web.middleware
async def _check_names(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a path with a name that is not valid UTF-8, which no object can have."""
    for part, name in request.match_info.items():
        if not is_unicode(name):
            raise PreconditionFailed(
                f"the {part} in the path is not UTF-8; percent-encode its UTF-8 bytes"
            )
    return await handler(request)


@web.middleware
async def _one_at_a_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Notify the connection when a request begins to be handled and when it is answered."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection | OperatorConnection)
    connection.begun()
    try:
        return await handler(request)
    finally:
        connection.ended()


async def _visited(
    request: web.Request, visit: Visit, handler: Handler, clock: Clock
) -> web.StreamResponse:
    """Answer an admitted request, as long as it is allowed.

    Raises: Unauthorized (401), AccessRefused (403), NotFound (404) if the user lost the right
    before the answer began; ConnectionError if the user lost it later, and the connection ends.
    """
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    connection.recognised()
    if (refused := _compressed(request)) is not None:
        return refused
    try:
        most = HTTP_BODY_BYTES_MAX
        if visit.right is ADMINISTRATION:
            # Administrators may import the definitions of a whole broker.
            most = BODY_BYTES_MAX
            request = request.clone(client_max_size=most)
        if request.can_read_body:
            # For a body of unknown length, the largest one allowed is booked.
            length = request.content_length
            visit.book(most if length is None else min(length, most))
        await read_whole(request, clock)
        return await _in_line(request, visit, handler)
    except asyncio.CancelledError:
        refusal = visit.over()
        if refusal is None:
            raise
        if not visit.begun:
            raise refusal from None
        # A partial answer has been sent, and must not look complete.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the user's right to this answer was withdrawn") from None


async def _in_line(request: web.Request, visit: Visit, handler: Handler) -> web.StreamResponse:
    """Answer a completely read request, once it gets a slice and, if it is heavy, a slot."""
    user = visit.access.user
    async with contextlib.AsyncExitStack() as places:
        if (route := route_of(request)) and route.heavy:
            await places.enter_async_context(visit.gate.heavy(user))
        with request.app[OPERATOR].slices.of(user):
            await next_slice()
            # From here on, a request that may change something must not be cancelled.
            visit.ends = request.method in _READING
            return await handler(request)


def _through(gate: Gate, clock: Clock) -> Middleware:
    """Return the middleware that authenticates and admits the broker's users."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            visit = await gate.enter(request)
            try:
                return await _visited(request, visit, handler, clock)
            finally:
                gate.left(visit)
        except Unauthorized as refused:
            body = {"error": "not_authorised", "reason": str(refused)}
            # The page has its own login form; a challenge would make the browser show its own.
            asks = {} if is_page(request) else CHALLENGE
            return json_response(body, HTTPStatus.UNAUTHORIZED, asks)
        except TurnedAway as busy:
            body = {"error": "service_unavailable", "reason": str(busy)}
            again = {"Retry-After": _AGAIN_SECONDS}
            return json_response(body, HTTPStatus.SERVICE_UNAVAILABLE, again)
        except Misdirected as refused:
            body = {"error": "misdirected_request", "reason": str(refused)}
            return json_response(body, HTTPStatus.MISDIRECTED_REQUEST)
        except Barred as refused:
            body = {"error": "not_authorised", "reason": refused.text}
            return json_response(body, HTTPStatus.UNAUTHORIZED)
        except AccessRefused as refused:
            return _refused(request, refused)

    return answer


def _refused(request: web.Request, refusal: AccessRefused) -> web.Response:
    """Return the answer for a missing permission; for RabbitMQ's routes, it is RabbitMQ's."""
    visit = request.get(VISIT)
    if visit is None or not visit.right.tags:
        return json_response({"error": "forbidden", "reason": refusal.text}, 403)
    return json_response({"error": "not_authorised", "reason": refusal.reply_text}, 401)


def _whole(clock: Clock) -> Middleware:
    """Return the middleware that first reads the whole body of an unauthenticated request."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        if (refused := _compressed(request)) is not None:
            return refused
        await read_whole(request, clock)
        return await _among_others(request, handler)

    return answer


async def _wait(_request: web.Request) -> None:
    """Delay the answer to `Expect: 100-continue` (RFC 9110, section 10.1.1)."""


def _compressed(request: web.Request) -> web.Response | None:
    """Return a refusal for a compressed body, which RabbitMQ does not accept either, or None."""
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        return None
    body = {
        "error": "unsupported_media_type",
        "reason": "send the body uncompressed: no Content-Encoding is supported",
    }
    headers = {"Accept-Encoding": "identity"}
    return json_response(body, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, headers)


@web.middleware
async def _as_it_is(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse compressed bodies; answer other requests."""
    refused = _compressed(request)
    return refused if refused is not None else await _among_others(request, handler)


async def _among_others(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request that has no user, in slices that alternate with those of users."""
    with request.app[OPERATOR].slices.of(""):
        await next_slice()
        return await handler(request)


def _errors_as_json(log: Log, *, names: bool = False) -> Middleware:
    """Return the middleware that answers errors as RabbitMQ does.

    An unexpected exception is answered with 500.  If the request had already changed something, or
    memory ran out, the exception stops the broker.  With `names`, the answer names the missing
    object.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        sender = sender_of(request)
        steps = Steps(handler(request), request.app[BROKER].core)
        status = 0
        try:
            response = await answered(request, steps)
            status = response.status
            return response
        finally:
            if said := change_of(request, status, sender, steps):
                log("info", said)

    async def answered(
        request: web.Request, steps: Steps[web.StreamResponse]
    ) -> web.StreamResponse:
        try:
            return await steps
        except web.HTTPNotFound:
            return error_response(NotFound(f"the API has no path {request.path}"), names=names)
        except AmqpError as error:
            return error_response(error, names=names)
        except ConnectionError:
            # The client has disconnected.
            raise
        except web.HTTPException as fault:
            # The text for a body that is too large contains the limit.
            is_large = isinstance(fault, web.HTTPRequestEntityTooLarge)
            reason = fault.text if is_large else fault.reason
            body = {"error": fault.reason.lower().replace(" ", "_"), "reason": reason}
            return json_response(body, fault.status, dict(fault.headers))
        except Exception as bug:  # noqa: BLE001 (it is judged by what the request changed)
            log("error", f"{request.method} {named(request)}: {unquoted(bug)}")
            if steps.changed or isinstance(bug, MemoryError):
                request.app[OPERATOR].broken(bug)
            return json_response({"error": "internal_error", "reason": "see the log"}, 500)

    return answer
