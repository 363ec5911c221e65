"""Runs a broker from start to end in its own thread, with its own event loop.

The process gets one thread for the loop, four for the disk, and one or two for passwords.  All of
them end with the broker.  Nothing else in the process changes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Final, TypeVar

from leveret.app.embedded import EmbeddedParts, Handles
from leveret.app.node import RunningBroker

T = TypeVar("T")

#: The time limit for clients to answer connection.close.  A client that a test left open does not
#: read, so the broker waits for the whole time.
GRACE_SECONDS: Final = 0.1

#: The time limit for a thread to end.
JOIN_SECONDS: Final = 30.0


class BrokerEnded(Exception):
    """The broker has ended or is ending; the `__cause__` is its failure, if any."""


class BrokerThread:
    """One run of a broker; `port` is set once `ready` is done."""

    def __init__(self, parts: EmbeddedParts) -> None:
        self.port = 0
        #: Done when the broker accepts connections, or could not start.  It must not be cancelled.
        self.ready: Future[None] = Future()
        #: Done when the broker has ended, just before the thread ends.
        self.ended: Future[None] = Future()
        self._parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: RunningBroker | None = None
        self._handles: Handles | None = None
        self._killed = False
        #: The error that made the broker fail.
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leveret-broker", daemon=True)

    def start(self) -> None:
        """Start the thread; `ready` is done when the broker accepts connections."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """The error that made the broker fail, if any."""
        return self._failure

    def request_end(self, kill: bool) -> None:
        """Request a shutdown, or an end as if the process were killed; it may be called again."""
        self._killed = self._killed or kill
        node, loop = self._node, self._loop
        if node is not None and loop is not None:
            try:
                loop.call_soon_threadsafe(node.request_stop)
            except RuntimeError:
                # The loop is closed, because the broker has already ended.
                return

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker's thread did not end within {JOIN_SECONDS} s")

    def call(self, work: Callable[[Handles], Awaitable[T]]) -> T:
        """Run `work` in the broker's loop, and return its result.

        Raises: BrokerEnded if the broker has ended, and the exceptions of `work`.
        """
        if self._loop is None or self._handles is None:
            raise BrokerEnded from self._failure
        working = _work(work, self._handles)
        try:
            done = asyncio.run_coroutine_threadsafe(working, self._loop)
        except RuntimeError:
            working.close()
            raise BrokerEnded from self._failure
        try:
            return done.result()
        except CancelledError:
            raise BrokerEnded from self._failure

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # A fixed type of loop, independent of the process's event loop policy.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 (it is passed to the caller of `start`)
            self._failure = failure
            if not self.ready.done():
                self.ready.set_exception(failure)
        finally:
            self.ended.set_result(None)

    async def _serve(self) -> None:
        node = RunningBroker(self._parts.settings, self._parts)
        try:
            await node.start()
        except BaseException:
            await node.kill()
            raise
        self.port = node.port
        self._handles = Handles(node, self._parts)
        self._node = node
        self._loop = asyncio.get_running_loop()
        self.ready.set_result(None)
        if not self._killed:
            await node.wait()
        self._failure = node.ending.failure or node.ending.bug
        if self._killed or self._failure is not None:
            await node.kill()
            return
        try:
            await node.stop(GRACE_SECONDS)
        except BaseException:
            # Free everything that the node uses in this process.
            await node.kill()
            raise


async def _work(work: Callable[[Handles], Awaitable[T]], handles: Handles) -> T:
    """Wrap `work` in a coroutine, which another thread can submit to the loop."""
    return await work(handles)
