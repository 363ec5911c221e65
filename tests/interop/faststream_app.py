"""The service that is killed at its work in `test_faststream`: `python -m interop.faststream_app`.

The environment names the broker, the queue, and whether this service is the one that never ends.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from faststream import FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitMessage, RabbitQueue

URI: Final = "INTEROP_URI"
QUEUE: Final = "INTEROP_QUEUE"
STUCK: Final = "INTEROP_STUCK"


def make_app() -> FastStream:
    """Return an app with one subscriber, which tells into the queue that a message names."""
    broker = RabbitBroker(os.environ[URI], default_channel=Channel(prefetch_count=1))

    @broker.subscriber(RabbitQueue(os.environ[QUEUE], durable=True))
    async def work(reply: str, message: RabbitMessage) -> None:
        redelivered = bool(message.raw_message.redelivered)
        await broker.publish(f"begun, redelivered={redelivered}", reply)
        if os.environ[STUCK] == "yes":
            await asyncio.Event().wait()

    return FastStream(broker)


if __name__ == "__main__":
    asyncio.run(make_app().run())
