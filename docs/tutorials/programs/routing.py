"""Log lines by their level: each listener names the levels that it wants."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def log(level: str, text: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("logs", "direct")
        channel.publish(text.encode(), exchange="logs", routing_key=level)
        print(f"logged as {level}: {text}")


def listen(*levels: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.exchange_declare("logs", "direct")
        queue = channel.queue_declare(exclusive=True).queue
        for level in levels:
            channel.queue_bind(queue, "logs", level)
        print("listening to", ", ".join(levels), flush=True)
        for message in channel.consume(queue, no_ack=True):
            print(f"[{message.routing_key}] {message.body.decode()}", flush=True)


if __name__ == "__main__":
    role = {"log": log, "listen": listen}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
