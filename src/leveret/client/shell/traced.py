"""The part of a traced channel that both shells share: the spans of publishes and messages.

`Traces` records the spans.  An untraced channel does not use this module.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from leveret.client.options import with_options
from leveret.client.shell.channel import ShellChannel
from leveret.client.traces import TracedProcessing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leveret.client.events import Token
    from leveret.client.message import Message, Processing
    from leveret.client.options import PublishArguments
    from leveret.client.shell.channel import Body
    from leveret.client.shell.connection import ShellConnection
    from leveret.wire.properties import BasicProperties

F = TypeVar("F", bound=Callable[..., Any])


class TracedShellChannel(ShellChannel):
    """A channel of a connection that records spans."""

    def __init__(self, connection: ShellConnection, opening: Token) -> None:
        super().__init__(connection, opening)
        assert connection.traces is not None
        self._traces = connection.traces
        self._where = connection.parameters
        #: The tags of deliveries with a callback running in a span.
        self._handled: set[int] = set()

    @contextmanager
    def _publishing(
        self,
        body: Body,
        exchange: str = "",
        routing_key: str = "",
        properties: BasicProperties | None = None,
        *,
        mandatory: bool = False,
        persistent: bool = True,
        **options: Unpack[PublishArguments],
    ) -> Iterator[dict[str, object]]:
        """Enter a producer span and yield the arguments to publish with."""
        if options:
            properties = with_options(properties, options)
        size = len(body)
        with self._traces.publishing(self._where, exchange, routing_key, properties, size) as sent:
            yield {
                "body": body,
                "exchange": exchange,
                "routing_key": routing_key,
                "properties": sent,
                "mandatory": mandatory,
                "persistent": persistent,
            }

    @contextmanager
    def _handling(self, message: Message) -> Iterator[None]:
        """Enter the span of a callback that handles a message."""
        with self._traces.handling(self._where, message, self.queue_of(message)):
            self._handled.add(message.delivery_tag)
            try:
                yield
            finally:
                self._handled.discard(message.delivery_tag)

    def processing(
        self, message: Message, requeue: bool, reject_on_redelivered: bool, ignore_processed: bool
    ) -> Processing:
        """Return a processing block inside a span, unless the callback is already in a span."""
        if message.delivery_tag in self._handled:
            return super().processing(message, requeue, reject_on_redelivered, ignore_processed)
        span = self._traces.handling(self._where, message, self.queue_of(message))
        return TracedProcessing(message, requeue, reject_on_redelivered, ignore_processed, span)


def in_span(publish: F) -> F:
    """Return a method of a traced channel that calls `publish` inside a span."""

    @functools.wraps(publish)
    def method(self: TracedShellChannel, *args: Any, **named: Any) -> object:
        with self._publishing(*args, **named) as sent:
            return publish(self, **sent)

    return cast(F, method)


def awaited_in_span(publish: F) -> F:
    """Return a coroutine method of a traced channel that awaits `publish` inside a span."""

    @functools.wraps(publish)
    async def method(self: TracedShellChannel, *args: Any, **named: Any) -> object:
        with self._publishing(*args, **named) as sent:
            return await publish(self, **sent)

    return cast(F, method)
