"""AMQP URIs: `amqp://user:password@host:port/vhost?heartbeat=30` to connection parameters.

Parts are percent-decoded.  No path and a bare `/` both mean the vhost `/`, as most clients have it
(the RabbitMQ specification reads the latter as the empty name).  The query holds numbers only: it
chooses no file, no certificate and no TLS version, because URIs come from configuration that is
often less trusted than the code; TLS is set by an `ssl.SSLContext` in code.

Invariants: neither `repr`, nor `str`, nor an error's text holds the password.

Source: https://www.rabbitmq.com/docs/uri-spec and uri-query-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from leveret.limits import FRAME_BYTES_MIN, HANDSHAKE_SECONDS_MAX, SHORT_STRING_BYTES_MAX

if TYPE_CHECKING:
    from urllib.parse import SplitResult

PORT: Final = 5672
PORT_TLS: Final = 5671


@dataclass(frozen=True, slots=True)
class Parameters:
    """Where to connect, as whom, and what to ask for; `None` means: as the broker likes it.

    `heartbeat_seconds` 0 turns heartbeats off; `channel_max` and `frame_max` 0 mean no limit.
    """

    host: str = "localhost"
    port: int = PORT
    username: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    tls: bool = False
    heartbeat_seconds: int | None = None
    connection_timeout_ms: int = HANDSHAKE_SECONDS_MAX * 1000
    channel_max: int | None = None
    frame_max: int | None = None

    def __str__(self) -> str:
        """The URI without its password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        where = f"{quote(self.username, safe='')}@{host}:{self.port}/{quote(self.vhost, safe='')}"
        return f"{'amqps' if self.tls else 'amqp'}://{where}"


#: What a query may say: the parameter it sets and its least and greatest value.
QUERY: Final[dict[str, tuple[str, int, int]]] = {
    "heartbeat": ("heartbeat_seconds", 0, 65_535),
    "connection_timeout": ("connection_timeout_ms", 1, 2**31 - 1),
    "channel_max": ("channel_max", 0, 65_535),
    "frame_max": ("frame_max", 0, 2**31 - 1),
}


def parse_uri(uri: str) -> Parameters:
    """Return what `uri` says.  Raises: ValueError, whose text never quotes the password."""
    parts = _split(uri)
    tls = parts.scheme == "amqps"
    username, password = _credentials(parts)
    numbers = _query(parts.query)
    return Parameters(
        host=_decode(parts.hostname or "localhost", "host"),
        port=_port(parts, PORT_TLS if tls else PORT),
        username=username,
        password=password,
        vhost=_vhost(parts.path),
        tls=tls,
        heartbeat_seconds=numbers.get("heartbeat_seconds"),
        connection_timeout_ms=numbers.get("connection_timeout_ms", HANDSHAKE_SECONDS_MAX * 1000),
        channel_max=numbers.get("channel_max"),
        frame_max=numbers.get("frame_max"),
    )


def _split(uri: str) -> SplitResult:
    """Return the parts of `uri`, whose scheme is known."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ValueError("not a URI: the host is malformed") from None
    if parts.scheme not in {"amqp", "amqps"}:
        raise ValueError("an AMQP URI begins with amqp:// or amqps://")
    if not uri.partition(":")[2].startswith("//"):
        raise ValueError("an AMQP URI has // after its scheme")
    if parts.fragment or uri.endswith("#"):
        raise ValueError("an AMQP URI has no fragment; write # as %23")
    return parts


def _decode(text: str, what: str) -> str:
    """Return `text` percent-decoded as UTF-8."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"the {what} in the URI is not UTF-8") from None


def _credentials(parts: SplitResult) -> tuple[str, str]:
    """Return user name and password: guest's when the URI names no user."""
    if parts.username is None:
        return "guest", "guest"
    return _decode(parts.username, "user name"), _decode(parts.password or "", "password")


def _port(parts: SplitResult, default: int) -> int:
    """Return the port.  An unescaped / in a password ends up here, so nothing is quoted."""
    try:
        port = parts.port
    except ValueError:
        text = "the port in the URI is not a number to 65535 (is a / in the password %2F?)"
        raise ValueError(text) from None
    if port == 0:
        raise ValueError("the port in the URI is 0")
    return default if port is None else port


def _vhost(path: str) -> str:
    """Return the vhost that a URI's path names."""
    if path in {"", "/"}:
        return "/"
    if "/" in path[1:]:
        raise ValueError("the vhost in the URI holds a /; write it as %2F")
    vhost = _decode(path[1:], "vhost")
    if len(vhost.encode()) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"the vhost in the URI is longer than {SHORT_STRING_BYTES_MAX} bytes")
    return vhost


def _query(query: str) -> dict[str, int]:
    """Return the numbers that the query sets, by parameter name."""
    numbers: dict[str, int] = {}
    if "@" in query:
        raise ValueError("the query parameters hold an @ (is a ? in the password %3F?)")
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in QUERY:
            raise ValueError(f"unknown query parameter {key!r}; known: {', '.join(sorted(QUERY))}")
        name, least, most = QUERY[key]
        if name in numbers:
            raise ValueError(f"query parameter {key!r} is given twice")
        if not (
            value.isascii() and value.isdigit() and len(value) < 11 and least <= int(value) <= most
        ):
            raise ValueError(f"query parameter {key!r} is not a number from {least} to {most}")
        numbers[name] = int(value)
    if 0 < numbers.get("frame_max", 0) < FRAME_BYTES_MIN:
        raise ValueError(f"query parameter 'frame_max' is below {FRAME_BYTES_MIN}")
    return numbers
