"""Connections of a real broker take turns: what waits is done in order, and nobody is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from leveret.app.embedded import Handles
from leveret.broker.scheduler.costs import SLICE
from leveret.server.amqp import FULL_READ_BYTES, ClientProtocol
from leveret.server.runner import FLUSHES_PER_TURN
from leveret.testing import Broker
from support.wire import raw


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A running broker."""
    with Broker() as running:
        yield running


def opened(broker: Broker, login: raw.Login | None = None) -> raw.Connection:
    """Return a connection with a channel."""
    connection = raw.connect(broker.url, login)
    connection.open_channel(1)
    return connection


def declares(prefix: str, count: int) -> bytes:
    """Return so many declares."""
    return b"".join(
        raw.method(1, "queue.declare", queue=f"{prefix}-{number}", exclusive=True)
        for number in range(count)
    )


def test_what_waits_for_a_turn_is_answered_in_order(broker: Broker) -> None:
    count = 2000
    with opened(broker) as connection:
        sender = threading.Thread(target=connection.send, args=(declares("order", count),))
        sender.start()
        names = [connection.expect(1, "queue.declare-ok").queue for _ in range(count)]
        sender.join()
    assert names == [f"order-{number}" for number in range(count)]


def test_a_client_that_hangs_up_while_it_waits_leaves_nothing(broker: Broker) -> None:
    with opened(broker) as connection:
        connection.send(declares("gone", 3000))
    with opened(broker) as connection:
        connection.send(declares("gone", 3000))
        for _ in range(3000):
            connection.expect(1, "queue.declare-ok")


@pytest.mark.parametrize(
    ("batches", "reads"),
    [
        ([declares("few", 1000)], True),
        ([declares("few", 1000), declares("more", 1)], False),
        ([declares("much", FULL_READ_BYTES // 25)], False),
    ],
    ids=["all that it has", "more while it waits", "a full read"],
)
def test_who_waits_for_a_turn_is_read_no_further_if_it_has_more(
    broker: Broker, batches: list[bytes], reads: bool
) -> None:
    async def take(handles: object) -> bool:
        """Take the batches as from the loop; return whether the socket is read until the turn."""
        shell = only_shell(handles)
        for batch in batches:
            shell.data_received(batch)
        assert shell.connection.waits_for_turn()
        return shell._transport.is_reading()  # noqa: SLF001 (no other one tells)

    async def is_read(handles: object) -> bool:
        return only_shell(handles)._transport.is_reading()  # noqa: SLF001 (as above)

    with opened(broker) as connection:
        assert broker._call(take) is reads  # noqa: SLF001
        for _ in range(sum(batch.count(b"-") for batch in batches)):
            connection.expect(1, "queue.declare-ok")
        assert broker._call(is_read)  # noqa: SLF001


def only_shell(handles: object) -> ClientProtocol:
    """Return the socket of the one connection that there is."""
    assert isinstance(handles, Handles)
    (shell,) = handles._engine.runner.shells  # noqa: SLF001 (no other one has it)
    assert isinstance(shell, ClientProtocol)
    return shell


def test_more_connections_than_a_turn_flushes_get_their_output(broker: Broker) -> None:
    count = FLUSHES_PER_TURN + 40
    with ExitStack() as open_:
        publisher = open_.enter_context(opened(broker))
        publisher.call(1, "exchange.declare", exchange="all", type="fanout", auto_delete=True)
        consumers = []
        for _ in range(count):
            consumer = open_.enter_context(opened(broker))
            queue = consumer.declare(1, "", exclusive=True).queue
            consumer.call(1, "queue.bind", queue=queue, exchange="all")
            consumer.call(1, "basic.consume", queue=queue, no_ack=True)
            consumers.append(consumer)
        publisher.send(raw.publish(1, "all", "", b"news"))
        for consumer in consumers:
            assert consumer.expect(1, "basic.deliver").body == b"news"


def test_all_connections_are_looked_at_when_a_turn_has_steps_for_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leveret.server.runner.TICK", SLICE)
    with ExitStack() as open_:
        silent = [
            open_.enter_context(raw.connect(broker.url, raw.Login(heartbeat=10))) for _ in range(5)
        ]
        broker.advance(25)
        for connection in silent:
            connection.expect_heartbeats_and_end()


def test_the_methods_that_every_batch_calls_are_found_quickly(broker: Broker) -> None:
    """CPython 3.11 has a quick way for objects with fewer than 30 attributes."""
    assert 0 < broker._call(_attributes_of_runner) < 30  # noqa: SLF001 (it is no other one's)


async def _attributes_of_runner(handles: object) -> int:
    assert isinstance(handles, Handles)
    return len(vars(handles._engine.runner))  # noqa: SLF001 (as above)
