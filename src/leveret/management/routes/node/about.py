"""Routes for the version, settings and feature flags of the broker, and the name of the cluster."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.errors import PreconditionFailed
from leveret.management.api_route import TEXT, ApiRoute
from leveret.management.bodies import object_of, text_of
from leveret.management.rights import ADMINISTRATION, LOOKING
from leveret.management.routes.lists import rows_response
from leveret.management.routes.node.identity import CLUSTER_NAME, cluster_name
from leveret.management.routes.shared import BROKER, OPERATOR, json_response, row_response

#: The feature flags of RabbitMQ whose behaviour this broker has, and their descriptions.
_FLAGS: Final = {
    "detailed_queues_endpoint": "A list of queues with all their fields",
    "direct_exchange_routing_v2": "Routing by an index of binding keys",
    "drop_unroutable_metric": "Unroutable messages that were dropped are counted",
    "empty_basic_get_metric": "Gets from empty queues are counted",
    "implicit_default_bindings": "Queues are bound to the default exchange",
    "quorum_queue": "Queues of the type quorum",
    "stream_filtering": "Stream consumers that filter messages",
    "stream_queue": "Queues of the type stream",
    "stream_single_active_consumer": "One active consumer in each partition of a super stream",
    "user_limits": "Limits of connections and channels for each user",
    "virtual_host_metadata": "Metadata of virtual hosts (description, tags)",
}


async def version(request: web.Request) -> web.Response:
    """Return the version of RabbitMQ that the broker reports."""
    return json_response(request.app[OPERATOR].rabbitmq_version)


async def extensions(_request: web.Request) -> web.Response:
    """Return the extensions of RabbitMQ's management page, of which this broker has none."""
    return json_response([])


async def feature_flags(request: web.Request) -> web.StreamResponse:
    """Return the feature flags, which are all enabled."""
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "desc": text,
            "doc_url": "",
            "state": "enabled",
            "stability": "required",
            "provided_by": "leveret",
        }
        for name, text in _FLAGS.items()
    ]
    return await rows_response(request, rows)


async def enable_flag(request: web.Request) -> web.Response:
    """Do nothing, because all feature flags are enabled.  Raises: PreconditionFailed (400)."""
    name = request.match_info["name"]
    if name not in _FLAGS:
        raise PreconditionFailed(f"unknown feature flag '{name}': GET /api/feature-flags has all")
    return web.Response(status=204)


async def deprecated_features(request: web.Request) -> web.StreamResponse:
    """Return the deprecated features, of which this broker has none."""
    return await rows_response(request, [])


async def name(request: web.Request) -> web.Response:
    """Return the name of the cluster."""
    return json_response({"name": cluster_name(request)})


async def put_name(request: web.Request) -> web.Response:
    """Set the name of the cluster."""
    wanted = text_of(await object_of(request), "name")
    async with request.app[OPERATOR].changing():
        request.app[BROKER].parameters.set_global(CLUSTER_NAME, wanted)
    return web.Response(status=204)


async def effective(request: web.Request) -> web.Response:
    """Return the settings in effect, without secrets."""
    return row_response(request, dict(request.app[OPERATOR].settings()))


ROUTES: Final = (
    ApiRoute("GET", "/api/config/effective", effective, ADMINISTRATION),
    ApiRoute("GET", "/api/version", version, LOOKING),
    ApiRoute("GET", "/api/extensions", extensions, LOOKING, rows=True),
    ApiRoute("GET", "/api/feature-flags", feature_flags, LOOKING, rows=True),
    ApiRoute("PUT", "/api/feature-flags/{name}/enable", enable_flag, ADMINISTRATION),
    ApiRoute("GET", "/api/deprecated-features", deprecated_features, LOOKING, rows=True),
    ApiRoute("GET", "/api/deprecated-features/used", deprecated_features, LOOKING, rows=True),
    ApiRoute("GET", "/api/cluster-name", name, LOOKING),
    ApiRoute(
        "PUT",
        "/api/cluster-name",
        put_name,
        ADMINISTRATION,
        body={"name": TEXT},
        required=("name",),
    ),
)
