"""The HTTP API of a broker on another machine: its address, the user, and the TLS files."""

from __future__ import annotations

import base64
import http.client
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote, urlsplit

from leveret.cli.contexts.kept import Context
from leveret.cli.exits import CONFIG, USAGE, Failure
from leveret.secret_files import read_secret

if TYPE_CHECKING:
    import ssl

#: The password of the user who calls the API.
PASSWORD_VARIABLE: Final = "LEVERET_API_PASSWORD"  # noqa: S105 (the name of a variable)
PASSWORD_FILE_VARIABLE: Final = "LEVERET_API_PASSWORD_FILE"  # noqa: S105 (as above)

#: The time limit for connecting, and for each read of an answer.
SECONDS_MAX: Final = 30.0

_PORTS: Final = {"http": 15672, "https": 15671}


@dataclass(frozen=True)
class Remote:
    """An API over HTTP or HTTPS; its text form omits the password."""

    scheme: str
    host: str
    port: int
    #: The part of a path before `/api/`.
    prefix: str
    user: str
    password: str = field(repr=False)
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    @classmethod
    def of(cls, context: Context) -> Self:
        """Return the API of a context.  Raises: Failure."""
        try:
            parts = urlsplit(context.api)
            port = parts.port
        except ValueError:
            # A / or a [ in a password is parsed as part of the host or the port.
            text = "the host or the port is invalid (write a / in the password as %2F, a [ as %5B)"
            raise _wrong(text) from None
        if parts.scheme not in _PORTS or not parts.hostname:
            raise _wrong("it must be http://HOST[:PORT] or https://HOST[:PORT]")
        if parts.query or parts.fragment:
            raise _wrong("it has a query or a fragment (write a ? in the password as %3F)")
        return cls(
            parts.scheme,
            parts.hostname,
            port or _PORTS[parts.scheme],
            parts.path.rstrip("/").removesuffix("/api"),
            unquote(parts.username or "") or context.user or "guest",
            unquote(parts.password or "") or _password(context),
            context.ca_file,
            context.certificate_file,
            context.key_file,
        )

    def __str__(self) -> str:
        """The address without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is not yet open.  Raises: Failure for unusable TLS files."""
        if self.scheme == "http":
            return http.client.HTTPConnection(self.host, self.port, timeout=SECONDS_MAX)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=SECONDS_MAX, context=self._tls()
        )

    def headers(self) -> dict[str, str]:
        """Return the header that authenticates the user.  Raises: Failure for invalid text."""
        try:
            raw = f"{self.user}:{self.password}".encode()
        except UnicodeEncodeError:
            raise Failure("the user or the password for the API is not UTF-8", CONFIG) from None
        return {"Authorization": f"Basic {base64.b64encode(raw).decode()}"}

    def _tls(self) -> ssl.SSLContext:
        """Return the TLS settings of the client.  Raises: Failure."""
        from leveret.cli.contexts.trust import tls_of

        return tls_of(self.ca_file, self.certificate_file, self.key_file)


def _wrong(why: str) -> Failure:
    """Return the error for an address; it does not quote the address, which may have a password."""
    return Failure(f"the address of the API is not valid: {why}", USAGE)


def _password(context: Context) -> str:
    """Return the user's password, by default `guest` for the user guest.  Raises: Failure."""
    if given := os.environ.get(PASSWORD_VARIABLE):
        return given
    for source, path in (
        (PASSWORD_FILE_VARIABLE, os.environ.get(PASSWORD_FILE_VARIABLE)),
        ("password_file", context.password_file),
    ):
        if path:
            try:
                return read_secret(path)
            except ValueError as error:
                raise Failure(f"{source}: {error}", CONFIG) from None
    return context.password or ("guest" if context.user in ("", "guest") else "")
