"""Threads for plain handler functions, and for the event loops of programs without asyncio.

They are daemon threads, so that a handler that never returns does not prevent the program's exit.
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
    """A thread that runs functions for a task, one at a time; the first call starts it."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._started = False

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the thread and return its result.

        A cancelled task stops waiting; the function still runs to its end.

        Raises: the function's exception.
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
                # A future rejects StopIteration.
                error = RuntimeError(f"the function raised {stopped!r}")
            except BaseException as raised:  # noqa: BLE001  # the task handles it
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
                loop.call_soon_threadsafe(settle, value, error)

        self._calls.put(run)
        if not self._started:
            self._started = True
            threading.Thread(target=self._run, name="leveret-handler", daemon=True).start()
        return await future

    def close(self) -> None:
        """End the thread when its current function has returned."""
        if self._started:
            self._calls.put(None)

    def _run(self) -> None:
        """Run calls until `close`."""
        while (call := self._calls.get()) is not None:
            call()


class LoopThread:
    """A thread with an event loop, for a program without one."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.Lock()
        self._open = True
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether calls are accepted."""
        return self._open

    def _run(self) -> None:
        """Run the loop until `close`."""
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def call(self, function: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run the coroutine returned by `function` in the loop; return its result.

        Raises: Closed after `close`; the coroutine's exception.
        """
        with self._lock:
            if not self._open:
                raise Closed("the object was closed before the call")
            future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except BaseException:
            # If the caller was interrupted, the coroutine's result is no longer needed.
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel pending calls, and stop the loop and its thread."""
        with self._lock:
            if not self._open:
                return
            self._open = False
            self._loop.call_soon_threadsafe(self._cancel_all)
        self._thread.join()

    def _cancel_all(self) -> None:
        """Cancel all tasks, and stop the loop when they have ended."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        ending = asyncio.ensure_future(_end_of(tasks))
        ending.add_done_callback(lambda _: self._loop.stop())


async def _end_of(tasks: set[asyncio.Task[object]]) -> None:
    """Wait up to one second for cancelled tasks to end."""
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
