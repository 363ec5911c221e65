"""A proxy between a client and a broker whose connections a test can cut, with what is on its way.

Bytes go both ways by a thread each.  `cut` closes all connections of now; new ones are taken.  With
`last_words` set, the answer to what holds them does not come: it is swallowed, and all is cut.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class CutProxy:
    """Listens on a free loopback port for a broker on another."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self.accepted = 0
        self.last_words = b""
        self._is_mute = False

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def lead_to(self, port: int) -> None:
        """Have new connections go to another port."""
        self._target = ("127.0.0.1", port)

    def cut(self) -> None:
        """Close all connections at once."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for sock in sockets:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._target)
            with self._lock:
                self.accepted += 1
                self._sockets += [client, broker]
            for way in ((client, broker, True), (broker, client, False)):
                threading.Thread(target=self._forward, args=way, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if is_asking and self.last_words and self.last_words in data:
                    self._is_mute = True
                elif not is_asking and self._is_mute:
                    self.last_words = b""
                    self._is_mute = False
                    self.cut()
                    return
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
