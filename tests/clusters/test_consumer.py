"""Members of clusters: who gets what, how they come, go and come back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from leveret import (
    BlockingConsumer,
    BlockingProducer,
    ClusterDeleted,
    ClusterMessage,
    ClusterMismatch,
    Consumer,
    HandlerStopped,
    MemberInUse,
    Outcome,
    Producer,
)
from leveret.client import Channel, Closed, connect, parse_uri
from leveret.client.clusters.placement import preferred
from support.brokers.brokers import Broker
from support.clusters.handled import SECONDS, Handled, settled
from support.wire.cut_proxy import CutProxy

KEYS = [f"key {number}" for number in range(40)]
#: So many that each of 8 partitions gets some: of 40 keys one in thirty topics leaves one without.
MANY_KEYS = [f"key {number}" for number in range(240)]


def in_loop(uri: str, topic: str, test: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a producer of the topic."""

    async def run() -> None:
        async with asyncio.timeout(SECONDS), Producer(topic, uri=uri) as producer:
            await test(producer)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def a_channel(uri: str) -> AsyncIterator[Channel]:
    """Give a channel of a connection of its own."""
    async with await connect(uri) as connection:
        yield await connection.channel()


async def deliver(producer: Producer, *bodies: bytes, key: str = "") -> None:
    """Deliver bodies, each of which must be confirmed."""
    acknowledgements = await producer.deliver_many([(body, key) for body in bodies])
    assert all(one.is_confirmed for one in acknowledgements)


async def count_of(channel: Channel, queue: str) -> int:
    """Return how many messages are ready in a queue."""
    return (await channel.queue_declare(queue, passive=True)).message_count


# -- who gets what ---------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [0, 4])
def test_each_cluster_gets_every_message_and_one_member_of_it_each(
    broker_uri: str, topic: str, partitions: int
) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with contextlib.AsyncExitStack() as members:
            for cluster in ("billing", "shipping"):
                for _ in range(3):
                    member = Consumer(
                        topic,
                        cluster=cluster,
                        on_message=handled.handler(cluster),
                        uri=broker_uri,
                        partitions=partitions,
                    )
                    await members.enter_async_context(member)
            bodies = [b"%d" % number for number in range(200)]
            for body in bodies:
                assert (await producer.deliver(body, body.decode())).is_confirmed
            await handled.count(400)
        for cluster in ("billing", "shipping"):
            assert sorted(handled.bodies(cluster)) == sorted(bodies)

    in_loop(broker_uri, topic, test)


