"""Runs a broker from start to end in its own thread, with its own event loop.

The process gets additional threads, and is not changed otherwise: one thread for the loop, four for
the disk, and one or two for passwords.  All of them end with the broker.
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

#: How long a stop waits for clients to answer connection.close.  A client that a test left open no
#: longer reads, so the broker waits all this time for it.
GRACE_SECONDS: Final = 0.1

#: How long to wait for a thread to end, in seconds.
JOIN_SECONDS: Final = 30.0


class BrokerEnded(Exception):
    """The broker has ended or is ending; the cause is its failure, if any."""


class BrokerThread:
    """One run of a broker; `port` is set once `ready` is done."""

    def __init__(self, parts: EmbeddedParts) -> None:
        self.port = 0
        #: Done when the broker accepts connections, or could not start.  It must not be cancelled.
        self.ready: Future[None] = Future()
        #: Done when only the end of the thread remains.
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
        """Ask the broker to shut down, or to end as if killed; repeated calls have no effect."""
        self._killed = self._killed or kill
        node, loop = self._node, self._loop
        if node is not None and loop is not None:
            try:
                loop.call_soon_threadsafe(node.request_stop)
            except RuntimeError:
                # The loop is closed: the broker has already ended.
                return

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker's thread did not end within {JOIN_SECONDS} s")

    def call(self, work: Callable[[Handles], Awaitable[T]]) -> T:
        """Run `work` in the broker's loop, and return its result.

        Raises: BrokerEnded: the broker ended in the meantime.  Also the exceptions of `work`.
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
            # The loop does not depend on the process's event loop policy.
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
            # No part of the node may remain in the process.
            await node.kill()
            raise


async def _work(work: Callable[[Handles], Awaitable[T]], handles: Handles) -> T:
    """Wrap `work` in a coroutine, which can be passed to the loop from another thread."""
    return await work(handles)
