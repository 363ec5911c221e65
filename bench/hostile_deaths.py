"""What a user who may declare does with dead letters: messages that multiply, and chains."""

from __future__ import annotations

import contextlib
from typing import Any

from target import Target

from support.wire import raw

QUEUES = 10
CHAIN = 400


def _declare(connection: raw.Connection, name: str, exchange: str, **more: Any) -> None:
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": exchange} | more
    connection.declare(1, name, durable=False, arguments=arguments)


def _fan_out(connection: raw.Connection) -> None:
    """Ten queues in which messages die at once and go to all ten."""
    connection.call(1, "exchange.declare", exchange="all", type="fanout")
    for number in range(QUEUES):
        _declare(connection, f"q{number}", "all")
        connection.call(1, "queue.bind", queue=f"q{number}", exchange="all")


def attack_dead_letters_once(target: Target) -> None:
    """One message that dies in ten queues, each of which dead-letters to all ten."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _fan_out(connection)
        connection.send(raw.publish(1, "", "q0", bytes(52)))
        while not target.over:
            target.nap(0.5)


def attack_dead_letters(target: Target) -> None:
    """The same with 20 messages a second."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _fan_out(connection)
        while not target.over:
            connection.send(raw.publish(1, "", "q0", bytes(52)))
            target.nap(0.05)


def attack_dead_letter_chain(target: Target) -> None:
    """Ten messages a second through a chain of 400 queues."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        for number in range(CHAIN):
            more = {"x-dead-letter-routing-key": f"c{number + 1}"}
            _declare(connection, f"c{number}", "", **more)
        while not target.over:
            connection.send(raw.publish(1, "", "c0", bytes(52)))
            target.nap(0.1)


def attack_expiry(target: Target) -> None:
    """200,000 messages that expire at once, with a dead-letter exchange, again and again."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="all", type="fanout")
        _declare(connection, "many", "all", **{"x-message-ttl": 1000})
        connection.declare(1, "dead", durable=False, arguments={"x-max-length": 10})
        connection.call(1, "queue.bind", queue="dead", exchange="all")
        batch = raw.publish(1, "", "many", b"m") * 1000
        while not target.over:
            for _ in range(200):
                connection.send(batch)
            target.nap(2)
