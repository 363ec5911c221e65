"""Spans of OpenTelemetry: who published a message, who handled it, and that they are linked."""

from __future__ import annotations

import asyncio
import inspect
from types import ModuleType

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leveret import client
from leveret.client import BasicProperties, Message, Returned, blocking
from leveret.client.asynchronous import channel as asynchronous
from leveret.client.blocking import channel as in_threads
from leveret.client.opentelemetry import Tracing, destination
from leveret.client.uri import parse_uri

SECONDS = 60.0


class Failed(Exception):
    """What a handler raises."""


class Recorder:
    """Tracing whose spans are kept in the order in which they ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        self.tracing = Tracing(provider, TraceContextTextMapPropagator())

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended."""
        return list(self._exporter.get_finished_spans())


@pytest.fixture
def recorder() -> Recorder:
    """A recorder of its own for each test."""
    return Recorder()


def linked(handled: ReadableSpan, published: ReadableSpan) -> bool:
    """Tell whether a span has exactly one link, to the other one."""
    return [one.context.span_id for one in handled.links] == [published.context.span_id]


def test_a_message_is_followed_from_its_publisher_to_its_handler(
    broker_uri: str, recorder: Recorder
) -> None:
    with blocking.connect(broker_uri, tracing=recorder.tracing) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare(exclusive=True).queue
        mine = BasicProperties(headers={"mine": 1})
        channel.publish(b"hello", routing_key=queue, properties=mine, message_id="m1")
        assert mine.headers == {"mine": 1}  # the program's own are left alone
        message = next(channel.consume(queue))
        assert message.headers["mine"] == 1
        assert message.properties.message_id == "m1"
        with message.process():
            inside = trace.get_current_span().get_span_context()
    sent, handled = recorder.spans
    assert (sent.name, sent.kind) == (f"publish {queue}", SpanKind.PRODUCER)
    assert (handled.name, handled.kind) == (f"process {queue}", SpanKind.CONSUMER)
    assert handled.context == inside
    assert linked(handled, sent)
    assert handled.parent is not None
    assert handled.parent.span_id == sent.context.span_id
    where = parse_uri(broker_uri)
    common = {
        "messaging.system": "rabbitmq",
        "messaging.destination.name": queue,
        "messaging.message.id": "m1",
        "messaging.message.body.size": 5,
        "messaging.rabbitmq.destination.routing_key": queue,
        "server.address": where.host,
        "server.port": where.port,
    }
    assert dict(sent.attributes or {}) == common | {
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
    }
    assert dict(handled.attributes or {}) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.rabbitmq.message.delivery_tag": 1,
    }


def test_a_program_s_own_span_is_the_parent(broker_uri: str, recorder: Recorder) -> None:
    with (
        blocking.connect(broker_uri, tracing=recorder.tracing) as connection,
        recorder.tracer.start_as_current_span("mine") as mine,
    ):
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.publish_nowait(b"x", routing_key=queue)
        with next(channel.consume(queue)).process():
            pass
    sent, handled, _ = recorder.spans
    parents = [one.parent.span_id for one in (sent, handled) if one.parent is not None]
    assert parents == [mine.get_span_context().span_id] * 2
    assert linked(handled, sent)


def test_what_goes_wrong_is_in_the_span(broker_uri: str, recorder: Recorder) -> None:
    with blocking.connect(broker_uri, tracing=recorder.tracing) as connection:
        channel = connection.channel()
        channel.confirm_select()
        queue = channel.queue_declare(exclusive=True).queue
        with pytest.raises(Returned):
            channel.publish(b"x", routing_key=f"not {queue}", mandatory=True)
        channel.publish(b"x", routing_key=queue)
        with pytest.raises(Failed), next(channel.consume(queue)).process():
            raise Failed("no")
    returned, sent, handled = recorder.spans
    assert [one.status.status_code for one in (returned, sent, handled)] == [
        StatusCode.ERROR,
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    assert (returned.attributes or {})["error.type"] == "leveret.client.errors.Returned"
    assert handled.status.description == "no"
    assert [event.name for event in handled.events] == ["exception"]


def test_a_callback_runs_in_one_span(broker_uri: str, recorder: Recorder) -> None:
    current: list[int] = []

    def work(message: Message) -> None:
        with message.process():
            current.append(trace.get_current_span().get_span_context().span_id)

    with blocking.connect(broker_uri, tracing=recorder.tracing) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.consume(queue, work)
        channel.publish(b"x", routing_key=queue)
        assert connection.process(SECONDS) == 1
    sent, handled = recorder.spans
    assert current == [handled.context.span_id]
    assert linked(handled, sent)


def test_the_same_in_asyncio(broker_uri: str, recorder: Recorder) -> None:
    async def use() -> None:
        done = asyncio.Event()
        current: list[int] = []

        async def work(message: Message) -> None:
            async with message.process():
                current.append(trace.get_current_span().get_span_context().span_id)
            done.set()

        async with (
            asyncio.timeout(SECONDS),
            client.connect(broker_uri, tracing=recorder.tracing) as connection,
            connection.channel() as channel,
        ):
            await channel.confirm_select()
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.publish(b"1", routing_key=queue)
            async for message in channel.consume(queue):
                async with message.process():
                    pass
                break
            other = (await channel.queue_declare(exclusive=True)).queue
            await channel.consume(other, work)
            channel.publish_nowait(b"2", routing_key=other)
            await done.wait()
        sent, handled, second, called = recorder.spans
        assert linked(handled, sent)
        assert linked(called, second)
        assert current == [called.context.span_id]
        assert len({one.context.trace_id for one in recorder.spans}) == 2

    asyncio.run(use())


def test_without_tracing_a_channel_is_the_plain_one(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection:
        channel = connection.channel()
        assert type(channel) is blocking.Channel
        queue = channel.queue_declare(exclusive=True).queue
        channel.publish(b"x", routing_key=queue)
        message = next(channel.consume(queue))
        assert message.headers == {}


@pytest.mark.parametrize("name", ["publish", "publish_nowait", "consume"])
@pytest.mark.parametrize("shell", [asynchronous, in_threads])
def test_a_traced_channel_shows_what_the_plain_one_does(shell: ModuleType, name: str) -> None:
    ours, plain = getattr(shell.TracedChannel, name), getattr(shell.Channel, name)
    assert inspect.signature(ours) == inspect.signature(plain)
    assert inspect.getdoc(ours) == inspect.getdoc(plain)
    assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(plain)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("logs", "error", "q"), "logs:error:q"),
        (("logs", "error", ""), "logs:error"),
        (("logs", "", ""), "logs"),
        (("", "q", "q"), "q"),
        (("", "", ""), "amq.default"),
    ],
)
def test_destinations_are_named_as_the_conventions_say(
    parts: tuple[str, str, str], name: str
) -> None:
    assert destination(*parts) == name
