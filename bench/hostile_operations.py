"""What a user who may declare does with single requests that ask for much work."""

from __future__ import annotations

import contextlib
import itertools
from typing import Final

from target import Target

from leveret.limits import TX_COST_MAX
from support.wire import raw

#: Requests that are sent together.
_BATCH: Final = 1000

EXCLUSIVE: Final = 30_000
UNACKED: Final = 100_000
BINDINGS: Final = 50_000
QUEUES: Final = 500


def _send(connection: raw.Connection, requests: list[bytes]) -> None:
    """Send requests without replies, and wait until the broker has done them."""
    for first in range(0, len(requests), _BATCH):
        connection.send(b"".join(requests[first : first + _BATCH]))
    connection.sync(1)


def _fill(connection: raw.Connection, count: int) -> None:
    """Put messages into the queue `deep`, and consume them without an ack."""
    connection.declare(1, "deep", durable=False)
    _send(connection, [raw.publish(1, "", "deep", bytes(20))] * count)
    connection.call(1, "basic.consume", queue="deep", consumer_tag="c")
    for _ in range(count):
        connection.expect(1, "basic.deliver")


def attack_exclusive_queues(target: Target) -> None:
    """30,000 exclusive queues, declared together and deleted by a lost connection, again."""
    for turn in itertools.count():
        if target.over:
            return
        # Other names each time: the former queues are deleted in slices, and locked until then.
        declares = [
            raw.method(1, "queue.declare", queue=f"x{turn}-{number}", exclusive=True, no_wait=True)
            for number in range(EXCLUSIVE)
        ]
        with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
            connection.open_channel(1)
            _send(connection, declares)


def attack_nack_all(target: Target) -> None:
    """A nack of 100,000 deliveries, which come back, again."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        _fill(connection, UNACKED)
        while not target.over:
            connection.send(
                raw.method(1, "basic.nack", delivery_tag=0, multiple=True, requeue=True)
            )
            for _ in range(UNACKED):
                connection.expect(1, "basic.deliver")


def attack_close_with_unacked(target: Target) -> None:
    """Connections that are lost with 100,000 deliveries."""
    while not target.over:
        with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
            connection.open_channel(1)
            connection.declare(1, "deep", durable=False)
            connection.call(1, "queue.purge", queue="deep")
            _fill(connection, UNACKED)


def attack_many_bindings(target: Target) -> None:
    """A queue with 50,000 bindings to a topic exchange that is deleted, again."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        binds = [
            raw.method(
                1,
                "queue.bind",
                queue="bound",
                exchange="amq.topic",
                routing_key=f"k.{number}",
                no_wait=True,
            )
            for number in range(BINDINGS)
        ]
        while not target.over:
            connection.declare(1, "bound", durable=False)
            _send(connection, binds)
            connection.call(1, "queue.delete", queue="bound")


def attack_large_transactions(target: Target) -> None:
    """Transactions to 500 queues that drop their oldest, with as many copies as one may have."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.call(1, "exchange.declare", exchange="all", type="fanout")
        for number in range(QUEUES):
            connection.declare(1, f"f{number}", durable=False, arguments={"x-max-length": 100})
            connection.call(1, "queue.bind", queue=f"f{number}", exchange="all")
        connection.call(1, "tx.select")
        # A copy is a step of the commit, and two more where the oldest message is dropped for it.
        count = TX_COST_MAX // (3 * QUEUES + 1)
        while not target.over:
            connection.send(raw.publish(1, "all", "", bytes(20)) * count)
            connection.call(1, "tx.commit")


def attack_far_browsers(target: Target) -> None:
    """Browsers that begin at the end of a queue of 100,000 messages."""
    with contextlib.suppress(OSError, raw.Closed), target.log_in() as connection:
        connection.open_channel(1)
        connection.declare(1, "deep", durable=False)
        _send(connection, [raw.publish(1, "", "deep", bytes(20))] * UNACKED)
        arguments = {"x-browse": {"position": UNACKED - 1}}
        while not target.over:
            connection.call(1, "basic.consume", queue="deep", arguments=arguments)
            connection.expect(1, "basic.deliver")
            connection.expect(1, "basic.cancel")