def test_members_of_a_shared_queue_take_turns(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with contextlib.AsyncExitStack() as members:
            for name in ("a", "b", "c", "d"):
                member = Consumer(
                    topic,
                    cluster="c",
                    on_message=handled.handler(name),
                    uri=broker_uri,
                    prefetch=1,
                )
                await members.enter_async_context(member)
            for number in range(40):
                await deliver(producer, b"%d" % number)
                await handled.count(number + 1)
        assert [len(handled.bodies(name)) for name in "abcd"] == [10] * 4

    in_loop(broker_uri, topic, test)


def test_a_member_handles_as_many_at_once_as_it_may(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        all_begun, at_once, most = asyncio.Event(), 0, 0

        async def on_message(message: ClusterMessage) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            if at_once == 3:
                all_begun.set()
            await all_begun.wait()
            at_once -= 1
            await handled.note("", message)

        async with Consumer(
            topic, cluster="c", on_message=on_message, uri=broker_uri, concurrency=3
        ):
            await deliver(producer, b"1", b"2", b"3", b"4", b"5")
            await handled.count(5)
        assert most == 3

    in_loop(broker_uri, topic, test)


def test_plain_functions_work_beside_each_other_and_the_loop(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        barrier = threading.Barrier(2, timeout=SECONDS)
        passed: list[bytes] = []

        def on_message(message: ClusterMessage) -> None:
            barrier.wait()
            passed.append(message.body)

        member = Consumer(
            topic, cluster="c", on_message=on_message, uri=broker_uri, concurrency=2, prefetch=2
        )
        async with member, a_channel(broker_uri) as channel:
            await deliver(producer, b"1", b"2")

            async def is_empty() -> bool:
                return len(passed) == 2 and await count_of(channel, f"{topic}@c") == 0

            await settled(is_empty)
        assert sorted(passed) == [b"1", b"2"]

    in_loop(broker_uri, topic, test)


def test_subscribing_twice_is_subscribing_once(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        member = Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri)
        assert set(await asyncio.gather(member.subscribe(), member.subscribe())) == {member}
        async with a_channel(broker_uri) as channel:
            declared = await channel.queue_declare(f"{topic}@c", passive=True)
            assert declared.consumer_count == 1
            await member.unsubscribe()
            await member.unsubscribe()
            declared = await channel.queue_declare(f"{topic}@c", passive=True)
            assert declared.consumer_count == 0

    in_loop(broker_uri, topic, test)


def test_a_backlog_waits_while_the_members_are_away(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        member = Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri)
        async with member:
            pass
        assert not member.is_subscribed
        await deliver(producer, b"1", b"2", b"3")
        async with member:
            await handled.count(3)
        assert handled.bodies() == [b"1", b"2", b"3"]
        assert [message.redelivered for _, message in handled.calls] == [False] * 3

    in_loop(broker_uri, topic, test)


def test_names_of_dots_and_utf_8_do_not_meet(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with (
            Producer(f"{topic}.β", uri=broker_uri) as other,
            Consumer(topic, cluster="β.c", on_message=handled.handler("1"), uri=broker_uri),
            Consumer(f"{topic}.β", cluster="c", on_message=handled.handler("2"), uri=broker_uri),
        ):
            await deliver(producer, b"one", key="k" * 255)
            await deliver(other, b"two", key="ß" * 127)
            await handled.count(2)
        assert (handled.bodies("1"), handled.bodies("2")) == ([b"one"], [b"two"])

    in_loop(broker_uri, topic, test)


# -- order and places ------------------------------------------------------------------------------


def test_messages_of_a_key_are_handled_in_order_by_one_member(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with contextlib.AsyncExitStack() as members:
            for name in ("0", "1", "2"):
                member = Consumer(
                    topic,
                    cluster="c",
                    on_message=handled.handler(name),
                    uri=broker_uri,
                    partitions=6,
                )
                await members.enter_async_context(member)
                assert str(member.member) == name
            messages = [(b"%d" % number, key) for number in range(20) for key in KEYS]
            await producer.deliver_many(messages)
            await handled.count(len(messages))
        for key in KEYS:
            seen = [(name, m.partition, int(m.body)) for name, m in handled.calls if m.key == key]
            assert [body for _, _, body in seen] == list(range(20))
            # RabbitMQ before 4.0 leaves all partitions to the first member.
            assert len({(name, partition) for name, partition, _ in seen}) == 1

    in_loop(broker_uri, topic, test)


def owners(handled: Handled) -> dict[int | None, set[str]]:
    """Return which members handled messages of each partition."""
    found: dict[int | None, set[str]] = {}
    for name, message in handled.calls:
        found.setdefault(message.partition, set()).add(name)
    return found


def test_a_member_that_comes_back_under_its_number_has_its_partitions(
    broker: Broker, topic: str
) -> None:
    if broker.is_rabbitmq:
        pytest.skip("in RabbitMQ 3.10 an active consumer stays active")
    broker_uri = broker.uri

    async def test(producer: Producer) -> None:
        def member(handled: Handled, number: int) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=handled.handler(str(number)),
                uri=broker_uri,
                partitions=8,
                member=number,
            )

        async def round_of(handled: Handled) -> dict[int | None, set[str]]:
            before = len(handled.calls)
            await producer.deliver_many([(b"x", key) for key in MANY_KEYS])
            await handled.count(before + len(MANY_KEYS))
            found = owners(handled)
            handled.calls.clear()
            return found

        handled = Handled()
        first, second = member(handled, 0), member(handled, 1)
        async with first:
            async with second:
                shared = await round_of(handled)
            alone = await round_of(handled)
            async with second:
                again = await round_of(handled)
        wanted = {p: {"1" if p in preferred(8, 1) else "0"} for p in range(8)}
        assert shared == again == wanted
        assert alone == {p: {"0"} for p in range(8)}

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("partitions", [0, 2])
def test_two_members_cannot_have_one_number(broker_uri: str, topic: str, partitions: int) -> None:
    async def run() -> None:
        handled = Handled()

        def member(number: int | None) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=handled.handler(),
                uri=broker_uri,
                partitions=partitions,
                member=number,
                member_timeout=0,
            )

        async with member(1) as first:
            assert first.member == 1
            with pytest.raises(MemberInUse, match="has a member 1"):
                await member(1).subscribe()
            async with member(2) as other:
                assert other.member == 2
        async with member(1) as again:
            assert again.member == 1

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_members_without_a_number_take_the_lowest_free_one(broker_uri: str, topic: str) -> None:
    async def run() -> None:
        async def on_message(message: ClusterMessage) -> None:
            pass

        def member() -> Consumer:
            return Consumer(topic, cluster="c", on_message=on_message, uri=broker_uri, partitions=4)

        async with await member().subscribe() as first:
            second = await member().subscribe()
            async with await member().subscribe() as third:
                assert (first.member, second.member, third.member) == (0, 1, 2)
                await second.unsubscribe()
                async with await member().subscribe() as fourth:
                    assert fourth.member == 1

    asyncio.run(asyncio.wait_for(run(), SECONDS))


# -- what differs, and what is deleted -------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (0, 4), (4, 0)])
def test_another_number_of_partitions_is_refused(
    broker_uri: str, topic: str, before: int, after: int
) -> None:
    async def run() -> None:
        def member(partitions: int) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=Handled().handler(),
                uri=broker_uri,
                partitions=partitions,
            )

        async with member(before):
            with pytest.raises(ClusterMismatch, match=f"number of partitions than {after}"):
                await member(after).subscribe()
        await member(before).delete_cluster()
        async with member(after):
            pass

    asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_other_delays_are_refused_where_they_are_the_queue_s(broker: Broker, topic: str) -> None:
    if broker.is_rabbitmq:
        pytest.skip("in RabbitMQ 3.10 queues have no delays to compare")
    broker_uri = broker.uri

    async def run() -> None:
        def member(retry_delay: float) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=Handled().handler(),
                uri=broker_uri,
                retry_delay=retry_delay,
            )

        async with member(1):
            with pytest.raises(ClusterMismatch, match="same retry_delay"):
                await member(2).subscribe()

    asyncio.run(asyncio.wait_for(run(), SECONDS))


@pytest.mark.parametrize("partitions", [0, 3])
def test_a_deleted_cluster_ends_its_members_and_loses_its_backlog(
    broker_uri: str, topic: str, partitions: int
) -> None:
    async def test(producer: Producer) -> None:
        def member() -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=Handled().handler(),
                uri=broker_uri,
                partitions=partitions,
            )

        async with member():
            pass
        await deliver(producer, b"1", b"2", b"3")
        assert await member().delete_cluster() == 3
        assert not (await producer.deliver(b"x")).is_confirmed
        other = await member().subscribe()
        assert await member().delete_cluster(dead_letters=True) == 0
        with pytest.raises(ClusterDeleted, match="was deleted"):
            await other.wait()
        assert not other.is_subscribed
        await other.unsubscribe()

    in_loop(broker_uri, topic, test)


