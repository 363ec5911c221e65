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

#: Requests that change nothing although they are sent as if: they look, or keep files for a while.
_LOOKING: Final = ("/browse", "/api/backup")

#: `struct ucred` of unix(7): process, user, group.
_CREDENTIALS: Final = struct.Struct("3i")


def change_of(request: web.Request, status: int) -> str:
    """Return the line for an answered request; empty where it changed nothing."""
    path = request.rel_url.raw_path
    if request.method in {"GET", "HEAD", "OPTIONS"} or status >= 400 or path.endswith(_LOOKING):
        return ""
    return f"administrative change: {request.method} {path} by {_who(request)}"


def _who(request: web.Request) -> str:
    """Return who sent a request: a user of the broker over TCP, else one of the system."""
    transport = request.transport
    access = request.get(ACCESS)
    if access is not None:
        peer = transport.get_extra_info("peername") if transport is not None else None
        where = f"{peer[0]}:{peer[1]}" if peer else str(request.remote)
        return f"user '{access.user}' from {where}"
    with contextlib.suppress(OSError, AttributeError):
        assert transport is not None
        peer_socket = transport.get_extra_info("socket")
        raw = peer_socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return f"{_user(uid)} (uid {uid}, process {pid}) at the management socket"
    return "somebody at the management socket"


def _user(uid: int) -> str:
    """Return the name of a user of the system."""
    try:
        return f"'{pwd.getpwuid(uid).pw_name}'"
    except KeyError:
        return "a user without a name"
