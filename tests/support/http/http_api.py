"""Requests to a broker's HTTP API over its Unix socket, as any HTTP client makes them."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Final

from leveret.management import unix_socket

#: The time limit of an answer, for a busy machine.
ANSWER_SECONDS_MAX: Final = 120.0


class Api(http.client.HTTPConnection):
    """HTTP over a socket at a path."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        """Connect to the path."""
        self.sock = unix_socket.connect(self.path, ANSWER_SECONDS_MAX)

    def answer(self, path: str, method: str = "GET") -> tuple[int, object, http.client.HTTPMessage]:
        """Return status, JSON and headers of an answer."""
        self.request(method, path)
        response = self.getresponse()
        return response.status, json.loads(response.read()), response.headers

    def change(self, method: str, path: str, body: object = None) -> int:
        """Send a body as JSON; return the status of an answer without one."""
        status, answer = self.ask(method, path, body)
        assert answer is None, answer
        return status

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Send a body as JSON; return status and JSON of the answer."""
        self.request(method, path, None if body is None else json.dumps(body))
        response = self.getresponse()
        raw = response.read()
        return response.status, json.loads(raw) if raw else None
