"""Properties and header values come back as they were sent, byte for byte (section 4.2.6.1)."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from support.brokers.brokers import Broker
from support.wire import raw
from support.wire.raw import Typed

#: One value or more for each tag that RabbitMQ knows.
VALUES: dict[str, list[Any]] = {
    "t": [True, False],
    "b": [-128, 127],
    "B": [0, 255],
    "s": [-32_768, 32_767],
    "u": [0, 65_535],
    "I": [-(2**31), 2**31 - 1],
    "i": [0, 2**32 - 1],
    "l": [-(2**63), 2**63 - 1],
    "L": [0, 2**64 - 1],
    "f": [0.5, -3.25],
    "d": [1e300, -0.1],
    "D": [(2, 314), (0, -1)],
    "S": ["", "text", "ü", b"\xff\x00not utf-8"],
    "A": [[], [1, "a", [None, True]], [{"in": [1.5]}]],
    "T": [0, 1_700_000_000],
    "F": [{}, {"a": {"b": {"c": 1}}}],
    "V": [None],
    "x": [b"", b"\x00\xff"],
}

ALL: dict[str, Any] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "headers": {"h": 1},
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": "correlation",
    "reply_to": "reply",
    "expiration": "60000",
    "message_id": "message",
    "timestamp": 1_700_000_000,
    "type": "type",
    "user_id": "guest",
    "app_id": "app",
    "cluster_id": "cluster",
}


def there_and_back(connection: raw.Connection, queue: str, properties: bytes) -> bytes:
    """The property bytes as they are delivered."""
    head = raw.method(1, "basic.publish", routing_key=queue)
    connection.send(head, raw.content(1, b"body", properties))
    got = connection.get(1, queue)
    assert got is not None
    assert got.body == b"body"
    return got.properties


@pytest.mark.parametrize("tag", VALUES)
def test_header_values_of_every_type(connection: raw.Connection, name: str, tag: str) -> None:
    """The tag and the bytes of a value are the sender's own."""
    connection.declare(1, name, exclusive=True)
    headers = {f"h{i}": Typed(tag, value) for i, value in enumerate(VALUES[tag])}
    sent = raw.properties(headers=headers)
    assert there_and_back(connection, name, sent) == sent


@pytest.mark.parametrize("count", range(15))
def test_properties_alone_and_together(connection: raw.Connection, name: str, count: int) -> None:
    """Each by itself, and all fourteen; durable queues and persistent messages alike."""
    chosen = ALL if count == 14 else dict([list(ALL.items())[count]])
    connection.declare(1, name, durable=True)
    sent = raw.properties(**chosen)
    assert there_and_back(connection, name, sent) == sent
    connection.call(1, "queue.delete", queue=name)


def test_many_headers(connection: raw.Connection, name: str) -> None:
    """A thousand headers in one table, in their order."""
    connection.declare(1, name, exclusive=True)
    sent = raw.properties(headers={f"header-{i}": i for i in range(1000)})
    assert there_and_back(connection, name, sent) == sent


@pytest.mark.parametrize(
    "properties",
    [
        struct.pack(">H", 0x8000) + b"\x20short",
        struct.pack(">H", 0x2000) + struct.pack(">I", 1000) + b"\x01a",
        struct.pack(">H", 0x2000) + struct.pack(">I", 3) + b"\x01aZ",
        struct.pack(">H", 0x0040) + b"\0\0",
        b"",
    ],
    ids=["string", "table", "table-tag", "timestamp", "no-flags"],
)
def test_broken_properties(
    connection: raw.Connection, name: str, properties: bytes, broker: Broker
) -> None:
    """Properties that cannot be read end the connection with 501 or 502."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 reads properties when it needs them")
    connection.declare(1, name, exclusive=True)
    connection.send(raw.method(1, "basic.publish", routing_key=name), raw.header(1, 0, properties))
    got = connection.expect(0, "connection.close")
    assert got.code in (501, 502), got
    connection.send(raw.method(0, "connection.close-ok"))
    connection.expect_end()
