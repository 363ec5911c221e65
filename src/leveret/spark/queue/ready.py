"""How many messages a queue has ready, asked of brokers that do not always know.

RabbitMQ gives the leader of a quorum queue 250 ms to count, and reports 0 if it has not answered by
then (`rabbit_quorum_queue:stat/1` of 3.8 to 4.x).  Under load a full queue then looks empty, and a
query that ends with its queue would end before it began.
"""

from __future__ import annotations

import time
from typing import Final

from leveret.client.blocking import Channel
from leveret.spark.connection.connecting import is_leveret
from leveret.spark.transport import Interrupted

#: A zero that took this long may be a timeout of RabbitMQ.
DOUBTFUL_SECONDS: Final = 0.2


def ready_count(channel: Channel, queue: str, seconds: float) -> int:
    """Return the broker's own count of ready messages; a doubtful 0 is asked again.

    `seconds` limits how long zeros are doubted.

    Raises: Interrupted if all of them were doubtful; NotFound (404); a lost connection.
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
                f"the broker says that queue {queue!r} has no messages, but takes"
                f" {answered - asked:.1f} s to say so, as RabbitMQ does when the leader of a quorum"
                " queue does not answer: look at the broker's load"
            )
