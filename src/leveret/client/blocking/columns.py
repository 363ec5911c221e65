"""A consumer that returns deliveries as columns, without creating an object for each message.

It is for stream readers that store messages in columns anyway.  The reader bounds the buffer,
because the socket is read only in `wait` and in other calls of the same connection.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leveret.wire.content.deliveries import DeliveryColumns, DeliveryScanner

if TYPE_CHECKING:
    from leveret.client.blocking.channel import Channel
    from leveret.client.blocking.consumer import Consumer

__all__ = ["ColumnConsumer", "DeliveryColumns"]


class ColumnConsumer:
    """One column consumer; created and started by `Channel.consume_columns`."""

    def __init__(self, channel: Channel, consumer: Consumer, scanner: DeliveryScanner) -> None:
        self._channel = channel
        self._consumer = consumer
        self._scanner = scanner

    @property
    def count(self) -> int:
        """The number of buffered messages."""
        return self._scanner.count

    @property
    def body_bytes(self) -> int:
        """The total size of the buffered bodies."""
        return self._scanner.body_bytes

    @property
    def delivery_tag(self) -> int:
        """The delivery tag of the last message received; 0 before the first."""
        return self._scanner.delivery_tag

    @property
    def last_offset(self) -> int:
        """The offset of the last message received; -1 before the first."""
        return self._scanner.last_offset

    def wait(self, delivery_tag: int, seconds: float) -> bool:
        """Read until a message after `delivery_tag` has arrived; return False after `seconds`.

        Raises: ConsumerCancelled; the channel's error.
        """
        deadline = time.monotonic() + seconds
        with self._channel.connection.one_thread:
            while self._scanner.delivery_tag <= delivery_tag:
                if self._consumer.error is not None:
                    raise self._consumer.error.with_traceback(None)
                self._channel.session.check_open()
                if time.monotonic() >= deadline:
                    return False
                self._channel.connection.turn(deadline)
            return True

    def take(self) -> DeliveryColumns:
        """Return the messages received since the last call."""
        with self._channel.connection.one_thread:
            return self._scanner.columns()
