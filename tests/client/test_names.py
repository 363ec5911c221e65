"""The names that completion shows of each class: what users may use, and nothing else.

A new public name is added here and to the reference; one that is only for the client's own parts
belongs to `shown.py`.
"""

from __future__ import annotations

import asyncio

from leveret import client
from leveret.client import Message, blocking

CONNECTION = {
    *("blocked_reason", "channel", "channels", "close", "current_queue_name", "error"),
    *("input_bytes", "input_bytes_high", "input_bytes_max", "is_open", "is_recovering"),
    *("output_bytes_max", "parameters", "request", "server_properties", "update_secret"),
}
CHANNEL = {
    *("ack", "close", "confirm_select", "connection", "consume", "error", "exchange_bind"),
    *("exchange_declare", "exchange_delete", "exchange_unbind", "flow_active", "get", "is_open"),
    *("nack", "number", "on_return", "publish", "publish_nowait", "qos", "queue_bind"),
    *("queue_declare", "queue_delete", "queue_purge", "queue_unbind", "recover", "reject"),
    *("reply", "tx_commit", "tx_rollback", "tx_select", "unconfirmed_count", "wait_for_confirms"),
}
CONSUMER = {"cancel", "consumer_tag", "error", "queue"}
MESSAGE = {
    *("ack", "body", "consumer_tag", "deaths", "delivery_tag", "exchange", "headers"),
    *("message_count", "nack", "process", "processed", "properties", "raw_properties"),
    *("redelivered", "reject", "routing_key", "stream_name", "stream_offset", "timestamp"),
}


def names(thing: object) -> set[str]:
    """Return the names that completion shows."""
    return {name for name in dir(thing) if not name.startswith("_")}


def test_the_names_of_the_blocking_shell(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.publish(b"x", routing_key=queue)
        consumer = channel.consume(queue)
        message: Message = next(consumer)
        assert names(connection) == CONNECTION | {"abort", "flush", "process"}
        assert names(channel) == CHANNEL | {"may_publish"}
        assert names(consumer) == CONSUMER | {"inactivity_timeout"}
        assert names(message) == MESSAGE


def test_the_names_of_the_asyncio_shell(broker_uri: str) -> None:
    async def use() -> None:
        async with client.connect(broker_uri) as connection, connection.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue
            assert names(connection) == CONNECTION | {"wait_closed"}
            assert names(channel) == CHANNEL
            assert names(await channel.consume(queue)) == CONSUMER | {"wait"}

    asyncio.run(use())
