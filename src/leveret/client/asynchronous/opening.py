"""What opens something: `await` gives it, `async with` gives it and closes it at the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from types import TracebackType


class Closable(Protocol):
    """What is opened."""

    @abstractmethod
    async def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Coroutine[Any, Any, T], Generic[T]):
    """A coroutine that opens something; it can be awaited, entered, or made a task of."""

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Go on with the coroutine."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where the coroutine waits."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine."""
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
