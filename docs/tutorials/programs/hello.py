"""Send a greeting through a queue, or print the greetings that arrive."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def send() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("hello")
        channel.publish(b"Hello, hare!", routing_key="hello")
        print("sent a greeting")


def receive() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("hello")
        print("waiting for greetings", flush=True)
        for message in channel.consume("hello"):
            print("received:", message.body.decode(), flush=True)
            message.ack()


if __name__ == "__main__":
    role = {"send": send, "receive": receive}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role()
