"""The interface between a traced channel and the recorder of its spans.

The channels of both shells use only this base class, so that OpenTelemetry is not loaded unless a
connection is traced.  `leveret.client.opentelemetry` implements it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from leveret.client.message import Processing

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from leveret.client.message import Message
    from leveret.client.uri import Parameters
    from leveret.wire.properties import BasicProperties


class Traces(ABC):
    """Records the spans of published and handled messages."""

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
