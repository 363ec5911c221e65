"""What the log says of who changes the broker over HTTP: one line for each request that did.

Bodies are not looked at: they hold passwords.  The path names what was changed, as it was sent.
"""

from __future__ import annotations

import contextlib
import pwd
import socket
import struct
from typing import Final

from aiohttp import web

from leveret.management.gate import ACCESS

#: Routes that change no definition although they are sent as if: they look, keep files for a while,
#: do with messages what clients do, or begin and end sessions of their own.
_LOOKING: Final = (
    "/api/queues/{vhost}/{name}/browse",
    "/api/queues/{vhost}/{name}/get",
    "/api/exchanges/{vhost}/{name}/publish",
    "/api/exchanges/{vhost}/{name}/route",
    "/api/backup",
    "/api/login",
    "/api/logout",
)

#: `struct ucred` of unix(7): process, user, group.
_CREDENTIALS: Final = struct.Struct("3i")


def sender_of(request: web.Request) -> str:
    """Return who of the system sends a request over the Unix socket that may change something.

    Ask before it is answered: a client may hang up at once.  Empty where nobody needs to know.
    """
    transport = request.transport
    if not _may_change(request) or transport is None:
        return ""
    with contextlib.suppress(OSError, AttributeError):
        peer_socket = transport.get_extra_info("socket")
        raw = peer_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return f"{_user(uid)} (uid {uid}, process {pid}) at the management socket"
    return ""


def change_of(request: web.Request, status: int, sender: str) -> str:
    """Return the line for an answered request; empty where it changed nothing.

    `sender` is what `sender_of` returned before.
    """
    if not _may_change(request) or status >= 400:
        return ""
    who = _who(request, sender)
    return f"administrative change: {request.method} {request.rel_url.raw_path_qs} by {who}"


def _may_change(request: web.Request) -> bool:
    if request.method in {"GET", "HEAD", "OPTIONS"}:
        return False
    # The route and not the path, which may end with a name.
    return request.method != "POST" or _route(request) not in _LOOKING


def named(request: web.Request) -> str:
    """Return a request's path as an error of the log names it: without a password in it."""
    return _route(request) if "password" in request.match_info else request.path


def _route(request: web.Request) -> str:
    """Return the path as its route declares it; empty for a path that has no route."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical


def _who(request: web.Request, sender: str) -> str:
    """Return who sent a request: a user of the broker over TCP, else one of the system."""
    access = request.get(ACCESS)
    if access is None:
        return sender or "somebody at the management socket"
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    where = f"{peer[0]}:{peer[1]}" if peer else str(request.remote)
    return f"user '{access.user}' from {where}"


def _user(uid: int) -> str:
    """Return the name of a user of the system."""
    try:
        return f"'{pwd.getpwuid(uid).pw_name}'"
    except KeyError:
        return "a user without a name"
