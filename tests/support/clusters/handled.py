"""A record of the messages that the handlers of a cluster received, which tests can wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from leveret import ClusterMessage, Outcome

SECONDS = 120.0

#: Returns the outcome of a message; None acks it.
Answer = Callable[[ClusterMessage], Outcome | None]


class Handled:
    """The messages that handlers received, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ClusterMessage]] = []
        self._grown = asyncio.Condition()

    def handler(
        self, name: str = "", answer: Answer | None = None
    ) -> Callable[[ClusterMessage], Coroutine[Any, Any, Outcome | None]]:
        """Return an `on_message` that records each message under `name` and returns its outcome."""

        async def on_message(message: ClusterMessage) -> Outcome | None:
            await self.note(name, message)
            return None if answer is None else answer(message)

        return on_message

    async def note(self, name: str, message: ClusterMessage) -> None:
        """Record a message, and wake waiting tests."""
        async with self._grown:
            self.calls.append((name, message))
            self._grown.notify_all()

    def bodies(self, name: str = "") -> list[bytes]:
        """Return the bodies that handlers of that name received."""
        return [message.body for called, message in self.calls if called == name]

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`, which is checked after each call of a handler."""
        async with asyncio.timeout(SECONDS), self._grown:
            await self._grown.wait_for(reached)

    async def count(self, calls: int) -> None:
        """Wait for that many calls."""
        await self.until(lambda: len(self.calls) >= calls)


async def settled(reached: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until `reached`, which asks the broker: each check is a round trip."""
    async with asyncio.timeout(SECONDS):
        while not await reached():
            pass
