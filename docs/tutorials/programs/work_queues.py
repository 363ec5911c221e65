"""Hand out tasks to workers: each task is done by one of them, and none is lost."""

import contextlib
import os
import sys

from leveret.client import blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def primes_below(limit: int) -> int:
    return sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(2, limit))


def add(*limits: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("tasks", durable=True)
        channel.confirm_select()
        for limit in limits:
            channel.publish(limit.encode(), routing_key="tasks")
            print("added:", limit)


def work() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("tasks", durable=True)
        channel.qos(prefetch_count=1)
        print("waiting for tasks", flush=True)
        for message in channel.consume("tasks"):
            limit = int(message.body)
            print(f"{primes_below(limit)} primes below {limit}", flush=True)
            message.ack()


if __name__ == "__main__":
    role = {"add": add, "work": work}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
