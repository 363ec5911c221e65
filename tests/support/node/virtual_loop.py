"""An event loop with virtual time, which advances only while there is nothing to do.

Sockets and threads are real.  A timer fires as soon as no socket is ready, so that the time of each
timer is exact, however busy the machine is.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from leveret.clock import Clock

T = TypeVar("T")

#: The time at which a loop begins; not 0, which could mean unset.
_BEGIN = 1000.0


class _Selector(selectors.BaseSelector):
    """The system's selector; instead of waiting with nothing ready, it advances the time."""

    def __init__(self) -> None:
        self.now = _BEGIN
        self._selector = selectors.DefaultSelector()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._selector.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._selector.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return self._selector.select()
        found = self._selector.select(0)
        if not found and timeout > 0:
            self.now += timeout
        return found

    def close(self) -> None:
        self._selector.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        found = self._selector.get_map()
        assert found is not None
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return self._virtual.now


class LoopClock(Clock):
    """The time of the running loop."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


async def lapse(seconds: float) -> None:
    """Let that many seconds of the loop's time pass."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(seconds, passed.set_result, None)
    await passed


async def dribble(port: int, said: bytes) -> float:
    """Send a byte of `said` each second; return the seconds from connect to the end."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    ending = asyncio.ensure_future(_end(reader))
    sent = 0
    while not ending.done():
        writer.write(said[sent % len(said) :][:1])
        sent += 1
        await asyncio.wait([ending], timeout=1)
    writer.close()
    return loop.time() - began


async def _end(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionResetError:
        return
