"""Pools of both shells against a running broker: lent, returned, replaced, waited for, closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

from leveret import client
from leveret.client import Closed, ConnectionInUse, ConnectionLost, PoolExhausted, blocking
from leveret.errors import NotFound
from support.wire.cut_proxy import CutProxy

SECONDS = 60.0


@pytest.fixture
def uri(proxy: CutProxy) -> str:
    """The URI of the proxy."""
    return f"amqp://127.0.0.1:{proxy.port}"


def run(use: Callable[[], Coroutine[object, object, None]]) -> None:
    """Run a test's coroutine."""

    async def limited() -> None:
        async with asyncio.timeout(SECONDS):
            await use()

    asyncio.run(limited())


# -- asyncio ---------------------------------------------------------------------------------------


def test_a_connection_is_lent_again(uri: str) -> None:
    async def use() -> None:
        async with client.Pool(uri) as pool:
            async with pool.connection() as first:
                assert (pool.lent_count, pool.idle_count) == (1, 0)
            assert (pool.lent_count, pool.idle_count) == (0, 1)
            async with pool.connection() as second:
                assert second is first
        assert not first.is_open

    run(use)


def test_what_a_borrower_left_open_is_closed(uri: str, name: str) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1) as pool:
            async with pool.connection() as connection:
                channel = await connection.channel()
                await channel.queue_declare(name)
                await channel.publish(b"x", routing_key=name)
                assert await channel.get(name) is not None  # never acked
            assert not channel.is_open
            async with pool.channel() as channel:
                message = await channel.get(name)
                assert message is not None
                assert message.redelivered
                await channel.queue_delete(name)

    run(use)


def test_connections_are_kept_by_address(uri: str, broker_uri: str) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1) as pool:
            async with pool.connection() as one, pool.connection(broker_uri) as other:
                assert one.parameters.port != other.parameters.port
            async with pool.connection(broker_uri) as again:
                assert again is other

    run(use)


def test_the_waiters_are_served_in_order(uri: str, proxy: CutProxy) -> None:
    async def use() -> None:
        served: list[int] = []

        async def borrow(number: int) -> None:
            async with pool.connection():
                served.append(number)

        async with client.Pool(uri, size=2) as pool:
            async with pool.connection(), pool.connection():
                tasks = [asyncio.create_task(borrow(number)) for number in range(5)]
                await asyncio.sleep(0)
                assert pool.waiting_count == 5
            await asyncio.gather(*tasks)
        assert served == [0, 1, 2, 3, 4]
        assert proxy.accepted == 2

    run(use)


def test_who_waits_too_long_is_told_why(uri: str) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1, wait_seconds=0.01) as pool, pool.connection():
            with pytest.raises(PoolExhausted, match=r"all 1 connections to .* return them sooner"):
                await pool.connection().__aenter__()
            assert pool.waiting_count == 0

    run(use)


def test_a_cancelled_borrower_keeps_no_place(uri: str) -> None:
    async def use() -> None:
        async def borrow() -> None:
            async with pool.connection():
                pass

        async with client.Pool(uri, size=1) as pool:
            async with pool.connection():
                waiting = asyncio.create_task(borrow())
                await asyncio.sleep(0)
                assert pool.waiting_count == 1
            # Served and cancelled in the same turn of the loop.
            waiting.cancel()
            await asyncio.wait([waiting])
            opening = asyncio.create_task(borrow())
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait([opening])
            await borrow()
            assert (pool.lent_count, pool.waiting_count) == (0, 0)

    run(use)


def test_a_connection_that_was_cut_is_replaced(uri: str, proxy: CutProxy) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1) as pool:
            async with pool.connection() as first:
                pass
            proxy.cut()
            with pytest.raises(ConnectionLost):
                await first.wait_closed()
            async with pool.connection() as second:
                assert second is not first
                await second.channel()
            assert pool.idle_count == 1

    run(use)


def test_a_connection_that_ends_while_lent_leaves_its_place(uri: str, proxy: CutProxy) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1) as pool:
            async with pool.connection() as first:
                await first.close()
            assert (pool.lent_count, pool.idle_count) == (0, 0)
            async with pool.connection() as second:
                assert second.is_open

    run(use)


