"""What a traced channel asks of who records its spans.

The channels of both shells know this base class only, so that nothing of OpenTelemetry is loaded
where no connection is traced.  `leveret.client.opentelemetry` implements it.
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
        """Be inside of a producer's span, and give the properties to publish with."""

    @abstractmethod
    def handling(
        self, where: Parameters, message: Message, queue: str
    ) -> AbstractContextManager[None]:
        """Be inside of a consumer's span, which is linked to the message's producer."""


class TracedProcessing(Processing):
    """The block of `Message.process` inside of a span."""

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
    """The spans of one channel; `where` returns which broker the channel is on now."""

    def __init__(self, traces: Traces, where: Callable[[], Parameters]) -> None:
        self._traces = traces
        self._where = where
        #: Deliveries that a callback handles now, in a span.
        self._handled: set[int] = set()

    def publishing(
        self, exchange: str, routing_key: str, properties: BasicProperties | None, size: int
    ) -> AbstractContextManager[BasicProperties]:
        """Be inside of a producer's span, and give the properties to publish with."""
        return self._traces.publishing(self._where(), exchange, routing_key, properties, size)

    @contextmanager
    def handling(self, message: Message, queue: str) -> Iterator[None]:
        """Be inside of the span of a callback that handles a message of `queue`."""
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
