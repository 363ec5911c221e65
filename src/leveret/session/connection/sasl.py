"""Reads the user and the password from a client's SASL response.

EXTERNAL has no credentials: `Handshake` takes the name from the certificate and ignores the
response, as RabbitMQ does, because clients send various things there.

Source: RFC 4616 for PLAIN; AMQPLAIN is RabbitMQ's.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import AmqpError, CommandInvalid, SyntaxFault
from leveret.wire.tables import read_entries

#: The mechanisms that connection.start offers, without and with a verified client certificate.
MECHANISMS: Final = b"PLAIN AMQPLAIN"
MECHANISMS_WITH_CERTIFICATE: Final = b"PLAIN AMQPLAIN EXTERNAL"

#: The mechanism of clients authenticated by their certificate (RFC 4422, appendix A).
EXTERNAL: Final = "EXTERNAL"


def credentials(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """Return user and password.

    Raises: CommandInvalid (503) for a mechanism that is not offered; SyntaxFault (502).
    """
    if mechanism == "PLAIN":
        fields = response.split(b"\x00")
        if len(fields) != 3:
            raise SyntaxFault(
                "a PLAIN response must be authzid, user and password, separated by zero bytes"
            )
        if fields[0]:
            raise SyntaxFault("the authzid of a PLAIN response must be empty")
        return _name(fields[1]), fields[2]
    if mechanism == "AMQPLAIN":
        try:
            table = read_entries(response, 0, len(response))
        except AmqpError:
            raise SyntaxFault("an AMQPLAIN response must be a table") from None
        login = table.get("LOGIN")
        password = table.get("PASSWORD")
        if isinstance(password, str):
            password = password.encode("utf-8")
        if not isinstance(login, str) or not isinstance(password, bytes):
            raise SyntaxFault("an AMQPLAIN response must hold LOGIN and PASSWORD")
        return login, password
    raise CommandInvalid(f"unknown authentication mechanism '{mechanism}'")


def _name(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SyntaxFault("a user name must be UTF-8") from None
