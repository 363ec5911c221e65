"""Python's AMQP client libraries doing the same work, each as its users do; `clients.py` measures.

A client publishes messages and waits for each confirm, or leaves up to a thousand unconfirmed;
consumes a full queue and acks each message, or every hundred with one ack; and sends requests one
after the other, waiting for the reply to each.  Messages are transient.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import operator
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import aio_pika
import amqpstorm
import pika
import sides  # noqa: F401 -- it finds what lies beside the tests
from kombu.connection import Connection
from kombu.entity import Queue

from leveret.client import BasicProperties, Channel, Message, Recovery, blocking, connect
from support.wire import raw

WORKS: Final = ("publish", "window", "consume", "batches", "call")

WINDOW: Final = 1000
BATCH: Final = 100

#: What a library offers (see `Client`).
Publish = Callable[[], object]
Consume = tuple[Iterator[Any], Callable[[Any], object]]
Ask = Callable[[str], object]
PublishSoon = Callable[[], Awaitable[object]]
ConsumeSoon = tuple[AsyncIterator[Any], Callable[[Any], Awaitable[object] | None]]
AskSoon = Callable[[str], Awaitable[object]]


@dataclass
class Load:
    """The work of a client, and the seconds and processor seconds that it took."""

    uri: str
    queue: str
    body: bytes
    count: int
    seconds: float = 0.0
    processor: float = 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[range]:
        """Measure the block, which does the work once for each number."""
        gc.collect()
        spent, began = time.process_time(), time.perf_counter()
        yield range(1, self.count + 1)
        self.seconds = time.perf_counter() - began
        self.processor = time.process_time() - spent


# -- blocking clients ------------------------------------------------------------------------------


class Client:
    """A blocking client library; `serve` answers the requests of `call`."""

    is_blocking = True
    works: tuple[str, ...] = WORKS

    #: Yields a call that publishes the body once.
    publisher: Callable[..., AbstractContextManager[Publish]]
    #: Yields messages, and a call that acks one, or with `multiple` all up to it.
    consumer: Callable[..., AbstractContextManager[Consume]]
    #: Yields a call that sends a request with an id and waits for its reply.
    caller: Callable[..., AbstractContextManager[Ask]]
    #: Answers requests until the process ends.
    serve: Callable[..., None]

    def publish(self, load: Load) -> None:
        """Publish messages, each of which waits for its confirm."""
        with self.publisher(load) as publish, load.measured() as numbers:
            for _ in numbers:
                publish()

    def window(self, load: Load) -> None:
        """Publish as fast as this client can."""
        self.publish(load)

    def consume(self, load: Load, every: int = 1) -> None:
        """Consume a full queue; ack once for `every` messages."""
        with self.consumer(load, every > 1) as (messages, ack), load.measured() as numbers:
            for number, message in zip(numbers, messages, strict=False):
                if number % every == 0:
                    ack(message)

    def batches(self, load: Load) -> None:
        """Consume a full queue with an ack for many messages."""
        self.consume(load, BATCH)

    def call(self, load: Load) -> None:
        """Send requests and wait for the reply to each."""
        with self.caller(load) as ask:
            ask("first")
            with load.measured() as numbers:
                for number in numbers:
                    ask(str(number))


class _Blocking(Client):
    def __init__(self, recover: bool | Recovery = True) -> None:
        self._recover = recover

    @contextlib.contextmanager
    def publisher(self, load: Load) -> Iterator[Publish]:
        with blocking.connect(load.uri, recover=self._recover) as connection:
            channel = connection.channel()
            channel.confirm_select()
            yield functools.partial(channel.publish, load.body, "", load.queue, persistent=False)

    def window(self, load: Load) -> None:
        with blocking.connect(load.uri, recover=self._recover) as connection:
            channel = connection.channel()
            channel.confirm_select()
            with load.measured() as numbers:
                for number in numbers:
                    channel.publish_nowait(load.body, "", load.queue, persistent=False)
                    if number % WINDOW == 0:
                        channel.wait_for_confirms()
                channel.wait_for_confirms()

    @contextlib.contextmanager
    def consumer(self, load: Load, multiple: bool) -> Iterator[Consume]:
        with blocking.connect(load.uri, recover=self._recover) as connection:
            channel = connection.channel()
            channel.qos(WINDOW)

            def ack_all(message: Message) -> None:
                channel.ack(message.delivery_tag, multiple=True)

            yield channel.consume(load.queue), ack_all if multiple else operator.methodcaller("ack")

    @contextlib.contextmanager
    def caller(self, load: Load) -> Iterator[Ask]:
        with blocking.connect(load.uri, recover=self._recover) as connection:
            channel = connection.channel()
            replies = channel.queue_declare(exclusive=True).queue
            answers = channel.consume(replies, no_ack=True)

            def ask(asked: str) -> None:
                properties = BasicProperties(reply_to=replies, correlation_id=asked)
                channel.publish(load.body, "", load.queue, properties, persistent=False)
                assert next(answers).properties.correlation_id == asked

            yield ask

    def serve(self, load: Load) -> None:
        with blocking.connect(load.uri, recover=self._recover) as connection:
            channel = connection.channel()
            for request in channel.consume(load.queue):
                asked = request.properties
                properties = BasicProperties(correlation_id=asked.correlation_id)
                reply_to = asked.reply_to or ""
                channel.publish(request.body, "", reply_to, properties, persistent=False)
                request.ack()


class _Pika(Client):
    @contextlib.contextmanager
    def publisher(self, load: Load) -> Iterator[Publish]:
        with pika.BlockingConnection(pika.URLParameters(load.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield functools.partial(channel.basic_publish, "", load.queue, load.body)

    @contextlib.contextmanager
    def consumer(self, load: Load, multiple: bool) -> Iterator[Consume]:
        with pika.BlockingConnection(pika.URLParameters(load.uri)) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=WINDOW)
            # Its iterator is faster than its callbacks.
            yield (
                channel.consume(load.queue),
                lambda message: channel.basic_ack(message[0].delivery_tag, multiple),
            )

    @contextlib.contextmanager
    def caller(self, load: Load) -> Iterator[Ask]:
        with pika.BlockingConnection(pika.URLParameters(load.uri)) as connection:
            channel = connection.channel()
            replies = channel.queue_declare("", exclusive=True).method.queue
            answers = channel.consume(replies, auto_ack=True)

            def ask(asked: str) -> None:
                properties = pika.BasicProperties(reply_to=replies, correlation_id=asked)
                channel.basic_publish("", load.queue, load.body, properties)
                assert next(answers)[1].correlation_id == asked

            yield ask

    def serve(self, load: Load) -> None:
        with pika.BlockingConnection(pika.URLParameters(load.uri)) as connection:
            channel = connection.channel()
            for method, asked, body in channel.consume(load.queue):
                properties = pika.BasicProperties(correlation_id=asked.correlation_id)
                channel.basic_publish("", asked.reply_to, body, properties)
                channel.basic_ack(method.delivery_tag)


class _Kombu(Client):
    #: Bytes as they are.
    _PLAIN: Final = {
        "content_type": "application/data", "content_encoding": "binary", "delivery_mode": 1
    }  # fmt: skip

    @contextlib.contextmanager
    def publisher(self, load: Load) -> Iterator[Publish]:
        confirms = {"confirm_publish": True}
        with Connection(load.uri, transport_options=confirms) as connection:
            publish = connection.Producer().publish
            yield functools.partial(publish, load.body, routing_key=load.queue, **self._PLAIN)

    @contextlib.contextmanager
    def consumer(self, load: Load, multiple: bool) -> Iterator[Consume]:
        with Connection(load.uri) as connection:
            messages = self._messages(connection, load.queue, prefetch_count=WINDOW)
            yield messages, operator.methodcaller("ack", multiple)

    @contextlib.contextmanager
    def caller(self, load: Load) -> Iterator[Ask]:
        with Connection(load.uri) as connection:
            producer = connection.Producer()
            replies = connection.default_channel.queue_declare("", exclusive=True).queue
            answers = self._messages(connection, replies, no_ack=True)

            def ask(asked: str) -> None:
                options = {"reply_to": replies, "correlation_id": asked, **self._PLAIN}
                producer.publish(load.body, routing_key=load.queue, **options)
                assert next(answers).properties["correlation_id"] == asked

            yield ask

    def serve(self, load: Load) -> None:
        with Connection(load.uri) as connection:
            producer = connection.Producer()
            for request in self._messages(connection, load.queue):
                asked = request.properties
                options = {"correlation_id": asked["correlation_id"], **self._PLAIN}
                producer.publish(request.body, routing_key=asked["reply_to"], **options)
                request.ack()

    def _messages(self, connection: Any, queue: str, **options: Any) -> Iterator[Any]:
        """Yield a queue's messages; options are a consumer's."""
        got: deque[Any] = deque()
        queues = [Queue(queue, no_declare=True)]
        with connection.Consumer(queues, on_message=got.append, auto_declare=False, **options):
            while True:
                while got:
                    yield got.popleft()
                connection.drain_events()


class _AMQPStorm(Client):
    @contextlib.contextmanager
    def publisher(self, load: Load) -> Iterator[Publish]:
        with amqpstorm.UriConnection(load.uri) as connection:
            channel = connection.channel()
            channel.confirm_deliveries()
            yield functools.partial(channel.basic.publish, load.body, load.queue)

    @contextlib.contextmanager
    def consumer(self, load: Load, multiple: bool) -> Iterator[Consume]:
        with amqpstorm.UriConnection(load.uri) as connection:
            channel = connection.channel()
            channel.basic.qos(WINDOW)
            channel.basic.consume(queue=load.queue)
            yield (
                channel.build_inbound_messages(),
                lambda message: channel.basic.ack(message.delivery_tag, multiple),
            )

    @contextlib.contextmanager
    def caller(self, load: Load) -> Iterator[Ask]:
        with amqpstorm.UriConnection(load.uri) as connection:
            channel = connection.channel()
            replies = channel.queue.declare("", exclusive=True)["queue"]
            channel.basic.consume(queue=replies, no_ack=True)
            answers = channel.build_inbound_messages()

            def ask(asked: str) -> None:
                properties = {"reply_to": replies, "correlation_id": asked}
                channel.basic.publish(load.body, load.queue, properties=properties)
                assert next(answers).correlation_id == asked

            yield ask

    def serve(self, load: Load) -> None:
        with amqpstorm.UriConnection(load.uri) as connection:
            channel = connection.channel()
            channel.basic.consume(queue=load.queue)
            for request in channel.build_inbound_messages():
                properties = {"correlation_id": request.correlation_id}
                channel.basic.publish(request.body, request.reply_to, properties=properties)
                request.ack()


class _Socket(Client):
    """A socket that reads and writes the bytes alone: what the broker and the kernel take."""

    works = ("publish", "call")

    #: The difference between the frame of a delivery to the consumer "c" and that of its publish.
    _DELIVER_BYTES: Final = 8
    _ACK_BYTES: Final = 21

    @contextlib.contextmanager
    def publisher(self, load: Load) -> Iterator[Publish]:
        with raw.connect(load.uri) as connection:
            connection.open_channel()
            connection.call(1, "confirm.select")
            message = raw.publish(1, "", load.queue, load.body)

            def publish() -> None:
                connection.send(message)
                connection.take(self._ACK_BYTES)

            yield publish

    @contextlib.contextmanager
    def caller(self, load: Load) -> Iterator[Ask]:
        request, reply = self._messages(load)
        with raw.connect(load.uri) as connection:
            connection.open_channel()
            connection.declare(1, f"{load.queue}-replies", exclusive=True)
            self._consume(connection, f"{load.queue}-replies")

            def ask(_: str) -> None:
                connection.send(request)
                connection.take(len(reply) + self._DELIVER_BYTES)

            yield ask

    def serve(self, load: Load) -> None:
        request, reply = self._messages(load)
        with raw.connect(load.uri) as connection:
            connection.open_channel()
            self._consume(connection, load.queue)
            while True:
                connection.take(len(request) + self._DELIVER_BYTES)
                connection.send(reply)

    def _messages(self, load: Load) -> tuple[bytes, bytes]:
        """Return the publishes of a request and of its reply."""
        replies = f"{load.queue}-replies"
        return (
            raw.publish(1, "", load.queue, load.body, reply_to=replies, correlation_id="1"),
            raw.publish(1, "", replies, load.body, correlation_id="1"),
        )

    def _consume(self, connection: raw.Connection, queue: str) -> None:
        connection.call(1, "basic.consume", queue=queue, consumer_tag="c", no_ack=True)


# -- asyncio clients -------------------------------------------------------------------------------


class AsyncioClient(Client):
    """An asyncio client library; `serving` answers the requests of `call`."""

    is_blocking = False

    #: What `publisher`, `consumer`, `caller` and `serve` do, to be awaited.
    publishing: Callable[..., AbstractAsyncContextManager[PublishSoon]]
    consuming: Callable[..., AbstractAsyncContextManager[ConsumeSoon]]
    calling: Callable[..., AbstractAsyncContextManager[AskSoon]]
    serving: Callable[..., Coroutine[Any, Any, None]]

    def publish(self, load: Load) -> None:
        """Publish messages, each of which waits for its confirm."""

        async def run() -> None:
            async with self.publishing(load) as publish:
                with load.measured() as numbers:
                    for _ in numbers:
                        await publish()

        asyncio.run(run())

    def consume(self, load: Load, every: int = 1) -> None:
        """Consume a full queue; ack once for `every` messages."""

        async def run() -> None:
            async with self.consuming(load, every > 1) as (messages, ack):
                number = 0
                with load.measured():
                    async for message in messages:
                        number += 1
                        if number % every == 0:
                            sent = ack(message)
                            if sent is not None:
                                await sent
                        if number == load.count:
                            break

        asyncio.run(run())

    def call(self, load: Load) -> None:
        """Send requests and wait for the reply to each."""

        async def run() -> None:
            async with self.calling(load) as ask:
                await ask("first")
                with load.measured() as numbers:
                    for number in numbers:
                        await ask(str(number))

        asyncio.run(run())

    def serve(self, load: Load) -> None:
        """Answer requests until the process ends."""
        asyncio.run(self.serving(load))


class _Asyncio(AsyncioClient):
    def __init__(self, recover: bool | Recovery = True) -> None:
        self._recover = recover

    @contextlib.asynccontextmanager
    async def publishing(self, load: Load) -> AsyncIterator[PublishSoon]:
        async with self._channel(load) as channel:
            await channel.confirm_select()
            yield functools.partial(channel.publish, load.body, "", load.queue, persistent=False)

    def window(self, load: Load) -> None:
        async def run() -> None:
            async with self._channel(load) as channel:
                await channel.confirm_select()
                with load.measured() as numbers:
                    for number in numbers:
                        channel.publish_nowait(load.body, "", load.queue, persistent=False)
                        if number % WINDOW == 0:
                            await channel.wait_for_confirms()
                    await channel.wait_for_confirms()

        asyncio.run(run())

    @contextlib.asynccontextmanager
    async def consuming(self, load: Load, multiple: bool) -> AsyncIterator[ConsumeSoon]:
        async with self._channel(load) as channel:
            await channel.qos(WINDOW)

            def ack_all(message: Message) -> None:
                channel.ack(message.delivery_tag, multiple=True)

            yield channel.consume(load.queue), ack_all if multiple else operator.methodcaller("ack")

    @contextlib.asynccontextmanager
    async def calling(self, load: Load) -> AsyncIterator[AskSoon]:
        async with self._channel(load) as channel:
            replies = (await channel.queue_declare(exclusive=True)).queue
            answers = await channel.consume(replies, no_ack=True)

            async def ask(asked: str) -> None:
                properties = BasicProperties(reply_to=replies, correlation_id=asked)
                await channel.publish(load.body, "", load.queue, properties, persistent=False)
                assert (await anext(answers)).properties.correlation_id == asked

            yield ask

    async def serving(self, load: Load) -> None:
        async with self._channel(load) as channel:
            async for request in channel.consume(load.queue):
                asked = request.properties
                properties = BasicProperties(correlation_id=asked.correlation_id)
                reply_to = asked.reply_to or ""
                await channel.publish(request.body, "", reply_to, properties, persistent=False)
                request.ack()

    @contextlib.asynccontextmanager
    async def _channel(self, load: Load) -> AsyncIterator[Channel]:
        async with await connect(load.uri, recover=self._recover) as connection:
            yield await connection.channel()


class _AioPika(AsyncioClient):
    @contextlib.asynccontextmanager
    async def publishing(self, load: Load) -> AsyncIterator[PublishSoon]:
        async with await aio_pika.connect(load.uri) as connection:
            exchange = (await connection.channel()).default_exchange
            yield lambda: exchange.publish(aio_pika.Message(load.body), load.queue)

    def window(self, load: Load) -> None:
        async def run() -> None:
            async with self.publishing(load) as publish:
                with load.measured() as numbers:
                    for first in numbers[::WINDOW]:
                        left = min(WINDOW, load.count + 1 - first)
                        await asyncio.gather(*(publish() for _ in range(left)))

        asyncio.run(run())

    @contextlib.asynccontextmanager
    async def consuming(self, load: Load, multiple: bool) -> AsyncIterator[ConsumeSoon]:
        async with await aio_pika.connect(load.uri) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=WINDOW)
            queue = await channel.get_queue(load.queue)
            async with queue.iterator() as messages:
                yield messages, lambda message: message.ack(multiple)

    @contextlib.asynccontextmanager
    async def calling(self, load: Load) -> AsyncIterator[AskSoon]:
        async with await aio_pika.connect(load.uri) as connection:
            channel = await connection.channel(publisher_confirms=False)
            replies = await channel.declare_queue(exclusive=True)
            async with replies.iterator(no_ack=True) as answers:

                async def ask(asked: str) -> None:
                    message = aio_pika.Message(
                        load.body, reply_to=replies.name, correlation_id=asked
                    )
                    await channel.default_exchange.publish(message, load.queue)
                    assert (await anext(answers)).correlation_id == asked

                yield ask

    async def serving(self, load: Load) -> None:
        async with await aio_pika.connect(load.uri) as connection:
            channel = await connection.channel(publisher_confirms=False)
            async with (await channel.get_queue(load.queue)).iterator() as requests:
                async for request in requests:
                    asked = request.correlation_id
                    message = aio_pika.Message(request.body, correlation_id=asked)
                    await channel.default_exchange.publish(message, request.reply_to or "")
                    await request.ack()


#: Each library by its name; ours also without recovery, and with numbered publishes; and what no
#: library can be faster than.
CLIENTS: Final[dict[str, Client]] = {
    "blocking": _Blocking(),
    "pika": _Pika(),
    "kombu": _Kombu(),
    "AMQPStorm": _AMQPStorm(),
    "asyncio": _Asyncio(),
    "aio-pika": _AioPika(),
    "socket": _Socket(),
    "blocking-unrecovered": _Blocking(recover=False),
    "blocking-numbered": _Blocking(Recovery(numbered=True)),
    "asyncio-unrecovered": _Asyncio(recover=False),
    "asyncio-numbered": _Asyncio(Recovery(numbered=True)),
}
