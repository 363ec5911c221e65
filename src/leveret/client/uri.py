"""Parsing of AMQP URIs, such as `amqp://user:password@host:port/vhost?heartbeat=30`.

Parts are percent-decoded.  An empty path and a bare `/` both mean the vhost `/`, as in most clients
(in the RabbitMQ specification the latter is the empty name).  The query contains numbers only.  It
cannot select a file, a certificate or a TLS version, because URIs come from configuration that is
often less trusted than the code.  TLS is configured by an `ssl.SSLContext` in code.

Invariants: neither `repr`, nor `str`, nor an error message contains the password.

Source: https://www.rabbitmq.com/docs/uri-spec and uri-query-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypedDict
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from leveret.limits import FRAME_BYTES_MIN, HANDSHAKE_SECONDS_MAX, SHORT_STRING_BYTES_MAX

if TYPE_CHECKING:
    from urllib.parse import SplitResult

PORT: Final = 5672
PORT_TLS: Final = 5671


@dataclass(frozen=True, slots=True)
class Parameters:
    """An address, its login and the requested limits; `None` accepts the broker's value.

    The default port is that of AMQP without TLS, also with `tls`.  `heartbeat_seconds` 0 disables
    heartbeats.  `connection_timeout_ms` limits the time for connecting and logging in, and for
    closing.  `channel_max` is the number of channels, and `frame_max` the bytes of a frame; 0 means
    no limit.  `str` returns the URI without the password, which `repr` does not show either.
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


class Said(TypedDict, total=False):
    """The parameters set by a URI or by keyword arguments."""

    host: str
    port: int
    username: str
    password: str
    vhost: str
    tls: bool
    heartbeat_seconds: int | None
    connection_timeout_ms: int
    channel_max: int | None
    frame_max: int | None


Number = Literal["heartbeat_seconds", "connection_timeout_ms", "channel_max", "frame_max"]

#: For each query parameter: the field of `Parameters` that it sets, its minimum and its maximum.
QUERY: Final[dict[str, tuple[Number, int, int]]] = {
    "heartbeat": ("heartbeat_seconds", 0, 65_535),
    "connection_timeout": ("connection_timeout_ms", 1, 2**31 - 1),
    "channel_max": ("channel_max", 0, 65_535),
    "frame_max": ("frame_max", 0, 2**31 - 1),
}


def parse_uri(uri: str) -> Parameters:
    """Parse a URI: `amqp://user:password@host:port/vhost?heartbeat=30`, or `amqps://` for TLS.

    Each part is optional and percent-encoded.  The query may contain `heartbeat` (seconds),
    `connection_timeout` (milliseconds), `channel_max` and `frame_max` (bytes).

    Raises: ValueError, whose text never contains the password.
    """
    return parameters_of(said_by(uri))


def parameters_of(said: Said) -> Parameters:
    """Fill in the defaults; TLS has its own default port."""
    if said.get("tls", False):
        said = {"port": PORT_TLS, **said}
    return Parameters(**said)


def said_by(uri: str) -> Said:
    """Return the parameters that `uri` itself sets, without defaults.

    The scheme selects TLS, and a user without a password gets an empty one.

    Raises: ValueError, whose text never contains the password.
    """
    parts = _split(uri)
    said = Said(tls=parts.scheme == "amqps")
    if parts.hostname:
        said["host"] = _decode(parts.hostname, "host")
    port = _port(parts)
    if port is not None:
        said["port"] = port
    if parts.username is not None:
        said["username"] = _decode(parts.username, "user name")
        said["password"] = _decode(parts.password or "", "password")
    if parts.path not in {"", "/"}:
        said["vhost"] = _vhost(parts.path)
    _query(parts.query, said)
    return said


def _split(uri: str) -> SplitResult:
    """Split `uri` and check its scheme."""
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


def _port(parts: SplitResult) -> int | None:
    """Return the port.  Errors quote no text, since an unescaped / moves a password here."""
    try:
        port = parts.port
    except ValueError:
        text = "the port in the URI is not a number up to 65535 (is a / in the password %2F?)"
        raise ValueError(text) from None
    if port == 0:
        raise ValueError("the port in the URI is 0")
    return port


def _vhost(path: str) -> str:
    """Return the vhost of a URI's path."""
    if "/" in path[1:]:
        raise ValueError("the vhost in the URI contains a /; write it as %2F")
    vhost = _decode(path[1:], "vhost")
    if len(vhost.encode()) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"the vhost in the URI is longer than {SHORT_STRING_BYTES_MAX} bytes")
    return vhost


def _query(query: str, said: Said) -> None:
    """Add the numbers set by the query."""
    seen: set[str] = set()
    if "@" in query:
        raise ValueError("the query parameters contain an @ (is a ? in the password %3F?)")
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in QUERY:
            raise ValueError(f"unknown query parameter {key!r}; known: {', '.join(sorted(QUERY))}")
        name, least, most = QUERY[key]
        if key in seen:
            raise ValueError(f"query parameter {key!r} is given twice")
        if not (
            value.isascii() and value.isdigit() and len(value) < 11 and least <= int(value) <= most
        ):
            raise ValueError(f"query parameter {key!r} is not a number from {least} to {most}")
        seen.add(key)
        said[name] = int(value)
    if 0 < (said.get("frame_max") or 0) < FRAME_BYTES_MIN:
        raise ValueError(f"query parameter 'frame_max' is below {FRAME_BYTES_MIN}")
