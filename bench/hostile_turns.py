"""What a user does who sends as many small requests as the broker takes, without waiting."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Final

from target import Target

from support.wire import raw

#: Requests that are sent together, and connections of a user who opens many.
_BATCH: Final = 2000
_CONNECTIONS: Final = 50


def _pour(target: Target, requests: list[bytes]) -> None:
    """Send requests again and again on one connection, reading what is answered meanwhile."""
    data = b"".join(requests)
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="x", type="topic")
        connection.declare(1, "q", durable=False, arguments={"x-max-length": 1000})
        threading.Thread(target=_swallow, args=(connection,), daemon=True).start()
        while not target.over:
            connection.send(data)


def _swallow(connection: raw.Connection) -> None:
    """Read until the connection ends."""
    with contextlib.suppress(OSError):
        while connection.socket.recv(1 << 20):
            pass


def _each(count: int, request: Callable[[int], bytes]) -> list[bytes]:
    return [request(number) for number in range(count)]


def attack_pipelined_declares(target: Target) -> None:
    """Queues declared and deleted, without waiting."""

    def request(number: int) -> bytes:
        name = f"d{number}"
        return raw.method(1, "queue.declare", queue=name, no_wait=True) + raw.method(
            1, "queue.delete", queue=name, no_wait=True
        )

    _pour(target, _each(_BATCH, request))


def attack_pipelined_durable_declares(target: Target) -> None:
    """Durable queues declared and deleted, without waiting."""

    def request(number: int) -> bytes:
        name = f"e{number}"
        return raw.method(1, "queue.declare", queue=name, durable=True, no_wait=True) + raw.method(
            1, "queue.delete", queue=name, no_wait=True
        )

    _pour(target, _each(_BATCH, request))


def attack_pipelined_binds(target: Target) -> None:
    """Topic bindings made and removed, without waiting."""

    def request(number: int) -> bytes:
        ends = {"queue": "q", "exchange": "x", "routing_key": f"a.{number}.#"}
        bind = raw.method(1, "queue.bind", **ends, no_wait=True)
        return bind + raw.method(1, "queue.unbind", **ends)

    _pour(target, _each(_BATCH, request))


def attack_pipelined_gets(target: Target) -> None:
    """Gets from an empty queue, without waiting."""
    _pour(target, [raw.method(1, "basic.get", queue="q", no_ack=True)] * _BATCH)


def attack_small_publishes(target: Target) -> None:
    """Messages of one byte to a queue of limited length."""
    _pour(target, [raw.publish(1, "", "q", b"x")] * _BATCH)


def attack_unroutable_publishes(target: Target) -> None:
    """Messages with ever other topic keys, which no binding wants."""
    _pour(target, _each(_BATCH * 10, lambda number: raw.publish(1, "x", f"a.b.{number}", b"x")))


def attack_consumers(target: Target) -> None:
    """Consumers begun and cancelled, without waiting."""

    def request(number: int) -> bytes:
        tag = f"c{number}"
        consume = raw.method(1, "basic.consume", queue="q", consumer_tag=tag, no_wait=True)
        return consume + raw.method(1, "basic.cancel", consumer_tag=tag, no_wait=True)

    _pour(target, _each(_BATCH, request))


def attack_channels(target: Target) -> None:
    """Channels opened and closed, without waiting."""

    def request(number: int) -> bytes:
        number += 2
        closed = raw.method(number, "channel.close", code=200)
        return raw.method(number, "channel.open") + closed

    _pour(target, _each(1000, request))


def attack_many_greedy_connections(target: Target) -> None:
    """Queues declared and deleted on fifty connections at once, without waiting."""
    declares = b"".join(
        raw.method(1, "queue.declare", queue=f"m{number}", no_wait=True)
        + raw.method(1, "queue.delete", queue=f"m{number}", no_wait=True)
        for number in range(100)
    )
    with contextlib.suppress(OSError, raw.Closed), contextlib.ExitStack() as open_:
        connections = []
        for _ in range(_CONNECTIONS):
            connection = open_.enter_context(target.log_in())
            connection.open_channel(1)
            threading.Thread(target=_swallow, args=(connection,), daemon=True).start()
            connections.append(connection)
        while not target.over:
            for connection in connections:
                connection.send(declares)


def attack_deep_queue(target: Target) -> None:
    """A consumer of messages that come as fast as they are published, without acks."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as consuming:
        consuming.open_channel(1)
        consuming.declare(1, "q", durable=False)
        consuming.call(1, "basic.consume", queue="q", no_ack=True)
        threading.Thread(target=_swallow, args=(consuming,), daemon=True).start()
        with target.log_in() as publishing:
            publishing.open_channel(1)
            data = raw.publish(1, "", "q", bytes(100)) * _BATCH
            while not target.over:
                publishing.send(data)
