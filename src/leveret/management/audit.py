"""The log of changes over HTTP: one line for each request that changed the broker.

Bodies are not looked at: they hold passwords.  The path names what was changed, as it was sent.
A change is logged however its request ends: also if the client disconnected or a part failed.
"""

from __future__ import annotations

import contextlib
import pwd
from typing import Final

from aiohttp import web

from leveret.management.api_route import route_of
from leveret.management.connections.connection import HttpConnection
from leveret.management.gate import ACCESS
from leveret.management.requests.steps import Steps
from leveret.management.unix_socket import credentials

#: Set for a request that has made some of its changes and may fail at the others.
PARTLY_DONE: Final = web.RequestKey("partly_done", bool)


def sender_of(request: web.Request) -> str:
    """Return the origin of a request that may change something; empty for other requests.

    Over the Unix socket, that is a user and a process of the system.  Call it before the request is
    answered: the client may disconnect at any time.
    """
    transport = request.transport
    if not _may_change(request) or transport is None:
        return ""
    connection = request.protocol
    if isinstance(connection, HttpConnection):
        peer = transport.get_extra_info("peername")
        # The system no longer knows the peer of a connection that was reset.
        return f"{peer[0]}:{peer[1]}" if peer else connection.slot.network
    with contextlib.suppress(OSError, AttributeError):
        pid, uid = credentials(transport.get_extra_info("socket"))
        return f"{_user(uid)} (uid {uid}, process {pid}) at the management socket"
    return ""


def change_of(
    request: web.Request, status: int, sender: str, steps: Steps[web.StreamResponse]
) -> str:
    """Return the line for a finished request; an empty text if it changed nothing.

    `status` is that of the answer, or 0 without an answer; `sender` is from `sender_of`.
    """
    failed = status >= 400
    changed = request.get(PARTLY_DONE, False) if failed else steps.changed
    if not _may_change(request) or not (changed or 0 < status < 400):
        return ""
    who = _who(request, sender)
    said = f"administrative change: {request.method} {request.rel_url.raw_path_qs} by {who}"
    if failed:
        said += f"; it was answered with {status} after a part was done"
    if request.transport is None:
        said += "; its client did not wait for the answer"
    elif status == 0:
        said += "; it was not answered"
    return said


def _may_change(request: web.Request) -> bool:
    if request.method in {"GET", "HEAD", "OPTIONS"}:
        return False
    route = route_of(request)
    return route is None or route.logged


def named(request: web.Request) -> str:
    """Return a request's path for an error in the log, without a password in it."""
    route = route_of(request)
    return route.path if route and "password" in request.match_info else request.path


def _who(request: web.Request, sender: str) -> str:
    """Return the sender of a request: a user of the broker over TCP, else one of the system."""
    access = request.get(ACCESS)
    if access is None:
        return sender or "an unknown user at the management socket"
    return f"user '{access.user}' from {sender or request.remote}"


def _user(uid: int) -> str:
    """Return the name of a user of the system."""
    try:
        return f"'{pwd.getpwuid(uid).pw_name}'"
    except KeyError:
        return "an unnamed user"
