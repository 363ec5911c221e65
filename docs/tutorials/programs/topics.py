"""Readings of sensors, chosen by patterns over the words of their routing keys."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def report(key: str, value: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("sensors", "topic")
        channel.publish(value.encode(), exchange="sensors", routing_key=key)
        print(f"reported {key}: {value}")


def watch(*patterns: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("sensors", "topic")
        queue = channel.queue_declare(exclusive=True).queue
        for pattern in patterns:
            channel.queue_bind(queue, "sensors", pattern)
        print("watching", " and ".join(patterns), flush=True)
        for message in channel.consume(queue, no_ack=True):
            print(f"{message.routing_key} = {message.body.decode()}", flush=True)


if __name__ == "__main__":
    role = {"report": report, "watch": watch}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
