"""What the handlers of a cluster were given, and a wait for it, for tests of clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from leveret import ClusterMessage, Outcome

SECONDS = 120.0

#: What a handler makes of a message; None acks.
Answer = Callable[[ClusterMessage], Outcome | None]


class Handled:
    """The messages that handlers were given, in the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ClusterMessage]] = []
        self._grown = asyncio.Condition()

    def handler(
        self, name: str = "", answer: Answer | None = None
    ) -> Callable[[ClusterMessage], Coroutine[Any, Any, Outcome | None]]:
        """Return an `on_message` that notes each message under `name` and answers."""

        async def on_message(message: ClusterMessage) -> Outcome | None:
            await self.note(name, message)
            return None if answer is None else answer(message)

        return on_message

    async def note(self, name: str, message: ClusterMessage) -> None:
        """Note a message, and wake who waits for it."""
        async with self._grown:
            self.calls.append((name, message))
            self._grown.notify_all()

    def bodies(self, name: str = "") -> list[bytes]:
        """Return the bodies that handlers of that name were given."""
        return [message.body for called, message in self.calls if called == name]

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached` says so, which is asked after each call."""
        async with asyncio.timeout(SECONDS), self._grown:
            await self._grown.wait_for(reached)

    async def count(self, calls: int) -> None:
        """Wait for so many calls."""
        await self.until(lambda: len(self.calls) >= calls)


async def settled(reached: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until the broker says so: each question is a round trip."""
    async with asyncio.timeout(SECONDS):
        while not await reached():
            pass
