"""Routes for the current user, login sessions, and password hashes for definitions."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Final

from aiohttp import hdrs, web

from leveret.management.api_route import ApiRoute
from leveret.management.gate import ACCESS, VISIT
from leveret.management.login.sessions import set_cookie
from leveret.management.rights import ADMINISTRATION, LOOKING
from leveret.management.routes.shared import BROKER, Row, json_response

#: The length of the salt in `rabbit_password_hashing_sha256`.
_SALT_BYTES: Final = 4


async def whoami(request: web.Request) -> web.Response:
    """Return the caller; on the management socket, an administrator without a name."""
    access = request.get(ACCESS)
    if access is None:
        found: Row = {"name": "", "tags": ["administrator"], "is_internal_user": False}
    else:
        user = request.app[BROKER].users.get(access.user)
        found = {"name": user.name, "tags": list(user.tags), "is_internal_user": True}
    return json_response(found)


async def login(request: web.Request) -> web.Response:
    """Begin a session, whose cookie replaces the password; return the user."""
    visit = request.get(VISIT)
    response = await whoami(request)
    if visit is not None:
        token = visit.gate.begin_session(visit, request.remote or "")
        response.headers[hdrs.SET_COOKIE] = set_cookie(request, token)
    return response


async def logout(request: web.Request) -> web.Response:
    """End the session of the request, and delete the browser's cookie."""
    response = web.Response(status=204)
    visit = request.get(VISIT)
    if visit is not None:
        visit.gate.end_session(visit)
        response.headers[hdrs.SET_COOKIE] = set_cookie(request, None)
    return response


async def auth(_request: web.Request) -> web.Response:
    """Report that users log in by password only, in the form that RabbitMQ's page expects.

    The first field is for newer versions of RabbitMQ, the others are for 3.10.
    """
    return json_response(
        {"oauth_enabled": False, "enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
    )


async def hash_password(request: web.Request) -> web.Response:
    """Return RabbitMQ's hash of a password, as used in definitions."""
    salt = secrets.token_bytes(_SALT_BYTES)
    digest = hashlib.sha256(salt + request.match_info["password"].encode()).digest()
    return json_response({"ok": base64.b64encode(salt + digest).decode()})


ROUTES: Final = (
    ApiRoute("GET", "/api/whoami", whoami, LOOKING),
    ApiRoute("POST", "/api/login", login, LOOKING, logged=False),
    ApiRoute("POST", "/api/logout", logout, LOOKING, logged=False),
    ApiRoute("GET", "/api/auth", auth, LOOKING),
    ApiRoute("GET", "/api/auth/hash_password/{password}", hash_password, ADMINISTRATION),
)
