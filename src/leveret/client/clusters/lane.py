"""Lanes: a lane takes messages from one consumer, passes them to a handler and settles them.

A partition has one lane, so its messages are handled one at a time and in order.  A shared queue
has a lane for each message that the member may handle concurrently.

If the broker delays requeued messages and order does not matter, a message is requeued for a retry.
Otherwise it is retried *in place*: the lane waits, and calls the handler again before it takes a
newer message.

Invariant: messages that a lane has not settled at its end stay unacked, and the broker requeues
them when the channel ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from leveret.client.clusters.message import ClusterMessage
from leveret.client.clusters.outcome import Outcome
from leveret.errors import AmqpError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from leveret.client.clusters.handler import Handler
    from leveret.client.clusters.settings import MemberSettings
    from leveret.client.message import Message

log = logging.getLogger("leveret.client")

#: The headers that count redeliveries from a quorum queue, in order of preference.  RabbitMQ sets
#: the first since 4.3, and since then the second counts only failures.
_COUNTS = ("x-acquired-count", "x-delivery-count")


class Lane:
    """A lane, run by one task until `stopping` is set."""

    def __init__(
        self,
        source: AsyncIterator[Message],
        handler: Handler,
        settings: MemberSettings,
        stopping: asyncio.Event,
        *,
        partition: int | None,
        in_place: bool,
    ) -> None:
        self._source = source
        self._handler = handler
        self._settings = settings
        self._stopping = stopping
        self._partition = partition
        self._in_place = in_place

    async def run(self) -> None:
        """Handle messages until `stopping` is set or the consumer ends.

        Raises: HandlerStopped; ConsumerCancelled; the channel's error.
        """
        try:
            while not self._stopping.is_set():
                batch = await self._gather()
                if not batch:
                    return
                await self._handle(batch)
        finally:
            self._handler.close()

    async def _gather(self) -> list[Message]:
        """Return the next message or batch, or an empty list if the consumer has ended."""
        batch: list[Message] = []
        size = self._settings.max_batch or 1
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        while len(batch) < size and (message := await self._next(deadline)) is not None:
            if not batch:
                deadline = loop.time() + self._settings.max_wait
            batch.append(message)
        return batch

    async def _next(self, deadline: float | None) -> Message | None:
        """Return the next message, or None at the deadline (in loop time) or the consumer's end."""
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(self._source)
        except (StopAsyncIteration, TimeoutError):
            return None

    async def _handle(self, batch: Sequence[Message]) -> None:
        """Call the handler until every message of the batch is settled."""
        waiting = [(self._received(message), message) for message in batch]
        calls = 0
        while waiting:
            calls += 1
            outcomes = await self._handler.outcomes([received for received, _ in waiting])
            again = [
                (received.again(), message)
                for (received, message), outcome in zip(waiting, outcomes, strict=True)
                if not self._settle(received, message, outcome)
            ]
            if again and not await self._pause(self._settings.delay(calls)):
                return
            waiting = again

    def _received(self, message: Message) -> ClusterMessage:
        """Wrap a message for the handler."""
        attempt = 1
        if self._partition is None:
            try:
                counts = [message.headers.get(name) for name in _COUNTS]
            except AmqpError:
                counts = []  # the handler gets the error when it reads the properties
            attempt += next((count for count in counts if isinstance(count, int)), 0)
        return ClusterMessage(message, attempt, self._partition)

    def _settle(self, received: ClusterMessage, message: Message, outcome: Outcome) -> bool:
        """Settle a message by its outcome; return False if it must be retried in place."""
        if outcome is Outcome.RETRY and received.attempt >= self._settings.max_attempts:
            log.warning("%r failed %d times and is dead-lettered", received, received.attempt)
            outcome = Outcome.DEAD_LETTER
        if outcome is Outcome.ACK:
            message.ack()
        elif outcome is Outcome.DEAD_LETTER:
            message.reject(requeue=False)
        elif self._in_place:
            return False
        else:
            message.nack(requeue=True)
        return True

    async def _pause(self, seconds: float) -> bool:
        """Wait before a retry in place; return False if the lane must stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return True
        return False
