"""Consuming: tags, prefetch, cancelling, get, priorities, one active consumer."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Channel, Stage
from support.wire import raw


def filled(s: Stage, bodies: str = "", **fields: Any) -> tuple[Channel, str]:
    """A channel and its exclusive queue with the messages."""
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, **({"exclusive": True} | fields))
    for body in bodies:
        a.publish("", queue, body)
    a.count(queue, len(bodies))
    return a, queue


@script(51)
def tag_twice(s: Stage) -> None:
    a, queue = filled(s)
    a.consume(queue, "t")
    a.consume(queue, "t")


@script(51)
def tag_twice_on_two_channels(s: Stage) -> None:
    a, queue = filled(s)
    b = a.peer.channel(2)
    a.consume(queue, "t")
    b.consume(queue, "t")
    a.publish("", queue, "1")
    a.publish("", queue, "2")
    a.delivered()
    b.delivered()


@script(51)
def tag_of_the_server(s: Stage) -> None:
    a, queue = filled(s)
    first = a.consume(queue, "").fields["consumer_tag"]
    second = a.consume(queue, "").fields["consumer_tag"]
    s.note(str(first != second and first.startswith("amq.ctag-")))
    a.cancel(first)
    a.cancel(second)


@script(51)
def tag_used_again(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.consume(queue, "t")
    a.delivered()
    a.cancel("t")
    a.consume(queue, "t")
    a.reject(1)
    a.delivered()


@script(52)
def exclusive(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue)
    a.consume(queue, "1", exclusive=True)
    b.consume(queue, "2")
    b.consume(queue, "2", exclusive=True)
    a.consume(queue, "3")
    a.consume(queue, "1", exclusive=True)
    b.consume(queue, "2")
    a.consume(queue, "3", exclusive=True)
    b.cancel("2")
    a.consume(queue, "3", exclusive=True)
    b.get(queue)
    b.call("queue.delete", queue=queue)


@script(52)
def missing(s: Stage) -> None:
    a = s.channel()
    a.consume(s.name("q"))
    a.get(s.name("q"))


@script(53)
def cancel_unknown(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.cancel("unknown")
    a.cancel("")
    a.consume(queue, "t")
    a.delivered()
    a.cancel("t")
    a.cancel("t")
    a.count(queue)
    a.ack(1)
    a.count(queue)


@script(53)
def cancel_and_requeue(s: Stage) -> None:
    a, queue = filled(s, "123")
    a.consume(queue, "t")
    a.delivered(3)
    a.cancel("t")
    a.nack(2)
    a.count(queue, 1)
    a.get(queue, no_ack=False)
    a.ack(0, multiple=True)
    a.count(queue)


@script(53)
def cancel_no_wait(s: Stage) -> None:
    a, queue = filled(s)
    a.send("basic.consume", queue=queue, consumer_tag="t", no_wait=True)
    a.publish("", queue, "1")
    a.delivered()
    a.send("basic.cancel", consumer_tag="t", no_wait=True)
    a.publish("", queue, "2")
    a.count(queue, 1)
    a.rest()


@script(54)
def cancelled_with_its_queue(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue)
    b.consume(queue, "t")
    a.publish("", queue, "1")
    b.delivered()
    a.call("queue.delete", queue=queue)
    b.hear()
    b.ack(1)
    b.sync()


@script(54)
def cancelled_with_its_queue_by_itself(s: Stage) -> None:
    a, queue = filled(s)
    a.consume(queue, "1")
    a.consume(queue, "2")
    a.call("queue.delete", queue=queue)
    a.hear(2)


@script(54)
def cancelled_after_the_ok(s: Stage) -> None:
    """Heard as they come: the -ok of a durable queue's delete waits for the disk."""
    a, queue = filled(s, durable=True, exclusive=False)
    a.consume(queue, "1")
    a.send("queue.delete", queue=queue)
    a.hear(2)
    a.hear()


@script(55)
def history_after_the_ok(s: Stage) -> None:
    """Heard as they come: what a bind brings."""
    a, queue = filled(s, durable=True, exclusive=False)
    history = s.name("x")
    a.call("exchange.declare", exchange=history, type="x-recent-history", durable=True)
    a.publish(history, "", "old", delivery_mode=2)
    a.consume(queue, "1")
    a.send("queue.bind", queue=queue, exchange=history)
    a.hear(2)
    a.hear()
    a.call("exchange.delete", exchange=history)
    a.call("queue.delete", queue=queue)


@script(54)
def cancelled_and_not_told(s: Stage) -> None:
    a = s.channel()
    capabilities = raw.CAPABILITIES | {"consumer_cancel_notify": False}
    b = s.channel(raw.Login(capabilities=capabilities))
    queue = s.name("q")
    a.declare(queue)
    b.consume(queue, "t")
    a.call("queue.delete", queue=queue)
    b.sync()
    b.rest()


