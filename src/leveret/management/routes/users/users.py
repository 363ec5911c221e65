"""Users and their limits: `/api/users` and `/api/user-limits`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web

from leveret.broker.users.users import ARGON2, SHA256, User
from leveret.errors import PreconditionFailed
from leveret.management.api_route import LIMIT, TAGS, TEXT, ApiRoute
from leveret.management.bodies import number_of, object_of, text_of
from leveret.management.rights import ADMINISTRATION
from leveret.management.routes.lists import as_it_is, stream_rows
from leveret.management.routes.shared import BROKER, OPERATOR, Row, json_response
from leveret.names import check_new


async def users(request: web.Request) -> web.StreamResponse:
    """Return all users."""
    found = list(request.app[BROKER].users.by_name.values())
    return await stream_rows(request, found, partial(_row, request))


async def user(request: web.Request) -> web.Response:
    """Return one user."""
    found = request.app[BROKER].users.get(request.match_info["user"])
    return json_response(_row(request, found))


async def put(request: web.Request) -> web.Response:
    """Add a user, or replace the password and tags of an existing one.

    The body has `tags` (a list, or text separated by commas) and either `password`, or
    `password_hash` in base64 with `hashing_algorithm`.  Without a password or hash, the user cannot
    log in by a password.
    """
    body = await object_of(request)
    name = request.match_info["user"]
    users = request.app[BROKER].users
    password_hash, algorithm = await _password(request, body)
    new = name not in users.by_name
    if new:
        check_new(name, "user")
    async with request.app[OPERATOR].changing():
        users.put(User(name, password_hash, tags_of(body), algorithm))
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete a user and close their connections."""
    operator = request.app[OPERATOR]
    operator.begin()
    await operator.ended(request.app[BROKER].users.delete(request.match_info["user"]))
    return web.Response(status=204)


async def without_permissions(request: web.Request) -> web.StreamResponse:
    """Return the users without permissions in any vhost."""
    users = request.app[BROKER].users
    let_in = {user for user, _ in users.permissions}
    found = [user for user in users.by_name.values() if user.name not in let_in]
    return await stream_rows(request, found, partial(_row, request))


async def bulk_delete(request: web.Request) -> web.Response:
    """Delete the users in the list `users` and close their connections; ignore missing users."""
    body = await object_of(request)
    names = body.get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise PreconditionFailed("the field 'users' must be a list of names")
    users = request.app[BROKER].users
    operator = request.app[OPERATOR]
    operator.begin()
    for name in dict.fromkeys(names):
        if name in users.by_name:
            closing = users.delete(name)
            if not closing.over:
                await operator.ended(closing)
    await operator.durable()
    return web.Response(status=204)


async def limits(request: web.Request) -> web.StreamResponse:
    """Return the limits of all users or of one."""
    users = request.app[BROKER].users
    name = request.match_info.get("user")
    names = list(users.limits) if name is None else [users.get(name).name]
    rows: list[Row] = [
        {"user": one, "value": dict(users.limits[one])} for one in names if one in users.limits
    ]
    return await stream_rows(request, rows, as_it_is)


async def put_limits(request: web.Request) -> web.Response:
    """Set the limits in the body for a user, all or none; other limits remain unchanged."""
    body = await object_of(request)
    wanted = {name: number_of(body, name) for name in body}
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.set_limits(request.match_info["user"], wanted)
    return web.Response(status=204)


async def delete_limits(request: web.Request) -> web.Response:
    """Delete all limits of a user."""
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.clear_limits(request.match_info["user"])
    return web.Response(status=204)


async def put_limit(request: web.Request) -> web.Response:
    """Set one limit of a user."""
    value = number_of(await object_of(request), "value")
    path = request.match_info
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.set_limits(path["user"], {path["name"]: value})
    return web.Response(status=204)


async def delete_limit(request: web.Request) -> web.Response:
    """Delete one limit of a user."""
    path = request.match_info
    async with request.app[OPERATOR].changing():
        request.app[BROKER].users.clear_limits(path["user"], path["name"])
    return web.Response(status=204)


async def _password(request: web.Request, body: Mapping[str, object]) -> tuple[bytes, str]:
    """Return the password hash for a body, and its algorithm."""
    if "password" in body and body.get("password_hash") is not None:
        raise PreconditionFailed("give either 'password' or 'password_hash', not both")
    if "password" in body:
        password = text_of(body, "password").encode()
        if not password:
            raise PreconditionFailed("an empty password is not allowed: leave it out instead")
        return await request.app[OPERATOR].hash_password(password), ARGON2
    try:
        raw = base64.b64decode(text_of(body, "password_hash", ""), validate=True)
    except ValueError:
        raise PreconditionFailed("the field 'password_hash' must be base 64") from None
    return raw, text_of(body, "hashing_algorithm", SHA256)


def tags_of(body: Mapping[str, object]) -> list[str]:
    """Return the tags in a body.  Raises: PreconditionFailed (400 in HTTP)."""
    tags = body.get("tags", [])
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise PreconditionFailed("the field 'tags' must be text, or a list of texts")
    return tags


def _row(request: web.Request, user: User) -> Row:
    """Return a user as in RabbitMQ's API."""
    return {
        "name": user.name,
        "password_hash": base64.b64encode(user.password_hash).decode(),
        "hashing_algorithm": user.algorithm,
        "tags": user.tags,
        "limits": dict(request.app[BROKER].users.limits.get(user.name, {})),
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/users", users, ADMINISTRATION, rows=True, heavy=True),
    ApiRoute(
        "GET",
        "/api/users/without-permissions",
        without_permissions,
        ADMINISTRATION,
        rows=True,
        heavy=True,
    ),
    ApiRoute(
        "POST",
        "/api/users/bulk-delete",
        bulk_delete,
        ADMINISTRATION,
        body={"users": {"type": "array", "items": TEXT}},
        required=("users",),
    ),
    ApiRoute("GET", "/api/users/{user}", user, ADMINISTRATION),
    ApiRoute(
        "PUT",
        "/api/users/{user}",
        put,
        ADMINISTRATION,
        body={"password": TEXT, "password_hash": TEXT, "hashing_algorithm": TEXT, "tags": TAGS},
    ),
    ApiRoute("DELETE", "/api/users/{user}", delete, ADMINISTRATION),
    ApiRoute("GET", "/api/user-limits", limits, ADMINISTRATION, rows=True, heavy=True),
    ApiRoute("GET", "/api/user-limits/{user}", limits, ADMINISTRATION, rows=True, heavy=True),
    ApiRoute("PUT", "/api/user-limits/{user}", put_limits, ADMINISTRATION),
    ApiRoute("DELETE", "/api/user-limits/{user}", delete_limits, ADMINISTRATION),
    ApiRoute(
        "PUT",
        "/api/user-limits/{user}/{name}",
        put_limit,
        ADMINISTRATION,
        body=LIMIT,
        required=("value",),
    ),
    ApiRoute("DELETE", "/api/user-limits/{user}/{name}", delete_limit, ADMINISTRATION),
)
