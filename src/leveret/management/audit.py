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
    looks = request.method in {"GET", "HEAD", "OPTIONS"}
    return not looks and not request.rel_url.raw_path.endswith(_LOOKING)


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