def test_an_error_of_the_borrower_passes_through(uri: str, name: str) -> None:
    async def use() -> None:
        async with client.Pool(uri, size=1) as pool:
            with pytest.raises(NotFound):
                async with pool.channel() as channel:
                    await channel.queue_declare(name, passive=True)
            assert pool.idle_count == 1

    run(use)


def test_nobody_who_cannot_connect_keeps_a_place(uri: str) -> None:
    async def use() -> None:
        nobody = "amqp://127.0.0.1:1"
        async with client.Pool(nobody, size=1) as pool:
            for _ in range(3):
                with pytest.raises(ConnectionRefusedError):
                    await pool.connection().__aenter__()
            assert pool.lent_count == 0

    run(use)


def test_what_is_lent_when_the_pool_closes_is_closed_on_its_return(uri: str) -> None:
    async def use() -> None:
        pool = client.Pool(uri, size=1)
        async with pool.connection() as lent:
            waiting = asyncio.ensure_future(pool.connection().__aenter__())
            await asyncio.sleep(0)
            assert pool.waiting_count == 1
            await pool.close()
            states = [lent.is_open]
            with pytest.raises(Closed):
                await waiting
        assert [*states, lent.is_open] == [True, False]
        with pytest.raises(Closed, match="the pool was closed"):
            await pool.connection().__aenter__()

    run(use)


def test_another_loop_needs_another_pool(uri: str) -> None:
    pool = client.Pool(uri)

    async def use() -> None:
        async with pool.connection():
            pass
        await pool.close()

    run(use)
    with pytest.raises(ConnectionInUse, match="another event loop"):
        run(use)


# -- blocking --------------------------------------------------------------------------------------


def test_threads_share_the_connections(uri: str, proxy: CutProxy, name: str) -> None:
    with blocking.Pool(uri, size=3) as pool, ThreadPoolExecutor(12) as threads:
        with pool.channel() as channel:
            channel.queue_declare(name)

        def publish(number: int) -> None:
            with pool.channel() as channel:
                channel.confirm_select()
                channel.publish(b"%d" % number, routing_key=name)

        list(threads.map(publish, range(100)))
        with pool.channel() as channel:
            assert channel.queue_delete(name) == 100
        assert pool.lent_count == 0
        assert proxy.accepted <= 3


def test_a_thread_waits_for_its_turn_and_is_told_when_in_vain(uri: str) -> None:
    with blocking.Pool(uri, size=1, wait_seconds=0.01) as pool, pool.connection():
        with pytest.raises(PoolExhausted, match=r"none was returned in 0\.01 s"):
            pool.connection().__enter__()
        assert pool.waiting_count == 0


def test_a_thread_that_waits_gets_what_comes_back(uri: str) -> None:
    with blocking.Pool(uri, size=1) as pool, ThreadPoolExecutor(1) as threads:
        found: list[blocking.Connection] = []
        waits = threading.Event()

        def borrow() -> None:
            waits.set()
            with pool.connection() as connection:
                found.append(connection)

        with pool.connection() as lent:
            future = threads.submit(borrow)
            assert waits.wait(SECONDS)
        future.result(SECONDS)
        assert found == [lent]


def test_what_a_thread_left_open_is_closed(uri: str, name: str) -> None:
    with blocking.Pool(uri, size=1) as pool:
        with pool.connection() as connection:
            channel = connection.channel()
            channel.queue_declare(name)
            channel.publish(b"x", routing_key=name)
            channel.consume(name)
        assert not channel.is_open
        with pool.channel() as channel:
            assert channel.get(name) is not None
            channel.queue_delete(name)


def test_a_blocking_connection_that_was_cut_is_replaced(uri: str, proxy: CutProxy) -> None:
    with blocking.Pool(uri, size=1) as pool:
        with pool.connection() as first:
            pass
        proxy.cut()
        with pool.connection() as second:
            assert second is not first
            second.channel()


def test_a_closed_blocking_pool_lends_nothing(uri: str) -> None:
    pool = blocking.Pool(uri, size=1)
    with pool.connection() as lent:
        pool.close()
        states = [lent.is_open]
    assert [*states, lent.is_open] == [True, False]
    with pytest.raises(Closed):
        pool.connection().__enter__()
