"""What a client's response says by the mechanisms that are offered: its user and password.

EXTERNAL has no credentials: `Handshake` takes the name from the certificate, whatever the response.
RabbitMQ does so too, and clients send various things there.

Source: RFC 4616 for PLAIN; AMQPLAIN is RabbitMQ's.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import AmqpError, CommandInvalid, SyntaxFault
from leveret.wire.tables import read_entries

#: What connection.start offers, and what it offers a client whose certificate is verified.
MECHANISMS: Final = b"PLAIN AMQPLAIN"
MECHANISMS_WITH_CERTIFICATE: Final = b"PLAIN AMQPLAIN EXTERNAL"

#: The mechanism of who proved his name before: by a certificate (RFC 4422, appendix A).
EXTERNAL: Final = "EXTERNAL"


def credentials(mechanism: str, response: bytes) -> tuple[str, bytes]:
    """Return user and password.

    Raises: CommandInvalid (503) for a mechanism that is not offered; SyntaxFault (502).
    """
    if mechanism == "PLAIN":
        fields = response.split(b"\x00")
        if len(fields) != 3:
            raise SyntaxFault("a PLAIN response is authzid, user and password, each after a zero")
        if fields[0]:
            raise SyntaxFault("a PLAIN response asks for another identity than its user's")
        return _name(fields[1]), fields[2]
    if mechanism == "AMQPLAIN":
        try:
            table = read_entries(response, 0, len(response))
        except AmqpError:
            raise SyntaxFault("an AMQPLAIN response is a table") from None
        login = table.get("LOGIN")
        password = table.get("PASSWORD")
        if isinstance(password, str):
            password = password.encode("utf-8")
        if not isinstance(login, str) or not isinstance(password, bytes):
            raise SyntaxFault("an AMQPLAIN response holds LOGIN and PASSWORD")
        return login, password
    raise CommandInvalid(f"unknown authentication mechanism '{mechanism}'")


def _name(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SyntaxFault("a user name is UTF-8") from None
