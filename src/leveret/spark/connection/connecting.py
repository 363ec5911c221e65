"""How the parts that Spark runs connect to a broker, and which failures are worth another attempt.

An interruption is what a broker that starts, stops or is away does to its clients; asking again
helps, and `retries.py` says for how long.  Not so what the broker refuses (a password, a vhost) and
a certificate that nobody vouches for: those are raised at once.

Invariant: each error names the address that was asked, and its cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from ssl import SSLCertVerificationError
from typing import Final

from leveret.client import (
    Closed,
    ConnectionLost,
    ConsumerCancelled,
    Parameters,
    parse_uri,
)
from leveret.client.blocking import Connection, connect
from leveret.client.session.connection import CAPABILITIES
from leveret.errors import AmqpError, ConnectionForced, InternalError, ResourceFault
from leveret.spark.transports.base import Interrupted

#: What ends a connection, or only a consumer, without being the data's fault.
INTERRUPTIONS: Final = (
    OSError,
    Closed,
    ConnectionLost,
    ConsumerCancelled,
    ConnectionForced,
    InternalError,
    ResourceFault,
)


class Untrusted(Exception):
    """The broker's certificate does not verify, however often it is shown."""


def open_connection(
    parameters: Parameters,
    connection_name: str,
    capabilities: Mapping[str, bool] | None = None,
) -> Connection:
    """Connect once; `capabilities` are those that the client says it has beside its usual ones.

    Raises: Interrupted; Untrusted; AmqpError, as AccessRefusedHard (403) and NotAllowed (530), when
    the broker refuses.
    """
    address = address_of(parameters)
    try:
        properties = {"capabilities": {**CAPABILITIES, **(capabilities or {})}}
        return connect(
            parameters, connection_name=connection_name[:128], client_properties=properties
        )
    except INTERRUPTIONS as error:
        raise interrupted(error, address) from error
    except AmqpError as error:
        raise type(error)(f"{error.text} (at {address})") from error


def is_leveret(connection: Connection) -> bool:
    """Tell whether the broker is Leveret."""
    properties = connection.server_properties
    return "Leveret" in f"{properties.get('product')} {properties.get('platform')}"


def interrupted(error: Exception, address: str = "") -> Interrupted:
    """Return what an interruption is to those who may ask again: where it happened, and why.

    Raises: Untrusted for a certificate, which asking again does not better.
    """
    if isinstance(error, SSLCertVerificationError):
        raise Untrusted(f"{address}: {error}" if address else str(error)) from error
    cause = f"{type(error).__name__}: {error}"
    return Interrupted(f"{address}: {cause}" if address else cause)


def address_of(parameters: Parameters) -> str:
    """Return where a broker is, without who logs in."""
    host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
    return f"{'amqps' if parameters.tls else 'amqp'}://{host}:{parameters.port}"


def place_of(uri: str) -> str:
    """Return where a URI leads, without who logs in: an address, or a directory's URI."""
    return uri if uri.startswith("file:") else address_of(parse_uri(uri))
