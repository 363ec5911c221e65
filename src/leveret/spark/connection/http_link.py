"""A connection to a Leveret broker's HTTP listener, for reading streams in bulk.

The first request opens the connection, and the following ones reuse it.  Each request contains the
AMQP credentials.  The address is the option `httpUri`, or the one that the broker reports to AMQP
clients, which is requested once in a process.

Invariants: if a response was not read to its end, the connection is closed.  A reported address is
used only with the parameters of the connection that received it, so an address received without TLS
is never used for a login over TLS.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from leveret.client import Parameters
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    interrupted,
    missing,
    open_connection,
)
from leveret.spark.errors import SourceError
from leveret.spark.options.read import Options
from leveret.spark.options.trust import context_of
from leveret.spark.transport import Interrupted

#: The value of the header `Server` in Leveret's responses.
SERVER: Final = "Leveret"

#: The longest JSON response that is accepted.
_JSON_BYTES_MAX: Final = 1024 * 1024

_OK: Final = 200
_REFUSED: Final = (401, 403)
_NOT_FOUND: Final = 404
_BAD: Final = 400

#: The time after which a broker without an HTTP listener is checked again for one.
ABSENT_SECONDS: Final = 60.0


class NoHttp(SourceError):
    """The broker has no HTTP listener that serves streams."""


class HttpAddresses:
    """A cache of the HTTP addresses that brokers report, by connection parameters."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        #: The address, or None without a listener, and the time until which it is valid.
        self._known: dict[Parameters, tuple[str | None, float]] = {}

    def of(self, parameters: Parameters) -> str:
        """Return the HTTP address that a broker reports.  Raises: Interrupted; NoHttp."""
        with self._lock:
            address, until = self._known.get(parameters, (None, -math.inf))
            if self._now() >= until:
                address = _asked_address(parameters)
                until = math.inf if address is not None else self._now() + ABSENT_SECONDS
                self._known[parameters] = address, until
        if address is None:
            raise NoHttp(
                "the broker reports no HTTP port: it is not Leveret, or does not listen for HTTP"
                + (" over TLS" if parameters.tls else "")
            )
        return address

    def forget(self, parameters: Parameters) -> None:
        """Remove a broker's address from the cache."""
        with self._lock:
            self._known.pop(parameters, None)


#: The cache of this process.
_ADDRESSES: Final = HttpAddresses()


