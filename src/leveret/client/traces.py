"""The interface between a traced channel and the recorder of its spans.

The channels of both shells know only this base class, so that OpenTelemetry is not loaded unless a
connection is traced.  `leveret.client.opentelemetry` implements it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leveret.client.message import Processing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType

    from leveret.client.message import Message
    from leveret.client.uri import Parameters
    from leveret.wire.properties import BasicProperties


class Traces(ABC):
    """Spans of messages that are published and handled."""

    @abstractmethod
    def publishing(
        self,
        where: Parameters,
        exchange: str,
        routing_key: str,
        properties: BasicProperties | None,
        size: int,
    ) -> AbstractContextManager[BasicProperties]:
        """Enter a producer span and yield the properties to publish with."""

    @abstractmethod
    def handling(
        self, where: Parameters, message: Message, queue: str
    ) -> AbstractContextManager[None]:
        """Enter a consumer span, linked to the message's producer."""


class TracedProcessing(Processing):
    """The block of `Message.process` inside a span."""

    __slots__ = ("_span",)

    def __init__(
        self,
        message: Message,
        requeue: bool,
        reject_on_redelivered: bool,
        ignore_processed: bool,
        span: AbstractContextManager[None],
    ) -> None:
        super().__init__(message, requeue, reject_on_redelivered, ignore_processed)
        self._span = span

    def __enter__(self) -> Message:
        self._span.__enter__()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            super().__exit__(kind, error, traceback)
        finally:
            self._span.__exit__(kind, error, traceback)


class ChannelTraces:
    """The spans of one channel; `where` returns the broker of its current connection."""

    def __init__(self, traces: Traces, where: Callable[[], Parameters]) -> None:
        self._traces = traces
        self._where = where
        #: Deliveries whose callback is running in a span.
        self._handled: set[int] = set()

    def publishing(
        self, exchange: str, routing_key: str, properties: BasicProperties | None, size: int
    ) -> AbstractContextManager[BasicProperties]:
        """Enter a producer span and yield the properties to publish with."""
        return self._traces.publishing(self._where(), exchange, routing_key, properties, size)

    @contextmanager
    def handling(self, message: Message, queue: str) -> Iterator[None]:
        """Enter the span of a callback that handles a message of `queue`."""
        with self._traces.handling(self._where(), message, queue):
            self._handled.add(message.delivery_tag)
            try:
                yield
            finally:
                self._handled.discard(message.delivery_tag)

    def processing(
        self,
        message: Message,
        queue: str,
        requeue: bool,
        reject_on_redelivered: bool,
        ignore_processed: bool,
    ) -> Processing:
        """Return a processing block inside a span, unless the enclosing callback has one."""
        if message.delivery_tag in self._handled:
            return Processing(message, requeue, reject_on_redelivered, ignore_processed)
        span = self._traces.handling(self._where(), message, queue)
        return TracedProcessing(message, requeue, reject_on_redelivered, ignore_processed, span)
