"""The permissions of users: `/api/permissions` and `/api/topic-permissions`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from aiohttp import web

from leveret.broker.users.permissions import Permission, TopicPermission
from leveret.errors import NotFound
from leveret.management.api_route import TEXT, ApiRoute
from leveret.management.bodies import object_of, text_of
from leveret.management.rights import ADMINISTRATION
from leveret.management.routes.lists import as_it_is, stream_rows
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, json_response
from leveret.names import cleaned

Given = TypeVar("Given")


def _wanted(
    request: web.Request, found: Mapping[tuple[str, str], Given]
) -> list[tuple[tuple[str, str], Given]]:
    """Return the permissions that match the path, by user and vhost.

    Raises: NotFound (404) for a missing user or vhost.
    """
    user, vhost = request.match_info.get("user"), request.match_info.get("vhost")
    if user is not None:
        request.app[BROKER].users.get(user)
    if vhost is not None:
        found_vhost(request)
    items = list(found.items())
    if user is not None:
        items = [item for item in items if item[0][0] == user]
    return items if vhost is None else [item for item in items if item[0][1] == vhost]


async def permissions(request: web.Request) -> web.StreamResponse:
    """Return all permissions, or those of a vhost or a user."""
    found: dict[tuple[str, str], Permission] = request.app[BROKER].users.permissions
    rows: Iterator[Row] = (
        permission.definition(user, vhost) for (user, vhost), permission in _wanted(request, found)
    )
    return await stream_rows(request, rows, as_it_is)


async def permission(request: web.Request) -> web.Response:
    """Return the permissions of a user in a vhost."""
    path = request.match_info
    found = request.app[BROKER].users.permissions.get((path["user"], path["vhost"]))
    if found is None:
        who = f"user '{path['user']}'"
        raise NotFound(f"{who} has no permissions in vhost '{path['vhost']}'")
    return json_response(found.definition(path["user"], path["vhost"]))


async def put(request: web.Request) -> web.Response:
    """Set the permissions of a user in a vhost."""
    body = await object_of(request)
    path = request.match_info
    users = request.app[BROKER].users
    new = (path["user"], path["vhost"]) not in users.permissions
    patterns = [text_of(body, name) for name in ("configure", "write", "read")]
    async with request.app[OPERATOR].changing():
        users.set_permission(path["user"], path["vhost"], *patterns)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete the permissions of a user in a vhost."""
    path = request.match_info
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.clear_permission(path["user"], path["vhost"])
    return web.Response(status=204)


async def topic_permissions(request: web.Request) -> web.StreamResponse:
    """Return all topic permissions, or those of a vhost, a user, or a user in a vhost."""
    found: dict[tuple[str, str], dict[str, TopicPermission]]
    found = request.app[BROKER].users.topic_permissions
    wanted = _wanted(request, found)
    path = request.match_info
    if not wanted and "user" in path and "vhost" in path:
        who = f"user '{path['user']}'"
        raise NotFound(f"{who} has no topic permissions in vhost '{path['vhost']}'")
    rows: Iterator[Row] = (
        permission.definition(user, vhost, exchange)
        for (user, vhost), of_user in wanted
        for exchange, permission in list(of_user.items())
    )
    return await stream_rows(request, rows, as_it_is)


async def put_topic(request: web.Request) -> web.Response:
    """Set a topic permission: the routing keys that a user may use with a topic exchange."""
    body = await object_of(request)
    path = request.match_info
    exchange = cleaned(text_of(body, "exchange"))
    patterns = [text_of(body, name) for name in ("write", "read")]
    async with request.app[OPERATOR].changing():
        users = request.app[BROKER].users
        users.set_topic_permission(path["user"], path["vhost"], exchange, *patterns)
    return web.Response(status=201)


async def delete_topic(request: web.Request) -> web.Response:
    """Delete a user's topic permissions in a vhost, or the one for an exchange."""
    path = request.match_info
    async with request.app[OPERATOR].changing():
        users = request.app[BROKER].users
        users.clear_topic_permission(path["user"], path["vhost"], path.get("exchange"))
    return web.Response(status=204)


ROUTES: Final = (
    ApiRoute("GET", "/api/permissions", permissions, ADMINISTRATION, rows=True, heavy=True),
    ApiRoute("GET", "/api/permissions/{vhost}/{user}", permission, ADMINISTRATION),
    ApiRoute(
        "PUT",
        "/api/permissions/{vhost}/{user}",
        put,
        ADMINISTRATION,
        body={"configure": TEXT, "write": TEXT, "read": TEXT},
        required=("configure", "write", "read"),
    ),
    ApiRoute("DELETE", "/api/permissions/{vhost}/{user}", delete, ADMINISTRATION),
    ApiRoute(
        "GET", "/api/vhosts/{vhost}/permissions", permissions, ADMINISTRATION, rows=True, heavy=True
    ),
    ApiRoute(
        "GET", "/api/users/{user}/permissions", permissions, ADMINISTRATION, rows=True, heavy=True
    ),
    ApiRoute(
        "GET", "/api/topic-permissions", topic_permissions, ADMINISTRATION, rows=True, heavy=True
    ),
    ApiRoute(
        "GET", "/api/topic-permissions/{vhost}/{user}", topic_permissions, ADMINISTRATION, rows=True
    ),
    ApiRoute(
        "PUT",
        "/api/topic-permissions/{vhost}/{user}",
        put_topic,
        ADMINISTRATION,
        body={"exchange": TEXT, "write": TEXT, "read": TEXT},
        required=("exchange", "write", "read"),
    ),
    ApiRoute("DELETE", "/api/topic-permissions/{vhost}/{user}", delete_topic, ADMINISTRATION),
    ApiRoute(
        "DELETE", "/api/topic-permissions/{vhost}/{user}/{exchange}", delete_topic, ADMINISTRATION
    ),
    ApiRoute(
        "GET",
        "/api/vhosts/{vhost}/topic-permissions",
        topic_permissions,
        ADMINISTRATION,
        rows=True,
        heavy=True,
    ),
    ApiRoute(
        "GET",
        "/api/users/{user}/topic-permissions",
        topic_permissions,
        ADMINISTRATION,
        rows=True,
        heavy=True,
    ),
)
