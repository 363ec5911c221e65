"""The check that the destination of a write exists, before the first task stages a row.

Only destinations that options name are checked; those in columns are not known yet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from leveret.errors import NotFound, SoftError
from leveret.spark.connection.connecting import INTERRUPTIONS, address_of, open_connection
from leveret.spark.transport import Interrupted
from leveret.spark.write.link import WriteError
from leveret.spark.write.options import WriteOptions
from leveret.spark.write.topics import has_exchange

#: The kind of object that each option names; any other option names a queue.
_KINDS: Final = {
    "exchange": "exchange",
    "unroutable": "exchange",
    "stream": "stream",
    "topic": "super stream, exchange or stream",
}

log = logging.getLogger("leveret.spark")


def check_destination(options: WriteOptions) -> None:
    """Check that the exchanges and queues in the options exist, if the broker can be reached.

    The broker is asked once and without retries, which are left to the tasks.

    Raises: WriteError; the exceptions of a refused login.
    """
    named = [*_named(options)]
    if not named:
        return
    try:
        _check(options, named)
    except (Interrupted, *INTERRUPTIONS) as error:
        log.info("the destination %s is not checked: %s", options.title, error)


def _named(options: WriteOptions) -> Iterator[tuple[str, str]]:
    """Yield the option and the name of each exchange and queue that must exist."""
    if options.exchange:
        yield "exchange", options.exchange
    if options.dead_letter_exchange:
        yield "unroutable", options.dead_letter_exchange
    # With other values, messages for a missing queue are dropped or go elsewhere.
    if options.unroutable == "fail":
        for option, name in (("stream", options.stream), ("queue", options.queue)):
            if name is not None:
                yield option, name
        if options.exchange == "" and options.routing_key is not None:
            yield "routingKey", options.routing_key
        if options.topic is not None:
            yield "topic", options.topic


def _check(options: WriteOptions, named: list[tuple[str, str]]) -> None:
    """Ask the broker for each name.  Raises: WriteError; the errors of a connection or login."""
    parameters = options.parameters()
    with open_connection(parameters, f"leveret spark write {options.title}") as connection:
        for option, name in named:
            if option == "topic" and has_exchange(connection, name):
                continue
            is_exchange = option in ("exchange", "unroutable")
            channel = connection.channel()
            try:
                if is_exchange:
                    channel.exchange_declare(name, passive=True)
                else:
                    channel.queue_declare(name, passive=True)
            except NotFound:
                kind = _KINDS.get(option, "queue")
                raise WriteError(
                    f"option {option!r}: there is no {kind} {name!r} in vhost "
                    f"{parameters.vhost!r} at {address_of(parameters)}. Declare it before the write"
                ) from None
            except SoftError:
                continue  # for example a missing permission, which the write itself reports
            channel.close()