class HttpLink:
    """An HTTP connection for the requests of one stream."""

    def __init__(self, options: Options, stream: str) -> None:
        self._options = options
        self._stream = stream
        self._connection: http.client.HTTPConnection | None = None
        self._headers: dict[str, str] = {}
        #: Query parameters that are added to each request.
        self.told: Mapping[str, int | str] = {}
        #: The listener of the last request, or "" before the first.
        self._address = options.http_uri or ""

    def json(self, what: str = "", **query: int) -> Mapping[str, Any]:
        """Return the JSON object at a path of the stream.

        Raises: Interrupted; NoHttp; NotFound (404); AccessRefused (403).
        """
        with self.ask(what, query) as answer:
            body = answer.read(_JSON_BYTES_MAX)
        try:
            found = json.loads(body)
        except ValueError as error:
            raise NoHttp(f"the response is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise NoHttp("the response is not a JSON object")
        return found

    @contextmanager
    def ask(self, what: str, query: Mapping[str, int]) -> Iterator[http.client.HTTPResponse]:
        """Send a request and yield its successful response, which the caller reads.

        Raises: Interrupted; NoHttp; NotFound (404); AccessRefused (403).
        """
        whole = False
        try:
            answer = self._answered(what, query)
            yield answer
            whole = answer.isclosed()
        except (OSError, http.client.HTTPException) as error:
            # The broker may have restarted and may listen at another address.
            forget_address(self._options.parameters())
            raise interrupted(error, self._address) from error
        finally:
            if not whole:
                self.close()

    def _answered(self, what: str, query: Mapping[str, int]) -> http.client.HTTPResponse:
        """Send a request and return its response; if the connection was closed, retry once."""
        vhost = self._options.parameters().vhost
        place = f"/api/streams/{quote(vhost, safe='')}/{quote(self._stream, safe='')}"
        path = f"{place}{what}?{urlencode({**query, **self.told})}"
        if self._connection is not None:
            try:
                return self._checked(self._sent(self._connection, path))
            except (ConnectionError, http.client.BadStatusLine):
                # The broker may close an idle connection.
                self.close()
        self._connection = self._made()
        return self._checked(self._sent(self._connection, path))

    def _sent(self, connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
        connection.request("GET", path, headers=self._headers)
        return connection.getresponse()

    def _checked(self, answer: http.client.HTTPResponse) -> http.client.HTTPResponse:
        """Check that a response is successful and from Leveret.

        Raises: NoHttp; NotFound (404); AccessRefused (403); PreconditionFailed (406); Interrupted.
        """
        address = self._address
        if answer.getheader("Server") != SERVER:
            raise NoHttp(f"the server at {address} is {answer.getheader('Server')}, not {SERVER}")
        if answer.status == _OK:
            return answer
        reason = _reason(answer)
        if answer.status in _REFUSED:
            raise AccessRefused(f"{reason} (at {address})")
        if answer.status == _NOT_FOUND:
            raise missing("stream", self._stream, self._options.parameters().vhost, address)
        if answer.status == _BAD:
            # These requests are valid unless the queue is not a stream.
            raise PreconditionFailed(f"{reason} (at {address}); the option queue reads a queue")
        raise Interrupted(f"{address} answered {answer.status}: {reason}")

    def _made(self) -> http.client.HTTPConnection:
        """Open a connection.  Raises: OSError; Interrupted; NoHttp."""
        parameters = self._options.parameters()
        self._address = self._options.http_uri or announced_address(parameters)
        raw = f"{parameters.username}:{parameters.password}".encode()
        self._headers = {"Authorization": f"Basic {base64.b64encode(raw).decode()}"}
        connection = http_connection(self._address, parameters)
        connection.connect()
        connection.sock.settimeout(self._options.poll_timeout_ms / 1000)
        return connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def http_connection(address: str, parameters: Parameters) -> http.client.HTTPConnection:
    """Return an unopened connection to an HTTP listener.  Raises: TrustError."""
    parts = urlsplit(address)
    host, seconds = parts.hostname or "localhost", parameters.connection_timeout_ms / 1000
    if parts.scheme == "https":
        tls = context_of(parameters)
        return http.client.HTTPSConnection(host, parts.port, timeout=seconds, context=tls)
    return http.client.HTTPConnection(host, parts.port, timeout=seconds)


def announced_address(parameters: Parameters) -> str:
    """Return the HTTP address that a broker reports.  Raises: Interrupted; NoHttp."""
    return _ADDRESSES.of(parameters)


def _asked_address(parameters: Parameters) -> str | None:
    try:
        with open_connection(parameters, "leveret spark") as connection:
            said = connection.server_properties
    except INTERRUPTIONS as error:
        raise interrupted(error) from error
    return told_address(parameters, said)


def told_address(parameters: Parameters, said: Mapping[str, object]) -> str | None:
    """Return the HTTP address in a broker's properties, or None if none is usable."""
    host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
    # A password that was sent over TLS is never sent without it.
    for scheme in ("https",) if parameters.tls else ("http", "https"):
        port = said.get(f"{scheme}_port")
        if isinstance(port, int):
            return f"{scheme}://{host}:{port}"
    return None


def forget_address(parameters: Parameters) -> None:
    """Remove a broker's HTTP address from the cache, so that it is requested again."""
    _ADDRESSES.forget(parameters)


def _reason(answer: http.client.HTTPResponse) -> str:
    """Return the reason in the response to a refused request."""
    body = answer.read(_JSON_BYTES_MAX)
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, KeyError, TypeError):
        return answer.reason
