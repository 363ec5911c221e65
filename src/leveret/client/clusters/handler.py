"""Calling `on_message`: what it returns, raises or never says, as an outcome for each message.

A coroutine function runs in the loop.  A plain function runs in a thread of its own, so that
heartbeats are sent and acks leave while it works.

Invariant: whatever a handler does, every message of the call gets an outcome, or an error ends the
member and the broker keeps the messages.
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
    """Tell whether calling `function` makes a coroutine, also where it is an object with a call."""
    call = getattr(function, "__call__", None)  # noqa: B004  # its kind is asked for
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class Handler:
    """One caller of `on_message`: it makes one call at a time."""

    def __init__(
        self, on_message: OnMessage | OnBatch, *, batches: bool, timeout: float | None
    ) -> None:
        self._on_message = on_message
        self._batches = batches
        self._timeout = timeout
        self._thread = None if is_coroutine_function(on_message) else HandlerThread()

    def close(self) -> None:
        """Make no more calls."""
        if self._thread is not None:
            self._thread.close()

    async def outcomes(self, messages: Sequence[ClusterMessage]) -> list[Outcome]:
        """Call the handler with the messages and return an outcome for each.

        An exception, a time-out and a result that is none mean `RETRY` for all of them.

        Raises: HandlerStopped for what is no `Exception`; CancelledError when this task is
        cancelled.
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
        except Exception as error:  # noqa: BLE001  # whatever it is, the message is to be retried
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
        """Log what a handler raised."""
        if isinstance(error, TimeoutError) and self._timeout is not None:
            text = "the handler of %r failed, or ran for longer than %s s"
            log.warning(text, messages[0], self._timeout, exc_info=error)
        else:
            log.warning("the handler of %r failed", messages[0], exc_info=error)


def _outcomes(result: object, count: int) -> list[Outcome]:
    """Return a handler's result as an outcome for each message.

    Raises: TypeError or ValueError for a result that is none.
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
    """Return what one result means."""
    if result is None:
        return Outcome.ACK
    if isinstance(result, Outcome):
        return result
    raise TypeError(
        f"the handler returned {type(result).__name__}: return an Outcome, or None for Outcome.ACK"
    )
