"""Calling of `on_message`, whose result or error becomes an outcome for each message.

A coroutine function runs in the event loop.  A plain function runs in a separate thread, so that
heartbeats and acks are sent while it works.

Invariant: either every message of a call gets an outcome, or an error ends the member and the
broker requeues the messages.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from leveret.client.clusters.outcome import HandlerStopped, Outcome
from leveret.client.clusters.threads import HandlerThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from leveret.client.clusters.message import ClusterMessage

    Result = Outcome | Sequence[Outcome | None] | None
    OnMessage = Callable[[ClusterMessage], Awaitable[Result] | Result]
    OnBatch = Callable[[list[ClusterMessage]], Awaitable[Result] | Result]

log = logging.getLogger("leveret.client")


def is_coroutine_function(function: object) -> bool:
    """Return whether `function`, which may be a callable object, returns a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  # its kind is needed
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class Handler:
    """Calls `on_message`, one call at a time."""

    def __init__(
        self, on_message: OnMessage | OnBatch, *, batches: bool, timeout: float | None
    ) -> None:
        self._on_message = on_message
        self._batches = batches
        self._timeout = timeout
        self._thread = None if is_coroutine_function(on_message) else HandlerThread()

    def close(self) -> None:
        """End the handler's thread."""
        if self._thread is not None:
            self._thread.close()

    async def outcomes(self, messages: Sequence[ClusterMessage]) -> list[Outcome]:
        """Call the handler with the messages and return an outcome for each.

        An exception, a timeout or an invalid result means `RETRY` for all of them.

        Raises: HandlerStopped for an exception that is not an `Exception`; CancelledError when this
        task is cancelled.
        """
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._call(messages)
            return _outcomes(result, len(messages))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            log.warning("the handler of %r was cancelled", messages[0])
        except GeneratorExit:
            raise
        except Exception as error:  # noqa: BLE001  # any error means a retry
            self._report(messages, error)
        except BaseException as error:
            raise HandlerStopped(f"the handler of {messages[0]!r} raised {error!r}") from error
        return [Outcome.RETRY] * len(messages)

    async def _call(self, messages: Sequence[ClusterMessage]) -> object:
        """Call the handler once."""
        argument = list(messages) if self._batches else messages[0]
        function: Callable[[object], object] = self._on_message  # type: ignore[assignment]  # which of both `batches` says
        if self._thread is None:
            result = function(argument)
        else:
            result = await self._thread.call(lambda: function(argument))
        return await result if inspect.isawaitable(result) else result

    def _report(self, messages: Sequence[ClusterMessage], error: Exception) -> None:
        """Log an error of the handler."""
        if isinstance(error, TimeoutError) and self._timeout is not None:
            text = "the handler of %r failed, or ran for longer than %s s"
            log.warning(text, messages[0], self._timeout, exc_info=error)
        else:
            log.warning("the handler of %r failed", messages[0], exc_info=error)


def _outcomes(result: object, count: int) -> list[Outcome]:
    """Return a handler's result as an outcome for each message.

    Raises: TypeError or ValueError for an invalid result.
    """
    if isinstance(result, list | tuple):
        if len(result) != count:
            raise ValueError(
                f"the handler returned {len(result)} outcomes for {count} messages: return one for "
                "each message, or one for all"
            )
        return [_outcome(one) for one in result]
    return [_outcome(result)] * count


def _outcome(result: object) -> Outcome:
    """Convert one result."""
    if result is None:
        return Outcome.ACK
    if isinstance(result, Outcome):
        return result
    raise TypeError(
        f"the handler returned {type(result).__name__}: return an Outcome, or None for Outcome.ACK"
    )