def test_a_queue_deleted_under_its_member_is_declared_again(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        async with (
            Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri) as member,
            a_channel(broker_uri) as channel,
        ):
            await deliver(producer, b"before")
            await handled.count(1)
            await channel.queue_delete(f"{topic}@c")

            async def is_there() -> bool:
                return (await producer.deliver(b"after")).is_confirmed

            await settled(is_there)
            await handled.count(2)
            assert handled.bodies()[1] == b"after"
            assert member.is_subscribed

    in_loop(broker_uri, topic, test)


# -- how a member ends -----------------------------------------------------------------------------


def test_who_leaves_finishes_what_it_began_and_gives_back_the_rest(
    broker_uri: str, topic: str
) -> None:
    async def test(producer: Producer) -> None:
        begun, finish = asyncio.Event(), asyncio.Event()
        finished: list[bytes] = []

        async def slow(message: ClusterMessage) -> None:
            begun.set()
            await finish.wait()
            finished.append(message.body)

        member = Consumer(topic, cluster="c", on_message=slow, uri=broker_uri)
        await member.subscribe()
        await deliver(producer, b"1", b"2", b"3")
        await begun.wait()
        leaving = asyncio.ensure_future(member.unsubscribe())
        await asyncio.sleep(0)
        finish.set()
        await leaving
        await member.wait()
        assert finished == [b"1"]
        handled = Handled()
        async with Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri):
            await handled.count(2)
        assert handled.bodies() == [b"2", b"3"]

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_a_handler_that_never_returns_keeps_nobody(
    broker_uri: str, topic: str, is_coroutine: bool
) -> None:
    async def test(producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        begun, cancelled, never = asyncio.Event(), asyncio.Event(), threading.Event()

        async def endless(message: ClusterMessage) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        def endless_function(message: ClusterMessage) -> None:
            loop.call_soon_threadsafe(begun.set)
            never.wait()

        member = Consumer(
            topic,
            cluster="c",
            on_message=endless if is_coroutine else endless_function,
            uri=broker_uri,
            drain_timeout=0,
        )
        await member.subscribe()
        await deliver(producer, b"x")
        await begun.wait()
        await member.unsubscribe()
        assert cancelled.is_set() is is_coroutine
        handled = Handled()
        async with Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri):
            await handled.count(1)
        assert handled.calls[0][1].redelivered
        never.set()

    in_loop(broker_uri, topic, test)


