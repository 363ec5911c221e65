"""AMQP connections to a broker, and the classification of failures.

An interruption means that the broker is starting, stopping or unreachable.  A retry helps, and
`retries.py` limits its time.  A refusal by the broker (a password, a vhost) and an untrusted
certificate are raised at once.

Invariant: each error contains the address and the cause.
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
from leveret.errors import (
    AccessRefusedHard,
    AmqpError,
    ConnectionForced,
    InternalError,
    NotFound,
    ResourceFault,
)
from leveret.spark.errors import SourceError
from leveret.spark.options.trust import context_of
from leveret.spark.transport import Interrupted

#: The errors that end a connection or a consumer, but may not occur again after a retry.
INTERRUPTIONS: Final = (
    OSError,
    Closed,
    ConnectionLost,
    ConsumerCancelled,
    ConnectionForced,
    InternalError,
    ResourceFault,
)


class Untrusted(SourceError):
    """The broker's certificate is not trusted, so a retry cannot help."""


def open_connection(
    parameters: Parameters,
    connection_name: str,
    capabilities: Mapping[str, bool] | None = None,
) -> Connection:
    """Connect once; `capabilities` are declared in addition to the client's own.

    Raises: Interrupted; Untrusted; TrustError; AmqpError if the broker refuses, for example
    AccessRefusedHard (403) or NotAllowed (530).
    """
    address = address_of(parameters)
    try:
        properties = {"capabilities": {**CAPABILITIES, **(capabilities or {})}}
        return connect(
            parameters,
            connection_name=connection_name[:128],
            client_properties=properties,
            recover=False,
            ssl=context_of(parameters),
        )
    except INTERRUPTIONS as error:
        raise interrupted(error, address) from error
    except AmqpError as error:
        raise type(error)(_refusal(error, parameters)) from error


def _refusal(error: AmqpError, parameters: Parameters) -> str:
    """Return the text of a refused connection: the refusal, the address and the remedy."""
    address, vhost = address_of(parameters), parameters.vhost
    if isinstance(error, AccessRefusedHard):
        return (
            f"the broker at {address} refused the login of user {parameters.username!r}: check the "
            "user and the password in the option uri, or the variable that passwordEnv names, and "
            f"see the broker's log ({error.text})"
        )
    if error.text == f"vhost {vhost} not found":  # Leveret's and RabbitMQ's text
        return (
            f"no vhost {vhost!r} at {address}: create it, or correct the path of the option uri, "
            "in which %2F is the vhost '/'"
        )
    return f"{error.text} (at {address})"


def missing(kind: str, name: str, vhost: str, address: str) -> NotFound:
    """Return the error for a stream or queue that does not exist."""
    return NotFound(
        f"no {kind} '{name}' in vhost '{vhost}' at {address}: declare it first, or correct its "
        "name in the options"
    )


def is_leveret(connection: Connection) -> bool:
    """Return whether the broker is Leveret."""
    properties = connection.server_properties
    return "Leveret" in f"{properties.get('product')} {properties.get('platform')}"


def interrupted(error: Exception, address: str = "") -> Interrupted:
    """Return an `Interrupted` with the address and the cause, for callers that may retry.

    Raises: Untrusted if the certificate is not trusted.
    """
    if isinstance(error, SSLCertVerificationError):
        raise Untrusted(f"{address}: {error}" if address else str(error)) from error
    cause = f"{type(error).__name__}: {error}"
    return Interrupted(f"{address}: {cause}" if address else cause)


def address_of(parameters: Parameters) -> str:
    """Return the address of a broker, without credentials."""
    host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
    return f"{'amqps' if parameters.tls else 'amqp'}://{host}:{parameters.port}"


def place_of(uri: str) -> str:
    """Return a broker's address without credentials, or a data directory's URI."""
    return uri if uri.startswith("file:") else address_of(parse_uri(uri))
