"""Publish news to all who listen at that time."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def publish(text: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("news", "fanout")
        channel.publish(text.encode(), exchange="news")
        print("published:", text)


def listen() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("news", "fanout")
        queue = channel.queue_declare(exclusive=True).queue
        channel.queue_bind(queue, "news")
        print("listening", flush=True)
        for message in channel.consume(queue, no_ack=True):
            print("news:", message.body.decode(), flush=True)


if __name__ == "__main__":
    role = {"publish": publish, "listen": listen}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
