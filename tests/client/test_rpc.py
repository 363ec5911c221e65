"""Requests and replies in both shells, against a running broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from leveret.client import Closed, Message, Recovery, Returned, blocking, connect
from leveret.errors import NotFound
from support.wire.cut_proxy import CutProxy

SECONDS = 60.0


@pytest.fixture
def service(broker_uri: str, name: str) -> Iterator[str]:
    """The queue of a service that replies with the square of a number; it ignores other bodies."""
    with blocking.connect(broker_uri) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=False, auto_delete=True)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                connection.process(timeout=0.05)

        def reply(request: Message) -> None:
            with request.process():
                if request.body.isdigit():
                    square = str(int(request.body) ** 2).encode()
                    channel.reply(request, square, headers=request.headers)

        channel.consume(name, reply)
        thread = threading.Thread(target=serve)
        thread.start()
        yield name
        ended.set()
        thread.join()


def test_a_blocking_request_returns_its_reply(broker_uri: str, service: str) -> None:
    with blocking.connect(broker_uri) as connection:
        first = connection.request(b"12", routing_key=service)
        second = connection.request(b"3", routing_key=service, headers={"asked": "again"})
        assert (first.body, second.body) == (b"144", b"9")
        assert second.headers == {"asked": "again"}
        assert len(connection.channels) == 1


def test_many_tasks_wait_for_replies_at_once(broker_uri: str, service: str) -> None:
    async def main() -> list[bytes]:
        async with connect(broker_uri) as connection:
            numbers = [str(number).encode() for number in range(20)]
            requests = [connection.request(body, routing_key=service) for body in numbers]
            replies = await asyncio.gather(*requests)
            assert len(connection.channels) == 1
            return [reply.body for reply in replies]

    assert asyncio.run(main()) == [str(number**2).encode() for number in range(20)]


def test_an_asyncio_service_replies(broker_uri: str) -> None:
    async def main() -> None:
        async with connect(broker_uri) as connection, connection.channel() as channel:
            queue = (await channel.queue_declare(exclusive=True)).queue

            async def reply(request: Message) -> None:
                async with request.process():
                    await channel.reply(request, request.body.upper(), content_type="text/plain")

            await channel.consume(queue, reply)
            answer = await connection.request(b"hello", routing_key=queue)
            assert (answer.body, answer.properties.content_type) == (b"HELLO", "text/plain")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "exchange", "routing_key"),
    [(Returned, "", "no-queue"), (NotFound, "no-exchange", "")],  # NotFound closes the channel
)
def test_a_request_that_fails_does_not_affect_the_next(
    broker_uri: str, service: str, error: type[Exception], exchange: str, routing_key: str
) -> None:
    with blocking.connect(broker_uri) as connection:
        with pytest.raises(error):
            connection.request(b"1", exchange, routing_key)
        assert connection.request(b"2", routing_key=service).body == b"4"

    async def main() -> None:
        async with connect(broker_uri) as connection:
            with pytest.raises(error):
                await connection.request(b"1", exchange, routing_key)
            assert (await connection.request(b"2", routing_key=service)).body == b"4"

    asyncio.run(main())


def test_a_request_without_a_reply_times_out(broker_uri: str, service: str) -> None:
    with blocking.connect(broker_uri) as connection:
        with pytest.raises(TimeoutError, match=f"routing key '{service}' within 0.01 s"):
            connection.request(b"ignored", routing_key=service, timeout=0.01)
        assert connection.request(b"2", routing_key=service).body == b"4"

    async def main() -> None:
        async with connect(broker_uri) as connection:
            with pytest.raises(TimeoutError, match=f"routing key '{service}' within 0.01 s"):
                await connection.request(b"ignored", routing_key=service, timeout=0.01)
            assert (await connection.request(b"2", routing_key=service)).body == b"4"

    asyncio.run(main())


def test_a_late_reply_is_not_taken_for_that_of_the_next_request(
    broker_uri: str, service: str
) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        with pytest.raises(TimeoutError):
            connection.request(b"1", routing_key=queue, timeout=0, expiration=SECONDS)
        late = channel.get(queue)
        assert late is not None
        channel.reply(late, b"late")
        assert connection.request(b"2", routing_key=service).body == b"4"


def test_a_request_expires_when_nobody_waits_for_its_reply(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        with pytest.raises(TimeoutError):
            connection.request(b"1", routing_key=queue, timeout=0)
        assert channel.get(queue) is None


def test_a_request_waits_until_its_connection_ends(broker_uri: str) -> None:
    async def main() -> None:
        async with connect(broker_uri, recover=False) as connection:
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            requests = asyncio.ensure_future(
                connection.request(b"1", routing_key=queue, timeout=None)
            )
            async for _ in channel.consume(queue):
                break
            await connection.close()
            with pytest.raises(Closed):
                await requests

    asyncio.run(main())


def test_requests_go_on_after_a_lost_connection(
    broker_uri: str, proxy: CutProxy, service: str
) -> None:
    recovery = Recovery(delay_seconds=0.01)
    with blocking.connect(proxy.uri, recover=recovery) as connection:
        assert connection.request(b"2", routing_key=service).body == b"4"
        proxy.cut()
        assert connection.request(b"3", routing_key=service).body == b"9"

    async def main() -> None:
        async with connect(proxy.uri, recover=recovery) as connection:
            assert (await connection.request(b"2", routing_key=service)).body == b"4"
            proxy.cut()
            assert (await connection.request(b"3", routing_key=service)).body == b"9"

    asyncio.run(main())


def test_a_channel_that_failed_before_the_loss_is_replaced(
    broker_uri: str, proxy: CutProxy, service: str
) -> None:
    recovery = Recovery(delay_seconds=0.01)
    with blocking.connect(proxy.uri, recover=recovery) as connection:
        with pytest.raises(NotFound):
            connection.request(b"1", "no-exchange")
        proxy.cut()
        while not connection.is_recovering:
            connection.process()
        assert connection.request(b"3", routing_key=service).body == b"9"

    async def main() -> None:
        async with connect(proxy.uri, recover=recovery) as connection:
            with pytest.raises(NotFound):
                await connection.request(b"1", "no-exchange")
            proxy.cut()
            while not connection.is_recovering:  # noqa: ASYNC110 (nothing says so)
                await asyncio.sleep(0)
            assert (await connection.request(b"3", routing_key=service)).body == b"9"

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(5))
def test_a_cancelled_first_request_leaves_no_channel(
    broker_uri: str, service: str, steps: int
) -> None:
    async def main() -> None:
        async with connect(broker_uri) as connection:
            task = asyncio.ensure_future(connection.request(b"2", routing_key=service))
            while not any(one.is_open for one in connection.channels):  # noqa: ASYNC110 (nothing says so)
                await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await connection.request(b"3", routing_key=service)).body == b"9"
            assert len(connection.channels) == 1

    asyncio.run(main())


def test_a_pooled_connection_asks_again(broker_uri: str, service: str) -> None:
    with blocking.Pool(broker_uri, size=1) as pool:
        for _ in range(2):
            with pool.connection() as connection:
                assert connection.request(b"2", routing_key=service).body == b"4"


def test_a_message_without_reply_to_gets_no_reply(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        queue = channel.queue_declare(exclusive=True).queue
        channel.publish(b"notice", routing_key=queue)
        notice = channel.get(queue)
        assert notice is not None
        channel.confirm_select()
        channel.reply(notice, b"reply")
        assert channel.get(queue) is None
        assert channel.publish_nowait(b"next", routing_key=queue) == 1  # nothing was published
