"""OpenTelemetry spans for messages, with their context propagated in the message headers.

    connect(uri, tracing=Tracing())

A publish has a producer span, whose context is sent in the headers.  Handling a message has a
consumer span, linked to the producer span.  Names and attributes follow OpenTelemetry's semantic
conventions for messaging, with RabbitMQ's destination names.

Needs the extra `leveret[opentelemetry]`.  A connection without `tracing` has no overhead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from leveret import __version__
from leveret.client.traces import Traces
from leveret.wire.properties import BasicProperties

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from leveret.client.message import Message
    from leveret.client.uri import Parameters

#: The version of the semantic conventions.
SCHEMA: Final = "https://opentelemetry.io/schemas/1.30.0"


class _Headers(Getter[Mapping[str, object]], Setter[dict[str, object]]):
    """Lets propagators read and write the headers of a message."""

    def get(self, carrier: Mapping[str, object], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, object]) -> list[str]:
        return list(carrier)

    def set(self, carrier: dict[str, object], key: str, value: str) -> None:
        carrier[key] = value


HEADERS: Final = _Headers()


class Tracing(Traces):
    """The recorder of the spans of a connection's messages, for `connect(tracing=…)`.

    Without a `tracer_provider` or a `propagator` it uses the program's global ones.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("leveret.client", __version__, tracer_provider, SCHEMA)
        self._propagator = propagator

    # -- publishing --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def publishing(
        self,
        where: Parameters,
        exchange: str,
        routing_key: str,
        properties: BasicProperties | None,
        size: int,
    ) -> Iterator[BasicProperties]:
        """Enter a producer span and yield the properties to publish with."""
        attributes = _attributes(where, "publish", "send", destination(exchange, routing_key))
        attributes |= _of_message(routing_key, properties, size)
        with (
            self._tracer.start_as_current_span(
                f"publish {attributes['messaging.destination.name']}",
                kind=SpanKind.PRODUCER,
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            _failures(span),
        ):
            yield self._injected(properties)

    def _injected(self, properties: BasicProperties | None) -> BasicProperties:
        """Return a copy of the properties with the current context in the headers."""
        fields = {}
        if properties is not None:
            fields = {name: getattr(properties, name) for name in BasicProperties.FIELDS}
        headers = dict(fields.get("headers") or {})
        self._chosen().inject(headers, setter=HEADERS)
        fields["headers"] = headers or None
        return BasicProperties(**fields)

    # -- consuming ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def handling(self, where: Parameters, message: Message, queue: str) -> Iterator[None]:
        """Enter a consumer span, linked to the message's producer."""
        attributes = _attributes(
            where, "process", "process", destination(message.exchange, message.routing_key, queue)
        )
        attributes |= _of_message(message.routing_key, message.properties, len(message.body))
        attributes["messaging.rabbitmq.message.delivery_tag"] = message.delivery_tag
        sender, links = self._sender(message)
        with (
            self._tracer.start_as_current_span(
                f"process {attributes['messaging.destination.name']}",
                context=sender,
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            _failures(span),
        ):
            yield

    def _sender(self, message: Message) -> tuple[Context | None, list[Link]]:
        """Return the parent context, and links to the span that published the message.

        The producer's span is the parent if no span is active, so that publisher and consumer share
        one trace.
        """
        sent = self._chosen().extract(message.headers, context=contexts.Context(), getter=HEADERS)
        span = trace.get_current_span(sent).get_span_context()
        links = [Link(span)] if span.is_valid else []
        if trace.get_current_span().get_span_context().is_valid:
            return None, links
        return self._chosen().extract(message.headers, getter=HEADERS), links

    def _chosen(self) -> TextMapPropagator:
        """Return the given propagator, or the current global one."""
        return self._propagator or propagate.get_global_textmap()


def destination(exchange: str, routing_key: str, queue: str = "") -> str:
    """Return the destination name that the conventions for RabbitMQ define."""
    parts = [exchange, routing_key]
    if queue != routing_key:
        parts.append(queue)
    return ":".join(part for part in parts if part) or "amq.default"


def _attributes(
    where: Parameters, operation: str, kind: str, destination_name: str
) -> dict[str, str | int]:
    """Return the attributes common to all spans."""
    return {
        "messaging.system": "rabbitmq",  # the conventions' name for AMQP 0-9-1 brokers
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": destination_name,
        "server.address": where.host,
        "server.port": where.port,
    }


def _of_message(
    routing_key: str, properties: BasicProperties | None, size: int
) -> dict[str, str | int]:
    """Return the attributes of one message."""
    found: dict[str, str | int] = {"messaging.message.body.size": size}
    if routing_key:
        found["messaging.rabbitmq.destination.routing_key"] = routing_key
    if properties is not None and properties.message_id is not None:
        found["messaging.message.id"] = properties.message_id
    if properties is not None and properties.correlation_id is not None:
        found["messaging.message.conversation_id"] = properties.correlation_id
    return found


@contextlib.contextmanager
def _failures(span: Span) -> Iterator[None]:
    """Record errors of the block in the span."""
    try:
        yield
    except BaseException as error:
        kind = type(error)
        span.set_attribute("error.type", f"{kind.__module__}.{kind.__qualname__}")
        span.set_status(Status(StatusCode.ERROR, str(error)))
        if isinstance(error, Exception):
            span.record_exception(error)
        raise
