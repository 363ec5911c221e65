"""The routes of the HTTP API and what they share: JSON, errors, long listings.

Importing it loads the web framework.  A vhost in a path is percent-encoded (`/` is `%2F`), which
the framework's routing on the raw path keeps apart from the path's own slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from leveret.errors import AmqpError, NotFound
from leveret.management.bodies import BODY_BYTES_MAX
from leveret.management.operator import Operator
from leveret.management.routes import (
    backup,
    bindings,
    connections,
    definitions,
    delayed,
    exchanges,
    nodes,
    overview,
    parameters,
    permissions,
    policies,
    publishers,
    queue_actions,
    queues,
    stream_consumers,
    users,
    vhosts,
)
from leveret.management.routes.shared import BROKER, OPERATOR, error_response, json_response

if TYPE_CHECKING:
    from leveret.broker.broker import Broker

#: Takes a level and a text.
Log = Callable[[str, str], None]

#: How long a stop waits for requests at hand.
_STOP_SECONDS = 1.0


#: The routes, a module for each concept.
MODULES = (
    overview,
    nodes,
    queues,
    queue_actions,
    exchanges,
    bindings,
    connections,
    vhosts,
    users,
    permissions,
    policies,
    parameters,
    definitions,
    delayed,
    publishers,
    backup,
    stream_consumers,
)


def make_runner(broker: Broker, operator: Operator, log: Log) -> web.AppRunner:
    """Return the API of a broker, ready to be set up."""
    app = web.Application(middlewares=[_errors_as_json(log)], client_max_size=BODY_BYTES_MAX)
    app[BROKER] = broker
    app[OPERATOR] = operator
    for module in MODULES:
        app.add_routes(module.ROUTES)
    return web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=_STOP_SECONDS)


def _errors_as_json(log: Log) -> Middleware:
    """Return the middleware that answers errors as RabbitMQ does."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return error_response(NotFound())
        except AmqpError as error:
            return error_response(error)
        except web.HTTPException as fault:
            body = {"error": fault.reason.lower().replace(" ", "_"), "reason": fault.reason}
            return json_response(body, fault.status, dict(fault.headers))
        except Exception as bug:  # noqa: BLE001 (a fault of ours must not end the broker)
            log("error", f"{request.method} {request.path}: {bug!r}")
            return json_response({"error": "internal_error", "reason": "see the log"}, 500)

    return answer