class Fatal(BaseException):
    """What is no `Exception`."""


@pytest.mark.parametrize("error", [Fatal, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("is_coroutine", [True, False])
def test_what_is_no_exception_ends_the_member_and_keeps_the_message(
    broker_uri: str, topic: str, error: type[BaseException], is_coroutine: bool
) -> None:
    async def test(producer: Producer) -> None:
        async def on_message(message: ClusterMessage) -> None:
            raise error("enough")

        def function(message: ClusterMessage) -> None:
            raise error("enough")

        member = Consumer(
            topic,
            cluster="c",
            on_message=on_message if is_coroutine else function,
            uri=broker_uri,
        )
        await member.subscribe()
        await deliver(producer, b"x")
        with pytest.raises(HandlerStopped, match="enough") as raised:
            await member.wait()
        assert isinstance(raised.value.__cause__, error)
        assert not member.is_subscribed
        handled = Handled()
        async with Consumer(topic, cluster="c", on_message=handled.handler(), uri=broker_uri):
            await handled.count(1)
        assert handled.calls[0][1].redelivered

    in_loop(broker_uri, topic, test)


def test_a_handler_is_told_that_it_must_not_unsubscribe(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        raised: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

        async def on_message(message: ClusterMessage) -> None:
            try:
                await member.unsubscribe()
            except RuntimeError as error:
                raised.set_result(error)

        member = Consumer(topic, cluster="c", on_message=on_message, uri=broker_uri)
        async with member:
            await deliver(producer, b"x")
            assert "on_message called unsubscribe" in str(await raised)

    in_loop(broker_uri, topic, test)


# -- lost connections ------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [0, 4])
def test_a_member_whose_connection_is_cut_joins_again(
    broker_uri: str, topic: str, partitions: int
) -> None:
    async def test(producer: Producer) -> None:
        handled = Handled()
        with CutProxy(parse_uri(broker_uri).port) as proxy:
            member = Consumer(
                topic,
                cluster="c",
                on_message=handled.handler(),
                uri=f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F",
                partitions=partitions,
                member=1,
            )
            async with member:
                for number in range(5):
                    await deliver(producer, b"%d" % number, key="k")
                    await handled.until(lambda n=number: b"%d" % n in handled.bodies())  # type: ignore[misc]  # bound now
                    proxy.cut()
                await deliver(producer, b"last", key="k")
                await handled.until(lambda: b"last" in handled.bodies())
                assert member.is_subscribed
                assert member.member == 1
        repeated = [m.body for _, m in handled.calls if m.redelivered]
        fresh = [m.body for _, m in handled.calls if not m.redelivered]
        assert set(fresh) | set(repeated) == {b"0", b"1", b"2", b"3", b"4", b"last"}
        assert len(fresh) == len(set(fresh))

    in_loop(broker_uri, topic, test)


def test_nobody_who_answers_is_raised_by_subscribe(topic: str) -> None:
    async def run() -> None:
        member = Consumer(
            topic,
            cluster="c",
            on_message=Handled().handler(),
            uri="amqp://guest:guest@127.0.0.1:1/",
        )
        with pytest.raises(ConnectionRefusedError):
            await member.subscribe()
        with pytest.raises(Closed, match="not subscribed"):
            await member.wait()
        await member.unsubscribe()

    asyncio.run(run())


# -- blocking --------------------------------------------------------------------------------------


def test_the_blocking_member_does_the_same(broker_uri: str, topic: str) -> None:
    handled: list[bytes] = []
    done = threading.Event()

    def on_message(message: ClusterMessage) -> Outcome | None:
        handled.append(message.body)
        if len(handled) == 3:
            done.set()
        return None

    member = BlockingConsumer(
        topic, cluster="c", on_message=on_message, uri=broker_uri, partitions=2
    )
    with member, BlockingProducer(topic, uri=broker_uri) as producer:
        assert (member.member, member.is_subscribed) == (0, True)
        assert all(one.is_confirmed for one in producer.deliver_many([b"1", b"2", b"3"]))
        assert done.wait(SECONDS)
    assert handled == [b"1", b"2", b"3"]
    assert not member.is_subscribed
    assert member.delete_cluster() == 0


def test_the_blocking_member_raises_what_ends_it(broker_uri: str, topic: str) -> None:
    def on_message(message: ClusterMessage) -> None:
        raise SystemExit("enough")

    member = BlockingConsumer(topic, cluster="c", on_message=on_message, uri=broker_uri)
    with member, BlockingProducer(topic, uri=broker_uri) as producer:
        producer.deliver(b"x")
        with pytest.raises(HandlerStopped, match="enough"):
            member.wait()


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"partitions": 257}, "partitions"),
        ({"member": -1}, "member is -1"),
        ({"member": 256}, "member is 256"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"prefetch": 65_536}, "prefetch is 65536"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"concurrency": 2, "partitions": 2}, "concurrency is for clusters without partitions"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"max_batch": -1}, "max_batch is -1"),
        ({"retry_delay": -1}, "retry_delay is -1"),
        ({"drain_timeout": float("nan")}, "drain_timeout is nan"),
        ({"handler_timeout": 86_401}, "handler_timeout is 86401"),
    ],
)
def test_arguments_that_make_no_sense_are_named(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Consumer("t", cluster="c", on_message=Handled().handler(), **arguments)


def test_a_plain_function_has_no_time_limit() -> None:
    with pytest.raises(ValueError, match="needs a coroutine function"):
        Consumer("t", cluster="c", on_message=lambda _: None, handler_timeout=1)
    with pytest.raises(TypeError, match="no keyword argument 'prefech'"):
        Consumer("t", cluster="c", on_message=Handled().handler(), prefech=1)  # type: ignore[call-arg]  # what is refused
    with pytest.raises(TypeError, match="on_message must be a function, not str"):
        Consumer("t", cluster="c", on_message="handle")  # type: ignore[arg-type]  # what is refused
