"""An awaitable that is also an async context manager: `async with` closes the result."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType


class Closable(Protocol):
    """An object with an asynchronous `close`."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object."""


T = TypeVar("T", bound=Closable)


class Opener(Coroutine[Any, Any, T], Generic[T]):
    """A coroutine that opens an object; await it, enter it, or wrap it in a task."""

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Resume the coroutine."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside the coroutine."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine."""
        self._coroutine.close()

    async def __aenter__(self) -> T:
        self._opened = await self._coroutine
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()
