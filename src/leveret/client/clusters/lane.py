"""A lane takes messages from one consumer, gives them to the handler and settles them, in order.

A partition has one lane, so its messages are handled one after the other.  A shared queue has as
many lanes as the member handles messages at once.

A message to be retried goes back to the queue where the broker delays it there and order does not
matter; otherwise it is retried *in place*: the lane holds it, waits, and calls the handler again
before it takes anything newer.

Invariant: what a lane has not settled when it ends stays unacked, and the broker has it back when
the channel ends.
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

#: Where the broker says how often a message of a quorum queue has come back: the first where it has
#: it (RabbitMQ from 4.3 on, which counts only failures in the second).
_COUNTS = ("x-acquired-count", "x-delivery-count")


class Lane:
    """One task's work; `stopping` tells it to take nothing more."""

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
        """Work until `stopping`, or until the consumer ends.

        Raises: HandlerStopped; ConsumerCancelled; the error of the channel.
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
        """Return the next message, or the messages of a batch; none when the consumer has ended."""
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
        """Return the next message; None at the deadline (the loop's time) or the end."""
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(self._source)
        except (StopAsyncIteration, TimeoutError):
            return None

    async def _handle(self, batch: Sequence[Message]) -> None:
        """Give a batch to the handler until every message of it is settled."""
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
        """Return a message as handlers get it."""
        attempt = 1
        if self._partition is None:
            try:
                counts = [message.headers.get(name) for name in _COUNTS]
            except AmqpError:
                counts = []  # the handler sees the error when it looks at the properties
            attempt += next((count for count in counts if isinstance(count, int)), 0)
        return ClusterMessage(message, attempt, self._partition)

    def _settle(self, received: ClusterMessage, message: Message, outcome: Outcome) -> bool:
        """Do what the outcome says; False when the message is to be retried in place."""
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
        """Wait before a retry in place; False when the lane is to stop instead."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return True
        return False