@script(55)
def consume_ok_comes_first(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.consume(queue, "t", no_ack=True)
    a.delivered(2)
    a.cancel("t")
    a.publish("", queue, "3")
    a.count(queue, 1)
    a.rest()


@script(56)
def prefetch_size(s: Stage) -> None:
    s.channel().qos(0, size=1)


@script(56)
def prefetch_of_a_consumer(s: Stage) -> None:
    a, queue = filled(s, "12345")
    a.qos(2)
    a.consume(queue, "1")
    a.delivered(2)
    a.count(queue, 3)
    a.qos(1)
    a.count(queue)
    a.consume(queue, "2")
    a.delivered(1)
    a.count(queue, 2)
    a.ack(1)
    a.delivered(1)
    a.count(queue, 1)
    a.rest()


@script(56)
def prefetch_of_a_channel(s: Stage) -> None:
    a, queue = filled(s, "12345")
    a.qos(2, overall=True)
    a.consume(queue, "1")
    a.delivered(2)
    a.count(queue, 3)
    a.rest()
    a.ack(2)
    a.delivered(1)
    a.count(queue, 2)
    a.qos(3, overall=True)
    a.delivered(1)
    a.count(queue, 1)
    a.rest()


@script(56)
def prefetch_of_both(s: Stage) -> None:
    a, queue = filled(s, "123456")
    a.qos(2)
    a.qos(3, overall=True)
    a.consume(queue, "1")
    a.delivered(2)
    a.count(queue, 4)
    a.consume(queue, "2")
    a.delivered(1)
    a.count(queue, 3)
    a.rest()


@script(56)
def prefetch_of_both_in_the_other_order(s: Stage) -> None:
    a, queue = filled(s, "1234")
    a.qos(1, overall=True)
    a.qos(2)
    a.consume(queue, "1")
    a.delivered(1)
    a.count(queue, 2)
    a.rest()


@script(56)
def prefetch_unlimited_again(s: Stage) -> None:
    a, queue = filled(s, "1234")
    a.qos(1, overall=True)
    a.consume(queue, "1")
    a.delivered(1)
    a.qos(0, overall=True)
    a.delivered(3)
    a.count(queue, 0)


@script(56)
def prefetch_and_no_ack(s: Stage) -> None:
    a, queue = filled(s, "123")
    a.qos(1)
    a.consume(queue, "1", no_ack=True)
    a.delivered(3)


@script(56)
def prefetch_and_get(s: Stage) -> None:
    a, queue = filled(s, "1234")
    a.qos(1, overall=True)
    a.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    a.consume(queue, "1")
    a.delivered(1)
    a.count(queue, 1)
    a.ack(1)
    a.count(queue, 1)
    a.rest()


@script(57)
def get(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.get(queue, no_ack=False)
    a.get(queue)
    a.get(queue)
    a.ack(1)
    a.get(queue, no_ack=False)


@script(57, 61)
def get_with_a_single_active_consumer(s: Stage) -> None:
    a, queue = filled(s, "1", arguments={"x-single-active-consumer": True})
    a.get(queue)


@script(61)
def single_active_consumer(s: Stage) -> None:
    a, queue = filled(s, arguments={"x-single-active-consumer": True})
    b = a.peer.channel(2)
    a.consume(queue, "1")
    b.consume(queue, "2")
    b.consume(queue, "3")
    for body in "12":
        a.publish("", queue, body)
    a.delivered(2)
    b.sync()
    b.rest()
    a.ack(2, multiple=True)
    a.cancel("1")
    a.publish("", queue, "3")
    b.delivered()
    b.ack(1)
    b.cancel("2")
    a.publish("", queue, "4")
    b.delivered()


@script(61)
def single_active_consumer_leaves_unacked(s: Stage) -> None:
    a, queue = filled(s, arguments={"x-single-active-consumer": True})
    a.consume(queue, "1")
    a.consume(queue, "2")
    a.confirm()
    a.publish("", queue, "1")
    a.delivered()
    a.cancel("1")
    a.publish("", queue, "2")
    a.confirmed()
    a.count(queue)
    a.rest()
    a.reject(1)
    a.delivered()


@script(61)
def single_active_consumer_is_gone(s: Stage) -> None:
    a, b, c = s.channel(), s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue, arguments={"x-single-active-consumer": True})
    b.consume(queue, "1")
    c.consume(queue, "2")
    a.publish("", queue, "1")
    a.publish("", queue, "2")
    b.delivered(2)
    b.peer.close()
    c.delivered(2)
    a.call("queue.delete", queue=queue)
    c.hear()


@script(61)
def single_active_consumer_is_exclusive(s: Stage) -> None:
    a, queue = filled(s, arguments={"x-single-active-consumer": True})
    a.consume(queue, "1", exclusive=True)
    a.declare(queue, exclusive=True, arguments={"x-single-active-consumer": True})
    a.consume(queue, "2")


@script(61, 62)
def single_active_consumer_by_priority(s: Stage) -> None:
    a, queue = filled(s, arguments={"x-single-active-consumer": True})
    a.consume(queue, "low", arguments={"x-priority": 1})
    a.consume(queue, "high", arguments={"x-priority": 5})
    a.publish("", queue, "1")
    a.delivered()
    a.cancel("low")
    a.publish("", queue, "2")
    a.delivered()


@script(61, 62)
def single_active_consumer_by_priority_of_a_quorum_queue(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(
        queue,
        durable=True,
        arguments={"x-single-active-consumer": True, "x-queue-type": "quorum"},
    )
    a.get(queue)
    a.consume(queue, "low", arguments={"x-priority": 1})
    a.consume(queue, "high", arguments={"x-priority": 5})
    a.publish("", queue, "1")
    a.delivered()
    a.call("queue.delete", queue=queue)


@script(61, 62)
def single_active_consumer_gives_way_in_a_quorum_queue(s: Stage) -> None:
    """One of a higher priority takes over when all messages of the active one are acked."""
    a = s.channel()
    queue = s.name("q")
    arguments = {"x-single-active-consumer": True, "x-queue-type": "quorum"}
    a.declare(queue, durable=True, arguments=arguments)
    a.confirm()
    for body in "1234":
        a.publish("", queue, body)
    a.confirmed()
    a.qos(2)
    a.consume(queue, "low")
    a.delivered(2)
    a.consume(queue, "high", arguments={"x-priority": 1})
    a.ack(1)
    a.ack(2)
    a.delivered(2)
    a.call("queue.delete", queue=queue)


@script(61)
def single_active_consumer_of_a_quorum_queue(s: Stage) -> None:
    """The next consumer begins while the one before it holds a message."""
    a = s.channel()
    queue = s.name("q")
    arguments = {"x-single-active-consumer": True, "x-queue-type": "quorum"}
    a.declare(queue, durable=True, arguments=arguments)
    a.consume(queue, "1")
    a.consume(queue, "2")
    a.confirm()
    a.publish("", queue, "1")
    a.confirmed()
    a.delivered()
    a.cancel("1")
    a.publish("", queue, "2")
    a.confirmed()
    a.count(queue)
    a.rest()
    a.ack(1)
    a.publish("", queue, "3")
    a.confirmed()
    a.count(queue, 0)
    a.rest()
    a.call("queue.delete", queue=queue)


@script(62)
def consumer_priority(s: Stage) -> None:
    a, queue = filled(s)
    a.qos(1)
    a.consume(queue, "none")
    a.consume(queue, "low", arguments={"x-priority": -1})
    a.consume(queue, "high", arguments={"x-priority": 10})
    for body in "1234":
        a.publish("", queue, body)
    a.count(queue, 1)
    a.delivered(3)
    a.ack(3)
    a.delivered()
    a.ack(4)
    a.publish("", queue, "5")
    a.delivered()


@script(62)
def consumer_priority_invalid(s: Stage) -> None:
    a, queue = filled(s)
    values: tuple[Any, ...] = ("5", 1.5, True, None, raw.Typed("l", 2**40), 0)
    for value in values:
        a.declare(queue, exclusive=True)
        a.consume(queue, "t", arguments={"x-priority": value})
        a.cancel("t")


@script(62)
def round_robin(s: Stage) -> None:
    a, queue = filled(s)
    a.consume(queue, "1", no_ack=True)
    a.consume(queue, "2", no_ack=True)
    a.consume(queue, "3", no_ack=True)
    for body in "123456":
        a.publish("", queue, body)
        a.delivered()


@script(55)
def no_local_is_ignored(s: Stage) -> None:
    a, queue = filled(s)
    a.consume(queue, "t", no_local=True, no_ack=True)
    a.publish("", queue, "mine")
    a.delivered()


@script(62)
def consumer_arguments_unknown(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.consume(queue, "t", arguments={"x-foo": [1, None], "x-cancel-on-ha-failover": True})
    a.delivered()
    a.consume(queue, "u", arguments={"x-stream-offset": "first"})


@script(52)
def get_beside_an_exclusive_consumer(s: Stage) -> None:
    a, queue = filled(s)
    a.qos(1)
    a.consume(queue, "1", exclusive=True)
    a.publish("", queue, "1")
    a.delivered()
    a.publish("", queue, "2")
    a.get(queue)


@script(56, 62)
def priority_and_prefetch(s: Stage) -> None:
    a, queue = filled(s)
    a.qos(2)
    a.consume(queue, "low")
    a.qos(1)
    a.consume(queue, "high", arguments={"x-priority": 1})
    for body in "1234":
        a.publish("", queue, body)
    a.delivered(3)
    a.ack(1)
    a.delivered()
    a.count(queue, 0)


@script(56)
def prefetch_of_the_greatest_number(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.qos(65_535)
    a.consume(queue)
    a.delivered(2)


@script(55)
def large_bodies_in_order(s: Stage) -> None:
    a, queue = filled(s)
    a.consume(queue, no_ack=True)
    for size in (0, 1, 131_063, 131_064, 131_065, 300_000):
        a.publish("", queue, b"x" * size)
    a.delivered(6)
