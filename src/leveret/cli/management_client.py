"""Requests to a broker's HTTP API: over its Unix socket, or over HTTP(S) from other machines."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from leveret.cli import exits
from leveret.cli.contexts.remote import Remote
from leveret.cli.place import URI_FILE_VARIABLE, URI_VARIABLE
from leveret.errors import in_plain_words
from leveret.management.unix_socket import ForeignSocket, connect

#: The largest answer that a command reads, since the server may not be a broker.  A list of 100,000
#: queues is some 200 MB long.
CLI_ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024

#: The default address of the HTTP API of a broker on this machine.
_USUAL_API: Final = "http://localhost:15672"

#: The time limit for an answer; the first request makes the broker load the API.
ANSWER_SECONDS_MAX: Final = 30.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path
        self.sock = None

    def connect(self) -> None:
        """Connect to the path.  Raises: OSError."""
        self.sock = connect(self._path, ANSWER_SECONDS_MAX)


def get_json(place: Path | Remote, path: str) -> object:
    """Return the JSON at a path of the API.  Raises: Failure."""
    return ask(place, "GET", path)


def ask(
    place: Path | Remote,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> object:
    """Send a request; return the answer's JSON, or None for an empty answer.  Raises: Failure."""
    status, reason, raw = answer_of(place, method, path, body, headers)
    if status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
        raise exits.Failure(f"{place}: {_reason(raw)}", exits.NO_PERMISSION)
    if status == http.client.NOT_FOUND:
        raise exits.Failure(_reason(raw, "detail"), exits.REFUSED)
    if status == http.client.BAD_REQUEST:
        raise exits.Failure(in_plain_words(_reason(raw)), exits.REFUSED)
    if status == http.client.SERVICE_UNAVAILABLE:
        # The reason of a failed health check.
        raise exits.Failure(_reason(raw), exits.UNAVAILABLE)
    if status >= http.client.BAD_REQUEST:
        text = f"the broker answered {status} {reason}: {_reason(raw)}"
        ours = status >= http.client.INTERNAL_SERVER_ERROR
        raise exits.Failure(text, exits.INTERNAL if ours else exits.REFUSED)
    try:
        found: object = json.loads(raw) if raw else None
    except (ValueError, RecursionError) as error:
        reason = f"the server at {place} is not the API of a broker: {error}"
        raise exits.Failure(reason, exits.PROTOCOL) from None
    return found


def answer_of(
    place: Path | Remote,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, str, bytes]:
    """Send a request with a JSON body; return the status, its phrase and the answer's body.

    Raises: Failure if no answer arrives.
    """
    text = None if body is None else json.dumps(body)
    try:
        response, raw = _exchange(place, method, path, text, headers or {})
        return response.status, response.reason, raw
    except ForeignSocket as error:
        raise exits.Failure(f"{place}: {error.strerror}", exits.NO_PERMISSION) from None
    except PermissionError:
        reason = f"{place} belongs to another user: only the broker's user can use it"
        raise exits.Failure(reason, exits.NO_PERMISSION) from None
    except ssl.SSLError as error:
        cause = getattr(error, "verify_message", "") or error.reason or error
        reason = f"no TLS with {place}: {cause}; see ca_file of a context for trusted authorities"
        raise exits.Failure(reason, exits.PROTOCOL) from None
    except (OSError, http.client.HTTPException) as error:
        reason = f"no broker answers at {place}: {exits.reason_of(error)}"
        hint = (
            "is a broker running on this data directory? name another one by --data-dir, or the "
            f"address of a broker by --api {_USUAL_API}"
        )
        if os.environ.get(URI_VARIABLE) or os.environ.get(URI_FILE_VARIABLE):
            hint += f"; {URI_VARIABLE} is not used here"
        if isinstance(place, Remote):
            hint = "is that the address of its HTTP API?"
        raise exits.Failure(reason, exits.UNAVAILABLE, hint=hint) from None


def _exchange(
    place: Path | Remote, method: str, path: str, body: str | None, more: Mapping[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send one request; return the answer and its body.

    Raises: OSError; HTTPException; Failure for unusable files of a context.
    """
    connection: http.client.HTTPConnection
    headers = dict(more)
    if isinstance(place, Remote):
        connection = place.connection()
        headers |= place.headers()
        path = place.prefix + path
    else:
        connection = UnixConnection(place)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response, read_body(response)
    finally:
        connection.close()


def read_body(response: http.client.HTTPResponse, bytes_max: int = CLI_ANSWER_BYTES_MAX) -> bytes:
    """Return the body of an answer.  Raises: OSError; HTTPException if too long or truncated."""
    # Check an announced length before allocating memory for it.
    raw = b"" if (response.length or 0) > bytes_max else response.read(bytes_max + 1)
    if len(raw) > bytes_max or (response.length or 0) > bytes_max:
        raise http.client.HTTPException(f"the answer has more than {bytes_max} bytes")
    if response.length:
        # `read` with a size does not report a body that ends too early.
        raise http.client.IncompleteRead(raw, response.length)
    return raw


def _reason(raw: bytes, field: str = "reason") -> str:
    """Return the reason in an error answer, from `field`, from `reason` or the whole answer."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode("utf-8", "replace")
    if not isinstance(found, dict):
        return str(found)
    return str(found.get(field) or found.get("reason", found))
