"""Ask a service a question over a queue, and wait for its reply."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def serve() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("squares")
        channel.qos(prefetch_count=1)
        print("serving", flush=True)
        for request in channel.consume("squares"):
            number = int(request.body)
            channel.reply(request, str(number * number).encode())
            request.ack()
            print("answered", number, flush=True)


def ask(number: str) -> None:
    with blocking.connect(URI) as connection:
        reply = connection.request(number.encode(), routing_key="squares", timeout=10)
        print(f"the square of {number} is {reply.body.decode()}")


if __name__ == "__main__":
    role = {"serve": serve, "ask": ask}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
