"""Threads for what is not written for asyncio: handlers that are plain functions, and programs.

Both kinds are daemons: a handler that never returns keeps no program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, TypeVar

from leveret.client.errors import Closed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class HandlerThread:
    """A thread that calls functions for a task, one after the other; it starts with the first."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the thread and return what it returns.

        A task that is cancelled no longer waits; the function runs on to its end.

        Raises: what the function raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(value: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)  # type: ignore[arg-type]  # T may be None

        def run() -> None:
            value: T | None = None
            error: BaseException | None = None
            try:
                value = function()
            except StopIteration as stopped:
                # No future can carry it.
                error = RuntimeError(f"the function raised {stopped!r}")
            except BaseException as raised:  # noqa: BLE001  # the task decides what it means
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, value, error)

        self._calls.put(run)
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="leveret-handler", daemon=True).start()
        return await future

    def close(self) -> None:
        """End the thread when the function that it runs has returned."""
        if self._started:
            self._calls.put(None)

    def _run(self) -> None:
        """Run calls until `close`."""
        while (call := self._calls.get()) is not None:
            call()


class LoopThread:
    """A thread with an event loop, for a program that has none."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._open = True
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether calls are taken."""
        return self._open

    def _run(self) -> None:
        """Run the loop until `close`."""
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, function: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run the coroutine that `function` makes in the loop; wait for what it returns.

        Raises: Closed after `close`; what the coroutine raises.
        """
        with self._lock:
            if not self._open:
                raise Closed("it was closed before the call")
            future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except BaseException:
            # The caller was interrupted: nobody waits for the coroutine any longer.
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; calls that wait are cancelled."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join()

    def _cancel_all(self) -> None:
        """Cancel what still runs, and stop when it has ended."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ending = asyncio.ensure_future(_end_of(tasks))
        ending.add_done_callback(lambda _: self._loop.stop())


async def _end_of(tasks: set[asyncio.Task[object]]) -> None:
    """Wait a moment for cancelled tasks."""
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
