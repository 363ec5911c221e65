"""Accepts connections on one socket, within the limits of `Admission`.

The acceptor requests a slot for each accepted connection.  If one will be free soon, it stores the
accepted socket until then and accepts no others, so that further connections wait in the kernel's
backlog.  So each acceptor has at most one open descriptor beyond the counted ones.

If the system has no descriptor left for accept, because of other uses than connections, one
connection that has not logged in is closed, and the acceptor tries again after `AGAIN_SECONDS`, so
that the event loop does not spin.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from collections.abc import Callable
from typing import Final

from leveret.server.closing.lingering import LingeringAccept
from leveret.server.opening.opening import Open
from leveret.session.admission import FULL, ROOM, Admission, Slot, network_of

#: The maximum number of connections accepted before the event loop runs other callbacks.
ACCEPTS_PER_TURN: Final = 32

AGAIN_SECONDS: Final = 0.25

#: The errors of accept if the system lacks a resource.
_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

#: The offset in the kernel's `struct tcp_info` of the time (ms) since the socket last sent data, or
#: was opened if it has sent none; and the number of bytes of the struct to read.
_LAST_SENT: Final = 44
_TCP_INFO_BYTES: Final = 104

#: Takes the network of a peer; returns the protocol and the slot of the new connection.
Make = Callable[[str], tuple[asyncio.Protocol, Slot]]


def waited_ms(sock: socket.socket) -> int:
    """Return the time (ms) that a newly accepted connection waited in the kernel's backlog.

    The time is 0 if the kernel does not report it, as for a Unix socket.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("I", info, _LAST_SENT)[0])
    except (OSError, struct.error):
        return 0


class Acceptor:
    """Accepts connections on one listening socket.

    With `authenticated`, connections count as authenticated from the start.  `opening` puts another
    protocol, such as TLS, before that of each connection.
    """

    def __init__(
        self,
        sock: socket.socket,
        admission: Admission,
        make: Make,
        log: Callable[[str, str], None],
        authenticated: bool = False,
        opening: Open | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._admission = admission
        self._make = make
        self._log = log
        self._authenticated = authenticated
        self._before = opening
        #: An accepted socket that waits for a slot, and its network.
        self._held: tuple[socket.socket, str] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._stopped = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._accept)

    def close(self) -> None:
        """Stop accepting, and close the socket."""
        if self._stopped:
            return
        self._stopped = True
        self._loop.remove_reader(self._sock)
        with contextlib.suppress(OSError):
            # Clients must not connect to a copy of the socket in a forked child.
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        if self._again is not None:
            self._again.cancel()
        if self._held is not None:
            self._held[0].close()
            self._held = None

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._held is not None or self._stopped:
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                self._short(error)
                return
            sock.setblocking(False)
            host = address[0] if isinstance(address, tuple) else ""
            self._place(sock, network_of(str(host)))

    def _short(self, error: OSError) -> None:
        """Pause accepting, and close a connection to free a descriptor."""
        self._pause()
        self._log("warning", f"cannot accept a connection: {error.strerror}")
        self._admission.make_room()
        self._again = self._loop.call_later(AGAIN_SECONDS, self._resume)

    def _pause(self) -> None:
        self._loop.remove_reader(self._sock)

    def _resume(self) -> None:
        self._again = None
        if not self._stopped:
            self._loop.add_reader(self._sock, self._accept)

    def _place(self, sock: socket.socket, network: str) -> None:
        """Give an accepted connection a slot, let it wait for a free one, or close it."""
        answer = self._admission.request(network)
        if answer == ROOM:
            self._begin(sock, network)
        elif answer == FULL:
            sock.close()
            where = network or "the Unix socket"
            self._log("warning", f"too many connections: closing a new one from '{where}'")
        else:
            self._held = (sock, network)
            self._pause()
            self._admission.when_left(self._left)

    def _left(self) -> None:
        # The connection that frees its slot may be in the middle of its own work.
        self._loop.call_soon(self._place_held)

    def _place_held(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        self._place(*held)
        if self._held is None:
            self._resume()

    def _begin(self, sock: socket.socket, network: str) -> None:
        protocol, slot = self._make(network)
        slot.waited_ms = waited_ms(sock)
        self._admission.enter(slot, self._authenticated)
        if self._before is not None:
            protocol = self._before(protocol, slot, self._admission)
        entry = LingeringAccept(protocol, slot, self._admission)
        task = self._loop.create_task(self._open(sock, entry, slot))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, sock: socket.socket, protocol: asyncio.BaseProtocol, slot: Slot) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, sock)
        except OSError as error:
            # The peer has disconnected, which is detected only when the transport is set up.
            sock.close()
            self._admission.leave(slot)
            self._log("warning", f"cannot set up a connection: {error.strerror or error}")


def accepting(
    log: Callable[[str, str], None], opening: Open | None = None
) -> Callable[[socket.socket, Admission, Make, bool], Callable[[], None]]:
    """Return a function that starts an `Acceptor` and returns its `close`."""

    def accept(
        sock: socket.socket, admission: Admission, make: Make, authenticated: bool
    ) -> Callable[[], None]:
        return Acceptor(sock, admission, make, log, authenticated, opening).close

    return accept
