"""Requests to a broker's HTTP listener on TCP as one of its users, over a real socket."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Self

from leveret.chunk import Chunk
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess

#: The time limit of an answer, for a busy machine.
ANSWER_SECONDS_MAX = 120.0


def http_port(broker: BrokerProcess) -> int:
    """Return the HTTP port that a broker announces to its AMQP clients."""
    with connect(broker.uri) as connection:
        port = connection.server_properties["http_port"]
    assert isinstance(port, int)
    return port


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of a user's credentials."""
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {token}"}


class HttpUser:
    """One connection of one user."""

    def __init__(
        self,
        port: int,
        user: str = "guest",
        password: str = "guest",  # noqa: S107  everybody's
        host: str = "127.0.0.1",
    ) -> None:
        self.http = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
        self.headers = basic(user, password)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()

    def get(
        self, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Return status, headers and body of an answer; `headers` replaces our own."""
        self.http.request("GET", path, headers=self.headers if headers is None else dict(headers))
        response = self.http.getresponse()
        return response.status, response.headers, response.read()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        """Send a body as JSON; return status and text of the answer."""
        text = None if body is None else json.dumps(body)
        self.http.request(method, path, text, self.headers)
        response = self.http.getresponse()
        return response.status, response.read().decode()

    def json(self, path: str) -> object:
        """Return the JSON of a successful answer."""
        status, headers, body = self.get(path)
        assert (status, headers["Content-Type"]) == (200, "application/json"), body
        return json.loads(body)

    def chunks(self, stream: str, **query: int) -> tuple[list[Chunk], int]:
        """Return the chunks of a successful answer, and the offset at which it ends."""
        text = "&".join(f"{name}={value}" for name, value in query.items())
        status, headers, body = self.get(f"/api/streams/%2F/{stream}/chunks?{text}")
        assert status == 200, body
        return split(body), int(headers["Leveret-End-Offset"])


def split(body: bytes) -> list[Chunk]:
    """Return the chunks of a body."""
    found = []
    while body:
        chunk = Chunk(body)
        found.append(chunk)
        body = body[int(chunk.size) :]
    return found


def bodies(chunks: list[Chunk], start: int = 0) -> dict[int, bytes]:
    """Return the bodies of the messages from an offset on, by offset."""
    found = {}
    for chunk in chunks:
        for index in range(int(chunk.count)):
            if chunk.sequence(index) >= start:
                found[int(chunk.sequence(index))] = chunk.message(index).body
    return found
