"""Connections of a command, by the blocking client, whose errors end the command.

A context or the environment names the authorities that a command trusts over TLS
(`contexts.trust`).  A URI cannot name files (`client.uri` explains why).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from leveret.cli import exits, options
from leveret.cli.contexts.trust import amqp_tls
from leveret.client.blocking import Channel, Connection, connect
from leveret.client.certificates import UNKNOWN_AUTHORITY
from leveret.client.errors import ClientError, ConsumerCancelled, PublishFailed, Returned
from leveret.client.uri import Parameters
from leveret.errors import AmqpError


@contextmanager
def failures() -> Iterator[None]:
    """Convert errors of the client and the broker to Failure."""
    try:
        yield
    except AmqpError as error:
        raise exits.refused(error) from None
    except Returned as error:
        raise exits.Failure(f"{error} (--optional accepts this)", exits.REFUSED) from None
    except (PublishFailed, ConsumerCancelled) as error:
        raise exits.Failure(str(error), exits.REFUSED) from None
    except (ClientError, TimeoutError) as error:
        raise exits.Failure(str(error), exits.UNAVAILABLE) from None
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


@contextmanager
def open_channel(uri: str) -> Iterator[tuple[Connection, Channel]]:
    """Open a connection and a channel, and close both at the end.  Raises: Failure."""
    with failures(), open_connection(options.read_uri(uri), "leveret") as connection:
        yield connection, connection.channel()


def open_connection(parameters: Parameters, name: str) -> Connection:
    """Return a new connection, which listings show as `name`.  Raises: Failure."""
    with failures():
        try:
            tls = amqp_tls(parameters)
            return connect(parameters, connection_name=name, recover=False, ssl=tls)
        except ssl.SSLError as error:
            raise no_tls(error, parameters) from None
        except OSError as error:
            where = f"{parameters.host}:{parameters.port}"
            raise exits.Failure(
                f"cannot connect to {where}: {exits.reason_of(error)}",
                exits.UNAVAILABLE,
                hint="is a broker running there? leveret serve starts one, --uri names another one",
            ) from None


def no_tls(error: ssl.SSLError, parameters: Parameters) -> exits.Failure:
    """Return the failure of a command that cannot open a TLS connection to the broker."""
    where = f"{parameters.host}:{parameters.port}"
    if not isinstance(error, ssl.SSLCertVerificationError):
        text = f"no TLS with {where}: {error.reason or error}; amqp:// is without TLS"
        return exits.Failure(text, exits.PROTOCOL)
    text = f"no TLS with {where}: its certificate was refused: {error.verify_message}"
    if error.verify_code in UNKNOWN_AUTHORITY:
        text += "; name a file of trusted authorities in ca_file of a context or SSL_CERT_FILE"
    return exits.Failure(text, exits.PROTOCOL)
