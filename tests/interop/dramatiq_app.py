"""What `dramatiq`'s own command runs in `test_dramatiq`: an actor that is killed at its work.

The environment names the broker, the queue, and whether this worker is the one that never ends.
"""

from __future__ import annotations

import os
import threading
from typing import Final

import dramatiq
import pika
from dramatiq.brokers.rabbitmq import RabbitmqBroker

URI: Final = "INTEROP_URI"
QUEUE: Final = "INTEROP_QUEUE"
STUCK: Final = "INTEROP_STUCK"


def say(uri: str, queue: str, text: str) -> None:
    """Put `text` into `queue`."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, text.encode())


def work(reply: str) -> None:
    """Say how it went into the queue `reply`."""
    uri = os.environ[URI]
    if os.environ[STUCK] == "yes":
        say(uri, reply, "begun")
        threading.Event().wait()
    say(uri, reply, "done")


if URI in os.environ:
    broker = RabbitmqBroker(url=os.environ[URI], middleware=[])
    dramatiq.set_broker(broker)
    dramatiq.actor(queue_name=os.environ[QUEUE])(work)
