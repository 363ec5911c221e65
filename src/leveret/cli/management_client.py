"""Asking the HTTP API of a broker on this machine, by its Unix socket."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Final

from leveret.cli import exits
from leveret.errors import in_plain_words
from leveret.management.listening.unix_socket import connect

#: How long an answer may take; the first one loads the API.
ANSWER_SECONDS_MAX: Final = 30.0


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect to the path.  Raises: OSError."""
        self.sock = connect(self._path, ANSWER_SECONDS_MAX)


def get_json(socket: Path, path: str) -> object:
    """Return what a path of the API holds.  Raises: Failure."""
    return ask(socket, "GET", path)


def ask(socket: Path, method: str, path: str, body: object = None) -> object:
    """Send a request with a JSON body; return the answer's JSON, None without.  Raises: Failure."""
    connection = UnixConnection(socket)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        raw = response.read()
    except PermissionError:
        text = f"{socket} is another user's: only who runs the broker may ask it"
        raise exits.Failure(text, exits.NO_PERMISSION) from None
    except (OSError, http.client.HTTPException) as error:
        text = f"no broker answers at {socket} ({error}); is --data-dir its data directory?"
        raise exits.Failure(text, exits.UNAVAILABLE) from None
    finally:
        connection.close()
    if response.status == http.client.NOT_FOUND:
        raise exits.Failure(_reason(raw, "detail"), exits.REFUSED)
    if response.status == http.client.BAD_REQUEST:
        raise exits.Failure(in_plain_words(_reason(raw)), exits.REFUSED)
    if response.status >= http.client.BAD_REQUEST:
        text = f"the broker answered {response.status} {response.reason}: {_reason(raw)}"
        ours = response.status >= http.client.INTERNAL_SERVER_ERROR
        raise exits.Failure(text, exits.INTERNAL if ours else exits.REFUSED)
    found: object = json.loads(raw) if raw else None
    return found


def _reason(raw: bytes, field: str = "reason") -> str:
    """Return the reason in an answer that is an error; it may stand in another field."""
    try:
        found = json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
    if not isinstance(found, dict):
        return str(found)
    return str(found.get(field) or found.get("reason", found))
