"""Batches: how they are made, and what a result means for all and for each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from leveret import ClusterMessage, Consumer, Outcome, Producer
from support.clusters.handled import SECONDS

#: Longer than any test: batches are handed over when they are full.
NEVER = 3600.0


class Batches:
    """The batches that a handler was given."""

    def __init__(self, answer: Callable[[list[ClusterMessage]], Any] | None = None) -> None:
        self.bodies: list[list[bytes]] = []
        self.attempts: list[list[int]] = []
        self._answer = answer
        self._grown = asyncio.Condition()

    async def on_message(self, messages: list[ClusterMessage]) -> Any:
        """Note a batch."""
        async with self._grown:
            self.bodies.append([message.body for message in messages])
            self.attempts.append([message.attempt for message in messages])
            self._grown.notify_all()
        return None if self._answer is None else self._answer(messages)

    @property
    def all_bodies(self) -> list[bytes]:
        """The bodies of all batches."""
        return [body for bodies in self.bodies for body in bodies]

    async def messages(self, count: int) -> None:
        """Wait until so many messages have come."""
        async with self._grown:
            await self._grown.wait_for(lambda: sum(map(len, self.bodies)) >= count)


def in_loop(uri: str, topic: str, test: Callable[[Producer], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a producer of the topic."""

    async def run() -> None:
        async with asyncio.timeout(SECONDS), Producer(topic, uri=uri) as producer:
            await test(producer)

    asyncio.run(run())


def numbers(start: int, end: int) -> Sequence[tuple[bytes, str]]:
    """Return messages of one key."""
    return [(b"%d" % number, "k") for number in range(start, end)]


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("prefetch", [1, 100])
def test_a_full_batch_is_handed_over(
    broker_uri: str, topic: str, partitions: int, prefetch: int
) -> None:
    async def test(producer: Producer) -> None:
        batches = Batches()
        async with Consumer(
            topic,
            cluster="c",
            on_message=batches.on_message,
            uri=broker_uri,
            partitions=partitions,
            prefetch=prefetch,
            max_batch=4,
            max_wait=NEVER,
        ):
            await producer.deliver_many(numbers(0, 12))
            await batches.messages(12)
        assert batches.bodies == [
            [b"0", b"1", b"2", b"3"],
            [b"4", b"5", b"6", b"7"],
            [b"8", b"9", b"10", b"11"],
        ]

    in_loop(broker_uri, topic, test)


def test_a_batch_is_handed_over_when_its_first_message_has_waited(
    broker_uri: str, topic: str
) -> None:
    async def test(producer: Producer) -> None:
        batches = Batches()
        member = Consumer(
            topic,
            cluster="c",
            on_message=batches.on_message,
            uri=broker_uri,
            max_batch=100,
            max_wait=0.2,
        )
        async with member:
            await producer.deliver_many(numbers(0, 3))
            await batches.messages(3)
            await producer.deliver(b"3")
            await batches.messages(4)
        assert batches.all_bodies == [b"0", b"1", b"2", b"3"]
        assert len(batches.bodies) < 4

    in_loop(broker_uri, topic, test)


def test_a_batch_that_waits_is_handled_when_its_member_leaves(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        batches = Batches()

        def member(max_batch: int) -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=batches.on_message,
                uri=broker_uri,
                max_batch=max_batch,
                max_wait=NEVER,
            )

        async with member(3):
            await producer.deliver_many(numbers(0, 4))
            await batches.messages(3)
        async with member(1):
            await producer.deliver(b"4")
            await batches.messages(5)
        assert sorted(batches.all_bodies) == [b"0", b"1", b"2", b"3", b"4"]

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_result_for_each_retries_and_dead_letters_single_messages(
    broker_uri: str, topic: str, partitions: int
) -> None:
    def answer(messages: list[ClusterMessage]) -> list[Outcome | None]:
        wanted = {b"1": Outcome.RETRY, b"2": Outcome.DEAD_LETTER}
        return [wanted.get(message.body) if message.attempt == 1 else None for message in messages]

    async def test(producer: Producer) -> None:
        batches = Batches(answer)
        async with Consumer(
            topic,
            cluster="c",
            on_message=batches.on_message,
            uri=broker_uri,
            partitions=partitions,
            retry_delay=0.001,
            max_batch=4,
            max_wait=0.001 if partitions == 0 else NEVER,
            prefetch=10,
        ):
            await producer.deliver_many(numbers(0, 4))
            await batches.messages(5)
            await producer.deliver_many(numbers(4, 8))
            await batches.messages(9)
        assert sorted(batches.all_bodies) == [
            b"0",
            b"1",
            b"1",
            *(b"%d" % n for n in range(2, 8)),
        ]
        assert sum(map(sum, batches.attempts)) == 10
        if partitions:
            assert batches.bodies[1] == [b"1"]

    in_loop(broker_uri, topic, test)


@pytest.mark.parametrize(
    "result", [Outcome.RETRY, [Outcome.RETRY] * 3, [None], [None] * 4, ["?"] * 3]
)
def test_a_result_for_all_and_one_that_fits_no_batch(
    broker_uri: str, topic: str, result: object
) -> None:
    async def test(producer: Producer) -> None:
        batches = Batches(lambda _: result if len(batches.bodies) == 1 else None)
        async with Consumer(
            topic,
            cluster="c",
            on_message=batches.on_message,
            uri=broker_uri,
            partitions=1,
            retry_delay=0.001,
            max_batch=3,
            max_wait=NEVER,
        ):
            await producer.deliver_many(numbers(0, 3))
            await batches.messages(6)
        assert batches.bodies == [[b"0", b"1", b"2"]] * 2
        assert batches.attempts == [[1, 1, 1], [2, 2, 2]]

    in_loop(broker_uri, topic, test)


def test_a_batch_of_one_is_a_list(broker_uri: str, topic: str) -> None:
    async def test(producer: Producer) -> None:
        batches = Batches()
        async with Consumer(
            topic, cluster="c", on_message=batches.on_message, uri=broker_uri, max_batch=1
        ):
            await producer.deliver_many(numbers(0, 2))
            await batches.messages(2)
        assert batches.bodies == [[b"0"], [b"1"]]

    in_loop(broker_uri, topic, test)
