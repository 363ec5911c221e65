"""A proxy between a client and a broker that can cut connections, losing bytes in transit.

Each direction has its own thread.  `cut` closes all current connections; new ones are accepted.
`reset` resets them, which drops bytes in transit, and `stall` keeps them open but forwards nothing
more.  With `last_words` set, the answer to a request that contains them is dropped, and all
connections are cut.  While `is_stalled`, bytes from either side are dropped and the connections
stay open; while `is_deaf`, bytes from the broker are dropped.  `cut_at` are totals of bytes from
the broker at which all connections are cut, lowest first.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self


class CutProxy:
    """Listens on a free loopback port for a broker on another."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._stalled: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.accepted = 0
        self.last_words = b""
        self.is_stalled = False
        self.is_deaf = False
        self.cut_at: list[int] = []
        self._answered = 0
        self._is_mute = False

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def uri(self) -> str:
        """The URI of the broker behind it."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def lead_to(self, port: int) -> None:
        """Connect new clients to another port."""
        self._target = ("127.0.0.1", port)

    def cut(self) -> None:
        """Close all connections at once."""
        for sock in self._take_all():
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def reset(self) -> None:
        """Reset all connections at once."""
        for sock in self._take_all():
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # A reading thread would keep the socket open.
                sock.shutdown(socket.SHUT_RD)
            sock.close()

    def stall(self) -> None:
        """Forward nothing more on the current connections, in either direction."""
        with self._lock:
            self._stalled.update(self._sockets)

    def _take_all(self) -> list[socket.socket]:
        with self._lock:
            # They stay stalled: nothing may be forwarded after dropped bytes.
            sockets, self._sockets = self._sockets, []
        return sockets

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()  # the broker is down, and so is the proxy
                continue
            with self._lock:
                self.accepted += 1
                self._sockets += [client, broker]
            for way in ((client, broker, True), (broker, client, False)):
                threading.Thread(target=self._forward, args=way, daemon=True).start()

    def _is_cut_by(self, count: int) -> bool:
        """Return whether `count` more bytes from the broker reach the next of `cut_at`."""
        with self._lock:
            self._answered += count
            if not self.cut_at or self._answered < self.cut_at[0]:
                return False
            del self.cut_at[0]
            return True

    def _forward(self, source: socket.socket, target: socket.socket, is_asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if self.is_stalled or (self.is_deaf and not is_asking):
                    continue
                if is_asking and self.last_words and self.last_words in data:
                    self._is_mute = True
                elif not is_asking and self._is_mute:
                    self.last_words = b""
                    self._is_mute = False
                    self.cut()
                    return
                if source in self._stalled:
                    continue
                if not is_asking and self._is_cut_by(len(data)):
                    self.cut()
                    return
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
