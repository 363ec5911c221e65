"""Acks, rejects and requeues: tags, order, recover."""

from __future__ import annotations

from differential.script import script
from differential.scripts.consuming import filled
from differential.stage import Stage


@script(58)
def ack_unknown(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.ack(1)
    a.sync()
    a.declare(queue, exclusive=True)
    a.get(queue, no_ack=False)
    a.ack(1)
    a.ack(1)
    a.sync()
    a.reject(7)
    a.sync()
    a.nack(7)
    a.sync()


@script(58)
def ack_zero(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.ack(0, multiple=True)
    a.sync()
    a.nack(0, multiple=True)
    a.sync()
    a.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    a.ack(0, multiple=True)
    a.count(queue)
    a.ack(0)
    a.sync()
    a.nack(0)
    a.sync()
    a.reject(0)
    a.sync()


@script(58)
def ack_several(s: Stage) -> None:
    a, queue = filled(s, "12345")
    for _ in range(5):
        a.get(queue, no_ack=False)
    a.ack(2)
    a.ack(3, multiple=True)
    a.nack(5, multiple=True)
    a.count(queue, 2)
    a.ack(5, multiple=True)
    a.sync()
    a.drain(queue)


@script(58)
def ack_on_another_channel(s: Stage) -> None:
    a, queue = filled(s, "1")
    b = a.peer.channel(2)
    a.get(queue, no_ack=False)
    b.ack(1)
    b.sync()
    a.ack(1)
    a.count(queue)


@script(58)
def ack_of_what_needs_none(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.get(queue)
    a.ack(1)
    a.sync()


@script(58)
def ack_several_beyond(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.get(queue, no_ack=False)
    a.ack(9, multiple=True)
    a.sync()


@script(59)
def requeue_order(s: Stage) -> None:
    a, queue = filled(s, "12345")
    for _ in range(4):
        a.get(queue, no_ack=False)
    a.reject(3)
    a.nack(1)
    a.count(queue, 3)
    a.get(queue, no_ack=False)
    a.nack(0, multiple=True)
    a.count(queue, 5)
    a.publish("", queue, "new")
    a.drain(queue)


@script(59)
def requeue_to_its_consumer(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.qos(1)
    a.consume(queue, "t")
    a.delivered()
    a.reject(1)
    a.delivered()
    a.ack(2)
    a.delivered()
    a.ack(3)
    a.count(queue)
    a.rest()


@script(59)
def requeue_by_a_closed_connection(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue)
    for body in "123":
        a.publish("", queue, body)
    a.count(queue, 3)
    b.consume(queue, "t")
    b.delivered(3)
    b.ack(2)
    b.sync()
    a.publish("", queue, "new")
    b.delivered()
    b.peer.close()
    a.count(queue, 3)
    a.drain(queue)
    a.call("queue.delete", queue=queue)


@script(60)
def recover(s: Stage) -> None:
    a, queue = filled(s, "123")
    a.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    a.call("basic.recover", requeue=True)
    a.drain(queue)
    a.call("basic.recover", requeue=True)


@script(60)
def recover_async(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.get(queue, no_ack=False)
    a.send("basic.recover-async", requeue=True)
    a.count(queue, 2)
    a.drain(queue)


@script(60)
def recover_to_a_consumer(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.consume(queue, "t")
    a.delivered(2)
    a.call("basic.recover", requeue=True)
    a.delivered(2)


@script(60)
def recover_without_requeue(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.get(queue, no_ack=False)
    a.call("basic.recover", requeue=False)


@script(60)
def recover_async_without_requeue(s: Stage) -> None:
    a, queue = filled(s, "1")
    a.get(queue, no_ack=False)
    a.send("basic.recover-async", requeue=False)
    a.hear()


@script(59)
def requeue_of_two_channels(s: Stage) -> None:
    peer = s.peer()
    a, b = peer.channel(1), peer.channel(2)
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    for body in "1234":
        a.publish("", queue, body)
    a.count(queue, 4)
    a.get(queue, no_ack=False)
    b.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    b.get(queue, no_ack=False)
    b.close()
    a.count(queue, 2)
    a.get(queue, no_ack=False)
    a.nack(0, multiple=True)
    a.count(queue, 4)
    a.drain(queue)


@script(60)
def recover_and_ack(s: Stage) -> None:
    a, queue = filled(s, "12")
    a.get(queue, no_ack=False)
    a.call("basic.recover", requeue=True)
    a.ack(1)
    a.sync()
