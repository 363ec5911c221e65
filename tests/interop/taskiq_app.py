"""What `taskiq worker` runs in `test_taskiq`: a task that is killed at its work.

The environment names the broker, the queue, and whether this worker is the one that never ends.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from aio_pika import Message
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue, QueueType

URI: Final = "INTEROP_URI"
QUEUE: Final = "INTEROP_QUEUE"
STUCK: Final = "INTEROP_STUCK"


def make_broker(uri: str, name: str) -> AioPikaBroker:
    """Return a broker whose exchange and queues are named after `name`."""
    return AioPikaBroker(
        uri,
        exchange=Exchange(name=name),
        task_queues=[Queue(name=name, type=QueueType.CLASSIC)],
        dead_letter_queue=Queue(name=f"{name}.dead", type=QueueType.CLASSIC),
    )


if URI in os.environ:
    broker = make_broker(os.environ[URI], os.environ[QUEUE])

    @broker.task(task_name="work")
    async def work(reply: str) -> None:
        """Say how it goes into the queue `reply`."""
        stuck = os.environ[STUCK] == "yes"
        assert broker.write_channel is not None
        text = b"begun" if stuck else b"done"
        await broker.write_channel.default_exchange.publish(Message(text), reply)
        if stuck:
            await asyncio.Event().wait()
