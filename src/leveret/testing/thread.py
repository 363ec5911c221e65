"""A broker in a thread of its own, with a loop of its own, from its start to its end.

Nothing of the process is changed but that there are more threads: the loop's, four for the disk and
one or two for passwords.  All of them end with the broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from typing import Final, TypeVar

from leveret.app.embedded import EmbeddedParts, Handles
from leveret.app.node import Node

T = TypeVar("T")

#: How long clients have at a stop to answer that their connection is closed.  A client that a test
#: left open does not read any more, so that the broker waits for this long.
GRACE_SECONDS: Final = 0.1

#: How long a thread may take to notice that it has ended.
JOIN_SECONDS: Final = 30.0


class Ended(Exception):
    """The broker has ended, or ends; the cause is what made it fail, if anything did."""


class BrokerThread:
    """One life of a broker; `port` is where it listens, once `ready` is done."""

    def __init__(self, parts: EmbeddedParts) -> None:
        self.port = 0
        #: Done when the broker takes connections, or could not start.  Nobody may cancel it.
        self.ready: Future[None] = Future()
        #: Done when nothing of the broker is left but the end of its thread.
        self.ended: Future[None] = Future()
        self._parts = parts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self._handles: Handles | None = None
        self._killed = False
        #: What the broker failed by.
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="leveret-broker", daemon=True)

    def start(self) -> None:
        """Start the thread; `ready` says when the broker takes connections."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """What the broker failed by, if it did."""
        return self._failure

    def request_end(self, kill: bool) -> None:
        """Ask the broker to end, in order or as if it were killed; again has no effect."""
        self._killed = self._killed or kill
        node, loop = self._node, self._loop
        if node is not None and loop is not None:
            try:
                loop.call_soon_threadsafe(node.request_stop)
            except RuntimeError:
                # The loop is closed: it has ended already.
                return

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker's thread did not end within {JOIN_SECONDS} s")

    def call(self, work: Callable[[Handles], Awaitable[T]]) -> T:
        """Have the broker's loop do `work`; return what it returns.

        Raises: Ended: the broker ended meanwhile.  What `work` raises.
        """
        if self._loop is None or self._handles is None:
            raise Ended from self._failure
        working = _work(work, self._handles)
        try:
            done = asyncio.run_coroutine_threadsafe(working, self._loop)
        except RuntimeError:
            working.close()
            raise Ended from self._failure
        try:
            return done.result()
        except CancelledError:
            raise Ended from self._failure

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # Not what the process's policy makes: a loop of another kind is not needed here.
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 (whoever started the broker is told)
            self._failure = failure
            if not self.ready.done():
                self.ready.set_exception(failure)
        finally:
            self.ended.set_result(None)

    async def _serve(self) -> None:
        node = Node(self._parts.settings, self._parts)
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
            # What is left of it must not stay in the process.
            await node.kill()
            raise


async def _work(work: Callable[[Handles], Awaitable[T]], handles: Handles) -> T:
    """Do `work` as a coroutine, which is what a loop takes from another thread."""
    return await work(handles)
