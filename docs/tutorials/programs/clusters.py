"""Orders for two clusters, billing and shipping: each gets all, one member handles each."""

import contextlib
import os
import sys

from leveret import BlockingConsumer, BlockingProducer, ClusterMessage

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")


def order(*orders: str) -> None:
    with BlockingProducer("orders", uri=URI) as producer:
        for text in orders:
            acknowledgement = producer.deliver(text.encode())
            print(f"{text}: {acknowledgement.status.value}")


def join(cluster: str, member: str) -> None:
    def handle(message: ClusterMessage) -> None:
        print(f"{cluster} {member}: {message.body.decode()}", flush=True)

    consumer = BlockingConsumer("orders", cluster=cluster, on_message=handle, uri=URI)
    consumer.subscribe()
    print(f"{cluster} {member} is ready", flush=True)
    consumer.wait()


if __name__ == "__main__":
    role = {"order": order, "join": join}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
