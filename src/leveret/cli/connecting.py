"""Connecting for one command: our blocking client, and its errors as ends of the command.

Whom a command trusts over TLS is said by a context, or by the environment (`contexts.trust`); a URI
names no file (`client.uri` says why).
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
    """Turn what can go wrong between client and broker into Failure."""
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
    """Give a connection and a channel on it, both closed at the end.  Raises: Failure."""
    with failures(), open_connection(options.read_uri(uri), "leveret") as connection:
        yield connection, connection.channel()


def open_connection(parameters: Parameters, name: str) -> Connection:
    """Return a new connection, which lists show under `name`.  Raises: Failure."""
    with failures():
        try:
            tls = amqp_tls(parameters)
            return connect(parameters, connection_name=name, recover=False, ssl=tls)
        except ssl.SSLError as error:
            raise no_tls(error, parameters) from None
        except OSError as error:
            text = f"cannot connect to {parameters.host}:{parameters.port}: {error}"
            raise exits.Failure(text, exits.UNAVAILABLE) from None


def no_tls(error: ssl.SSLError, parameters: Parameters) -> exits.Failure:
    """Return the end of a command that got no TLS with a broker."""
    where = f"{parameters.host}:{parameters.port}"
    if not isinstance(error, ssl.SSLCertVerificationError):
        text = f"no TLS with {where}: {error.reason or error}; amqp:// is without TLS"
        return exits.Failure(text, exits.PROTOCOL)
    text = f"no TLS with {where}: its certificate was refused: {error.verify_message}"
    if error.verify_code in UNKNOWN_AUTHORITY:
        text += "; ca_file of a context, or SSL_CERT_FILE, names a file with those to trust"
    return exits.Failure(text, exits.PROTOCOL)
