"""The number of ready messages in a queue, which RabbitMQ sometimes reports wrongly as 0.

RabbitMQ waits 250 ms for the count from the leader of a quorum queue, and reports 0 after that
(`rabbit_quorum_queue:stat/1` of 3.8 to 4.x).  So under load a full queue looks empty, and a query
that ends when its queue is empty would end before it began.
"""

from __future__ import annotations

import time
from typing import Final

from leveret.client.blocking import Channel
from leveret.spark.connection.connecting import is_leveret
from leveret.spark.transport import Interrupted

#: A zero that arrives after this long may be due to RabbitMQ's timeout.
DOUBTFUL_SECONDS: Final = 0.2


def ready_count(channel: Channel, queue: str, seconds: float) -> int:
    """Return the broker's count of ready messages.  Ask again for up to `seconds` if 0 is doubtful.

    Raises: Interrupted if all counts were doubtful; NotFound (404); the error of a lost connection.
    """
    until = time.monotonic() + seconds
    while True:
        asked = time.monotonic()
        count = channel.queue_declare(queue, passive=True).message_count
        answered = time.monotonic()
        sure = count or answered - asked < DOUBTFUL_SECONDS or is_leveret(channel.connection)
        if sure:
            return count
        if answered >= until:
            raise Interrupted(
                f"the broker reports that queue {queue!r} has no messages, but needed"
                f" {answered - asked:.1f} s, as RabbitMQ does when the leader of a quorum queue"
                " does not answer: check the broker's load"
            )
