"""An asyncio consumer: an iterator of messages, or a task that passes each to a callback.

Its invariants are those of `ShellConsumer`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Self

from leveret.client.asynchronous.one_loop import running_loop
from leveret.client.errors import ClientError, Closed, DeliveryLost
from leveret.client.shell import requests
from leveret.client.shell.consumer import ShellConsumer
from leveret.errors import AmqpError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from leveret.client.asynchronous.channel import Channel
    from leveret.client.asynchronous.one_loop import OneLoop
    from leveret.client.message import Message

    Callback = Callable[[Message], Awaitable[object] | object]

log = logging.getLogger("leveret.client")


class Consumer(ShellConsumer):
    """One consumer; it starts when it is awaited, entered by `async with` or iterated.

    `async with` cancels it at the end of the block, and requeues the messages that the program has
    not taken.  `async for` waits for each message, and ends after `cancel`.

    Raises from the iteration: ConsumerCancelled when the broker has cancelled the consumer; the
    channel's error; ConnectionInUse.
    """

    def __init__(
        self,
        channel: Channel,
        hold: Callable[[int], None],
        one_loop: OneLoop,
        queue: str,
        request: requests.Request[str],
        callback: Callback | None,
        no_ack: bool,
    ) -> None:
        super().__init__(queue, no_ack, hold)
        self._one_loop = one_loop
        self._loop = one_loop.loop
        self._channel = channel
        self._request = request
        self._callback = callback
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._starting: asyncio.Future[None] | None = None
        self._running = False
        self._task: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    # -- starting and ending -----------------------------------------------------------------------

    def __await__(self) -> Generator[object, None, Self]:
        return self._start().__await__()

    async def _start(self) -> Self:
        """Start consuming, once.  Raises: the channel's error."""
        if self._starting is not None:
            await asyncio.shield(self._starting)
            return self
        self._starting = asyncio.get_running_loop().create_future()
        try:
            await self._channel.call(self._request, consumer=self)
        except BaseException:
            # Other tasks may wait for this start.  `exception()` marks the error as retrieved.
            self._starting.set_exception(Closed("the consumer did not start"))
            self._starting.exception()
            raise
        self._starting.set_result(None)
        return self

    def started(self, consumer_tag: str) -> None:
        """Handle basic.consume-ok, before the first message."""
        self.consumer_tag = consumer_tag
        self._running = True
        self._channel.add_consumer(self)
        if self._callback is not None:
            self._task = asyncio.ensure_future(self._run(self._callback))
            self._task.add_done_callback(_retrieve)

    def abandon(self) -> None:
        """Cancel the consumer in the background, because the task that started it was cancelled."""
        task = asyncio.ensure_future(self._close())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def ended(self, error: Exception | None) -> None:
        """Handle the end of the consumer and wake waiting tasks."""
        self._running = False
        super().ended(error)
        self._wake(len(self._waiters))

    async def cancel(self) -> None:
        """Cancel the consumer; buffered messages can still be iterated.

        Raises: the channel's error when it is closed.
        """
        if self._running:
            await self._channel.call(requests.cancel(self.consumer_tag))
            self._channel.remove_consumer(self)
            if self._running:
                self.ended(None)

    async def _close(self) -> None:
        """Cancel the consumer and requeue buffered messages."""
        if self._channel.is_open:
            await self.cancel()
        else:
            self._channel.remove_consumer(self)
        if self._channel.is_open:
            self._requeue()
        self._drop()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *exc: object) -> None:
        await self._close()

    async def wait(self) -> None:
        """Wait until a consumer with a callback ends.

        Raises: the callback's error, ConsumerCancelled, or the channel's error.
        """
        await self._start()
        if self._task is None:
            raise ValueError("wait() needs a consumer with a callback")
        await asyncio.shield(self._task)

    # -- messages ----------------------------------------------------------------------------------

    def push(self, messages: list[Message], size: int) -> None:
        """Buffer messages from the broker and wake waiting tasks."""
        super().push(messages, size)
        if self._waiters:
            self._wake(len(messages))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message.

        Raises: StopAsyncIteration after `cancel`, ConsumerCancelled, or the channel's error.
        """
        if running_loop() is not self._loop:
            self._one_loop.check()
        if self._buffer:
            return self._take()
        if not self._running and not self._over:
            await self._start()
        while not self._buffer:
            if self._over:
                if self._error is None:
                    raise StopAsyncIteration
                raise self._error.with_traceback(None)
            await self._wait()
        return self._take()

    async def _wait(self) -> None:
        """Wait for a message or for the end of the consumer."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif self._buffer:
                self._wake(1)  # pass the wake-up on, because the message is still buffered
            raise

    def _wake(self, count: int) -> None:
        """Wake up to `count` waiting tasks."""
        while self._waiters and count > 0:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def _run(self, callback: Callback) -> None:
        """Call `callback` with each message; an error in it ends the consumer."""
        try:
            async for message in self:
                try:
                    result = callback(message)
                    if inspect.isawaitable(result):
                        await result
                except DeliveryLost as lost:
                    log.info("consumer %r continues: %s", self.consumer_tag, lost)
        except Exception as error:
            if self._running:
                log.exception("the callback of consumer %r failed", self.consumer_tag)
                # The channel may have ended; the callback's error takes precedence.
                with contextlib.suppress(AmqpError, ClientError):
                    await self._close()
            else:
                log.warning("consumer %r ended: %s", self.consumer_tag, error)
            raise


def _retrieve(task: asyncio.Task[None]) -> None:
    """Mark the task's error as retrieved, because it was logged and `wait` raises it."""
    if not task.cancelled():
        task.exception()
