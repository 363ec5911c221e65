"""The Unix socket of the HTTP API: made for its owner alone, found by its path.

Invariants: the socket never has wider permissions than 0600, not even for a moment; a file that is
no socket is never removed, nor the socket of a broker that lives.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: What fits into the kernel's sockaddr_un, with its closing 0 (unix(7)).
PATH_BYTES_MAX: Final = 107

_BACKLOG: Final = 128


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Give an address of `path` that fits: through the open directory where it is too long."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def connect(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the socket at `path`.  Raises: OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(seconds)
    try:
        with _address(path) as address:
            sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path` that only its owner can connect to.

    A socket that a dead broker left there is replaced.

    Raises: OSError, also when something else is there or a broker listens there.
    """
    _clear(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Set before it is bound, so that the file never has other permissions.
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
        raise FileExistsError(errno.EEXIST, "something that is no socket is there", str(path))
    try:
        connect(path, 1.0).close()
    except ConnectionRefusedError:
        path.unlink()
    else:
        raise OSError(errno.EADDRINUSE, "another broker listens there", str(path))
