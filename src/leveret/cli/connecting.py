"""Connecting for one command: our blocking client, and its errors as ends of the command."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from leveret.cli import exits, options
from leveret.client.blocking import Channel, Connection, connect
from leveret.client.errors import ClientError, ConsumerCancelled, PublishFailed
from leveret.errors import AmqpError


@contextmanager
def failures() -> Iterator[None]:
    """Turn what can go wrong between client and broker into Failure."""
    try:
        yield
    except AmqpError as error:
        raise exits.refused(error) from None
    except (PublishFailed, ConsumerCancelled) as error:
        raise exits.Failure(str(error), exits.REFUSED) from None
    except (ClientError, TimeoutError) as error:
        raise exits.Failure(str(error), exits.UNAVAILABLE) from None
    except ValueError as error:
        raise exits.Failure(str(error), exits.USAGE) from None


@contextmanager
def open_channel(uri: str) -> Iterator[tuple[Connection, Channel]]:
    """Give a connection and a channel on it, both closed at the end.  Raises: Failure."""
    parameters = options.read_uri(uri)
    with failures():
        try:
            connection = connect(parameters, connection_name="leveret")
        except ssl.SSLError as error:
            where = f"{parameters.host}:{parameters.port}"
            text = f"no TLS with {where}: {error.reason or error}; amqp:// is without TLS"
            raise exits.Failure(text, exits.PROTOCOL) from None
        except OSError as error:
            text = f"cannot connect to {parameters.host}:{parameters.port}: {error}"
            raise exits.Failure(text, exits.UNAVAILABLE) from None
        with connection:
            yield connection, connection.channel()
