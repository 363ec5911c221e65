"""Listens and connects on the Unix socket of the HTTP API, which only its owner can access.

Invariants: the socket never has wider permissions than 0600, not even for a moment; a file that is
not a socket and the socket of a running broker are never removed.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: The path length of the kernel's sockaddr_un, without the final 0 (unix(7)).
PATH_BYTES_MAX: Final = 107

_BACKLOG: Final = 128

#: `struct ucred` of unix(7): the ids of process, user and group.
_CREDENTIALS: Final = struct.Struct("3i")


class ForeignSocket(PermissionError):
    """Another user listens on the socket; the text names the user."""


def credentials(sock: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of a Unix socket's peer.  Raises: OSError."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, _ = _CREDENTIALS.unpack(raw)
    return process, user


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield an address for `path`, through a descriptor of its directory if it is too long."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the socket at `path`.

    Raises: OSError; ForeignSocket, before anything is sent, if the listener cannot be the broker.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        with _address(path) as address:
            sock.connect(address)
        _, user = credentials(sock)
        check_listener(path, user, os.geteuid())
    except OSError:
        sock.close()
        raise
    return sock


def check_listener(path: Path, user: int, me: int) -> None:
    """Check that the user id of the listener at `path` can be the broker's, for a client `me`.

    Root and `me` are allowed.  If `me` is root, the owner of the directory is allowed too, and any
    user in a directory that only its owner can write to.

    Raises: ForeignSocket; OSError.
    """
    if user in {0, me}:
        return
    if me == 0:
        place = path.parent.stat()
        if user == place.st_uid or not place.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
    raise ForeignSocket(
        errno.EACCES,
        f"the user that listens on this socket (uid {user}) is not root, uid {me} or the owner of "
        f"the directory and may have replaced the broker's socket, so nothing was sent: check who "
        f"may write to the directory",
        str(path),
    )


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path` that only its owner can connect to.

    A socket left by a dead broker is replaced.

    Raises: OSError, also if `path` is not a socket or a broker listens on it.
    """
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Set before bind, so that the file never has other permissions.
        os.fchmod(sock.fileno(), 0o600)
        with _address(path) as address:
            sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _clear(path: Path) -> None:
    """Remove the socket of a dead broker.  Raises: OSError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "the file exists and is not a socket", str(path))
    try:
        connect(path, 1.0).close()
    except ConnectionRefusedError:
        path.unlink()
    else:
        raise OSError(errno.EADDRINUSE, "another broker listens on this socket", str(path))
