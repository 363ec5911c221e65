"""Ask a service a question over a queue, and wait for its reply."""

import contextlib
import os
import sys
import uuid

from leveret.client import BasicProperties, blocking

URI = os.environ.get("LEVERET_URI", "amqp://guest:guest@localhost:5672/")
REPLIES = "amq.rabbitmq.reply-to"


def serve() -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        channel.queue_declare("squares")
        channel.qos(prefetch_count=1)
        print("serving", flush=True)
        for request in channel.consume("squares"):
            number = int(request.body)
            asked = request.properties
            reply = BasicProperties(correlation_id=asked.correlation_id)
            body = str(number * number).encode()
            channel.publish(body, routing_key=asked.reply_to or "", properties=reply)
            request.ack()
            print("answered", number, flush=True)


def ask(number: str) -> None:
    with blocking.connect(URI) as connection, connection.channel() as channel:
        replies = channel.consume(REPLIES, no_ack=True, inactivity_timeout=10)
        question = str(uuid.uuid4())
        properties = BasicProperties(reply_to=REPLIES, correlation_id=question)
        channel.publish(number.encode(), routing_key="squares", properties=properties)
        for reply in replies:
            if reply.properties.correlation_id == question:
                print(f"the square of {number} is {reply.body.decode()}")
                return
        sys.exit("nobody answered within 10 seconds")


if __name__ == "__main__":
    role = {"serve": serve, "ask": ask}[sys.argv[1]]
    with contextlib.suppress(KeyboardInterrupt):
        role(*sys.argv[2:])
