"""The log of administrative changes: one line for each HTTP request that changed the broker.

A line contains the path of the request but not its body, which may contain a password.  A change is
logged even if the client disconnected or a part of the request failed.
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

#: Set for a request that has made some of its changes and may fail at others.
PARTLY_DONE: Final = web.RequestKey("partly_done", bool)


def sender_of(request: web.Request) -> str:
    """Return the peer of a request that may change something, or "" for other requests.

    Over the Unix socket, the peer is a user and a process of the system.  Call this before the
    request is handled, because the client may disconnect at any time.
    """
    transport = request.transport
    if not _may_change(request) or transport is None:
        return ""
    connection = request.protocol
    if isinstance(connection, HttpConnection):
        peer = transport.get_extra_info("peername")
        # The system does not return the peer of a connection that was reset.
        return f"{peer[0]}:{peer[1]}" if peer else connection.slot.network
    with contextlib.suppress(OSError, AttributeError):
        pid, uid = credentials(transport.get_extra_info("socket"))
        return f"{_user(uid)} (uid {uid}, process {pid}) at the management socket"
    return ""


def change_of(
    request: web.Request, status: int, sender: str, steps: Steps[web.StreamResponse]
) -> str:
    """Return the log line for a finished request, or "" if it changed nothing.

    `status` is the status of the answer, or 0 if no answer was sent.
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
    """Return the path of a request for an error in the log, without a password in the path."""
    route = route_of(request)
    return route.path if route and "password" in request.match_info else request.path


def _who(request: web.Request, sender: str) -> str:
    """Return the sender of a request: a user of the broker over TCP, or a user of the system."""
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
