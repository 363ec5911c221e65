"""What users may do: `/api/permissions` and `/api/topic-permissions`."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.values.permission import Permission, TopicPermission
from leveret.errors import NotFound
from leveret.management.bodies import object_of, text_of
from leveret.management.routes.shared import BROKER, OPERATOR, Row, json_response, rows_response
from leveret.names import cleaned


def _wanted(request: web.Request, user: str, vhost: str) -> bool:
    """Tell whether the path asks for what a user has in a vhost."""
    path = request.match_info
    return path.get("user", user) == user and path.get("vhost", vhost) == vhost


async def permissions(request: web.Request) -> web.Response:
    """Return all permissions, or those of a vhost or a user."""
    found: dict[tuple[str, str], Permission] = request.app[BROKER].users.permissions
    rows: list[Row] = [
        permission.definition(user, vhost)
        for (user, vhost), permission in found.items()
        if _wanted(request, user, vhost)
    ]
    return await rows_response(request, rows)


async def permission(request: web.Request) -> web.Response:
    """Return what a user may do in a vhost."""
    path = request.match_info
    found = request.app[BROKER].users.permissions.get((path["user"], path["vhost"]))
    if found is None:
        who = f"user '{path['user']}'"
        raise NotFound(f"{who} has no permissions in vhost '{path['vhost']}'")
    return json_response(found.definition(path["user"], path["vhost"]))


async def put(request: web.Request) -> web.Response:
    """Let a user into a vhost, or change what he may do there."""
    body = await object_of(request)
    path = request.match_info
    users = request.app[BROKER].users
    new = (path["user"], path["vhost"]) not in users.permissions
    patterns = [text_of(body, name) for name in ("configure", "write", "read")]
    async with request.app[OPERATOR].changing():
        users.set_permission(path["user"], path["vhost"], *patterns)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Let a user into a vhost no more."""
    path = request.match_info
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.clear_permission(path["user"], path["vhost"])
    return web.Response(status=204)


async def topic_permissions(request: web.Request) -> web.Response:
    """Return all topic permissions, or those of a vhost, a user, or a user in a vhost."""
    found: dict[tuple[str, str], dict[str, TopicPermission]]
    found = request.app[BROKER].users.topic_permissions
    rows: list[Row] = [
        permission.definition(user, vhost, exchange)
        for (user, vhost), of_user in found.items()
        if _wanted(request, user, vhost)
        for exchange, permission in of_user.items()
    ]
    return await rows_response(request, rows)


async def put_topic(request: web.Request) -> web.Response:
    """Limit the routing keys that a user may use with a topic exchange."""
    body = await object_of(request)
    path = request.match_info
    exchange = cleaned(text_of(body, "exchange"))
    patterns = [text_of(body, name) for name in ("write", "read")]
    async with request.app[OPERATOR].changing():
        users = request.app[BROKER].users
        users.set_topic_permission(path["user"], path["vhost"], exchange, *patterns)
    return web.Response(status=201)


async def delete_topic(request: web.Request) -> web.Response:
    """Take a user's topic permissions in a vhost away, or the one of an exchange."""
    path = request.match_info
    async with request.app[OPERATOR].changing():
        users = request.app[BROKER].users
        users.clear_topic_permission(path["user"], path["vhost"], path.get("exchange"))
    return web.Response(status=204)


ROUTES: Final = (
    web.get("/api/permissions", permissions),
    web.get("/api/permissions/{vhost}/{user}", permission),
    web.put("/api/permissions/{vhost}/{user}", put),
    web.delete("/api/permissions/{vhost}/{user}", delete),
    web.get("/api/vhosts/{vhost}/permissions", permissions),
    web.get("/api/users/{user}/permissions", permissions),
    web.get("/api/topic-permissions", topic_permissions),
    web.get("/api/topic-permissions/{vhost}/{user}", topic_permissions),
    web.put("/api/topic-permissions/{vhost}/{user}", put_topic),
    web.delete("/api/topic-permissions/{vhost}/{user}", delete_topic),
    web.delete("/api/topic-permissions/{vhost}/{user}/{exchange}", delete_topic),
    web.get("/api/vhosts/{vhost}/topic-permissions", topic_permissions),
    web.get("/api/users/{user}/topic-permissions", topic_permissions),
)
