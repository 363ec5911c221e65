"""Declaring, purging and deleting queues; whose they are and how long they live."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Channel, Stage
from support.wire.raw import Typed


@script(42)
def server_named(s: Stage) -> None:
    a = s.channel()
    first = a.declare(exclusive=True).fields["queue"]
    second = a.declare(exclusive=True).fields["queue"]
    s.note(str(first != second and first.startswith("amq.gen-")))
    a.publish("", second, "x")
    a.drain(second)


@script(42)
def server_named_declared_again(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = a.declare().fields["queue"]
    b.count(queue)
    b.declare(queue)
    a.call("queue.delete", queue=queue)


@script(43)
def reserved_names(s: Stage) -> None:
    a = s.channel()
    a.declare("amq.mine")
    a.declare("amq.", exclusive=True)
    a.declare("amq.mine", passive=True)
    a.declare("amqp")
    a.call("queue.delete", queue="amqp")
    a.call("queue.delete", queue="amq.mine")


@script(44)
def exclusive_of_another(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    a.bind(queue, "amq.fanout", "bound")
    b.declare(queue, exclusive=True)
    b.declare(queue)
    b.count(queue)
    b.get(queue)
    b.consume(queue)
    b.bind(queue, "amq.fanout")
    b.call("queue.unbind", queue=queue, exchange="amq.fanout", routing_key="bound")
    b.call("queue.unbind", queue=queue, exchange="amq.fanout", routing_key="never")
    b.call("queue.purge", queue=queue)
    b.call("queue.delete", queue=queue)
    b.publish("", queue, "anybody may publish")
    b.sync()
    b.publish("", queue, "second", mandatory=True)
    b.sync()
    a.declare(queue, exclusive=True)


@script(44)
def exclusive_differs(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.declare(s.name("q"))
    a.declare(s.name("q"), exclusive=True)
    a.declare(s.name("p"))
    a.declare(s.name("p"), exclusive=True)
    a.call("queue.delete", queue=s.name("p"))


@script(44)
def exclusive_of_another_that_is_missing(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.peer.close()
    # RabbitMQ 4.3 deletes the queue after it has answered the close.
    b = s.channel()
    b.declare(s.name("q"), exclusive=True)
    b.call("queue.delete", queue=s.name("q"))


@script(44)
def transient_and_shared(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"))
    a.call("queue.delete", queue=s.name("q"))


@script(44)
def exclusive_and_durable(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True, durable=True)
    a.declare(s.name("q"), exclusive=True)
    a.declare(s.name("q"), exclusive=True, durable=True, auto_delete=True)
    a.count(s.name("q"))


def again(s: Stage, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Declare a queue twice."""
    a = s.channel()
    a.declare(s.name("q"), **first)
    a.declare(s.name("q"), **second)
    a.call("queue.delete", queue=s.name("q"))


@script(45)
def again_equal(s: Stage) -> None:
    arguments = {"x-message-ttl": 60_000, "x-foo": "bar"}
    again(s, {"durable": True, "arguments": arguments}, {"durable": True, "arguments": arguments})


@script(45)
def again_durable(s: Stage) -> None:
    again(s, {}, {"durable": True})


@script(45)
def again_transient(s: Stage) -> None:
    again(s, {"durable": True}, {})


@script(45)
def again_auto_delete(s: Stage) -> None:
    again(s, {}, {"auto_delete": True})


@script(45)
def again_two_differences(s: Stage) -> None:
    again(s, {"durable": True}, {"auto_delete": True, "arguments": {"x-message-ttl": 1000}})


#: An argument with two values that a queue may have.
ARGUMENTS: dict[str, tuple[object, object]] = {
    "x-expires": (60_000, 70_000),
    "x-message-ttl": (60_000, 70_000),
    "x-max-length": (10, 11),
    "x-max-length-bytes": (1000, 1001),
    "x-max-priority": (5, 6),
    "x-overflow": ("drop-head", "reject-publish"),
    "x-dead-letter-exchange": ("a", "b"),
    "x-queue-mode": ("lazy", "default"),
    "x-queue-version": (1, 2),
    "x-single-active-consumer": (True, False),
    "x-queue-type": ("classic", "classic"),
    "x-foo": ("bar", "baz"),
}


@script(45)
def again_other_argument(s: Stage) -> None:
    for name, (first, second) in ARGUMENTS.items():
        s.note(name)
        again(s, {"arguments": {name: first}}, {"arguments": {name: second}})


@script(45)
def again_without_argument(s: Stage) -> None:
    for name, (first, _) in ARGUMENTS.items():
        s.note(name)
        again(s, {"arguments": {name: first}}, {})


@script(45)
def again_with_argument(s: Stage) -> None:
    for name, (first, _) in ARGUMENTS.items():
        s.note(name)
        again(s, {}, {"arguments": {name: first}})


@script(45)
def again_with_other_width(s: Stage) -> None:
    for name in ("x-expires", "x-message-ttl", "x-max-length", "x-max-priority"):
        s.note(name)
        for tag in "bBsuIil":
            first, second = Typed("b", 100), Typed(tag, 100)
            again(s, {"arguments": {name: first}}, {"arguments": {name: second}})


@script(45)
def again_with_other_dead_letter_key(s: Stage) -> None:
    first = {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k"}
    again(s, {"arguments": first}, {"arguments": first | {"x-dead-letter-routing-key": "l"}})
    again(s, {"arguments": first}, {"arguments": {"x-dead-letter-exchange": "a"}})


@script(45)
def again_passively(s: Stage) -> None:
    first = {"durable": True, "arguments": {"x-message-ttl": 60_000}}
    again(s, first, {"passive": True, "auto_delete": True, "arguments": {"x-message-ttl": 1}})


#: Values that do not fit the argument, and some at the edge of what does.
INVALID: dict[str, tuple[object, ...]] = {
    "x-expires": (
        0, -1, "10", 1.5, True, None, Typed("l", 2**32), Typed("l", 2**40), Typed("T", 9)
    ),
    "x-message-ttl": (-1, "10", 1.5, True, None, Typed("l", 2**32 - 1), Typed("l", 2**40), 0),
    "x-max-length": (-1, "10", 1.5, True, None, Typed("l", 2**40), 0),
    "x-max-length-bytes": (-1, "10", 1.5, None, Typed("l", 2**40), 0),
    "x-max-priority": (-1, 256, "10", 1.5, None, 255, 0),
    "x-overflow": ("reject", "", 5, None, "reject-publish-dlx"),
    "x-dead-letter-exchange": (5, None, True, "", b"bytes"),
    "x-dead-letter-routing-key": (5, "key", None),
    "x-queue-mode": ("eager", 5, "default"),
    "x-queue-version": (0, 3, "2", 2),
    "x-single-active-consumer": ("yes", 1, None),
    "x-queue-type": ("magic", 5, "", None, "classic"),
    "x-delivery-limit": (5, "5", -1),
    "x-max-age": ("1D",),
    "x-foo": (5, None, {"a": [1, "b"]}, Typed("D", (1, 15)), b"x"),
    "x-consumer-timeout": (5, -1, "a"),
    "x-queue-leader-locator": ("client-local", "magic", 5),
    "x-max-in-memory-length": (5, -1),
    "x-stream-max-segment-size-bytes": (500,),
    "x-initial-cluster-size": (1,),
}  # fmt: skip


def argument_values(s: Stage, name: str) -> None:
    """Declare a queue with each value."""
    a = s.channel()
    for value in INVALID[name]:
        a.declare(s.name("q"), arguments={name: value})
        a.call("queue.delete", queue=s.name("q"))


@script(46)
def argument_expires(s: Stage) -> None:
    argument_values(s, "x-expires")


@script(46)
def argument_message_ttl(s: Stage) -> None:
    argument_values(s, "x-message-ttl")


@script(46)
def argument_max_length(s: Stage) -> None:
    argument_values(s, "x-max-length")


@script(46)
def argument_max_length_bytes(s: Stage) -> None:
    argument_values(s, "x-max-length-bytes")


@script(46)
def argument_max_priority(s: Stage) -> None:
    argument_values(s, "x-max-priority")


@script(46)
def argument_overflow(s: Stage) -> None:
    argument_values(s, "x-overflow")


@script(46)
def argument_dead_letter(s: Stage) -> None:
    argument_values(s, "x-dead-letter-exchange")
    argument_values(s, "x-dead-letter-routing-key")


@script(46)
def argument_queue_mode_and_version(s: Stage) -> None:
    argument_values(s, "x-queue-mode")
    argument_values(s, "x-queue-version")


@script(46)
def argument_single_active_consumer(s: Stage) -> None:
    argument_values(s, "x-single-active-consumer")


@script(46)
def argument_queue_type(s: Stage) -> None:
    argument_values(s, "x-queue-type")


@script(46)
def argument_of_another_queue_type(s: Stage) -> None:
    for name in (
        "x-delivery-limit", "x-max-age", "x-max-in-memory-length",
        "x-stream-max-segment-size-bytes", "x-initial-cluster-size",
    ):  # fmt: skip
        argument_values(s, name)


@script(46)
def argument_unknown(s: Stage) -> None:
    argument_values(s, "x-foo")


@script(46)
def argument_consumer_timeout(s: Stage) -> None:
    argument_values(s, "x-consumer-timeout")


@script(46)
def argument_leader_locator(s: Stage) -> None:
    argument_values(s, "x-queue-leader-locator")


@script(47)
def passive_missing(s: Stage) -> None:
    a = s.channel()
    a.count(s.name("q"))
    a.count(s.name("q") + "\r\n")


@script(47)
def delete_missing(s: Stage) -> None:
    a = s.channel()
    a.call("queue.delete", queue=s.name("q"))
    a.call("queue.delete", queue=s.name("q"), if_unused=True, if_empty=True)
    a.call("queue.purge", queue=s.name("q"))


@script(47)
def delete_if_unused(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue)
    b = s.channel()
    b.consume(queue)
    a.call("queue.delete", queue=queue, if_unused=True)
    b.cancel()
    a.call("queue.delete", queue=queue, if_unused=True)


@script(47)
def delete_if_empty(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue)
    a.publish("", queue, "1")
    a.publish("", queue, "2")
    a.call("queue.delete", queue=queue, if_empty=True)
    a.call("queue.delete", queue=queue, if_empty=True, if_unused=True)
    a.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    a.call("queue.delete", queue=queue, if_empty=True)


@script(47)
def delete_counts(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue)
    for body in "123":
        a.publish("", queue, body)
    a.get(queue, no_ack=False)
    a.call("queue.delete", queue=queue)
    a.ack(1)
    a.sync()


@script(47)
def purge(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    for body in "1234":
        a.publish("", queue, body)
    got = a.get(queue, no_ack=False)
    a.call("queue.purge", queue=queue)
    a.call("queue.purge", queue=queue)
    a.reject(got.tag)
    a.count(queue, 1)
    a.drain(queue)


@script(47)
def no_wait(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.send("queue.declare", queue=queue, no_wait=True)
    a.send("queue.bind", queue=queue, exchange="amq.direct", routing_key=queue, no_wait=True)
    a.publish("amq.direct", queue, "1")
    a.count(queue, 1)
    a.send("queue.purge", queue=queue, no_wait=True)
    a.count(queue)
    a.send("queue.delete", queue=queue, no_wait=True)
    a.count(queue)


@script(48)
def auto_delete(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue, auto_delete=True)
    a.publish("", queue, "1")
    a.get(queue)
    a.count(queue)
    a.consume(queue, "1")
    b.consume(queue, "2")
    a.cancel("1")
    a.count(queue)
    b.cancel("2")
    a.count(queue)


@script(48)
def auto_delete_with_its_connection(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue, auto_delete=True)
    a.bind(queue, "amq.direct", queue)
    b.consume(queue)
    a.publish("", queue, "1")
    b.delivered()
    b.peer.close()
    a.count(queue, -1)
    a.publish("amq.direct", queue, "no queue", mandatory=True)
    a.hear()


@script(48)
def auto_delete_with_its_channel(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    queue = s.name("q")
    a.declare(queue, auto_delete=True)
    b.consume(queue)
    b.close()
    a.count(queue, -1)


@script(50)
def counts(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    for body in "123":
        a.publish("", queue, body)
    a.count(queue, 3)
    a.get(queue, no_ack=False)
    a.count(queue, 2)
    a.qos(1)
    a.consume(queue)
    a.delivered()
    a.count(queue, 1)
    a.declare(queue, exclusive=True)


@script(49)
def expires(s: Stage) -> None:
    a = s.channel()
    dead, queue = s.name("dead"), s.name("q")
    a.declare(dead, exclusive=True)
    arguments = {
        "x-expires": 200, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead
    }  # fmt: skip
    a.declare(queue, arguments=arguments)
    a.publish("", queue, "expires with its queue, and no dead letter")
    tick(a, s.name("clock"), 600)
    a.count(queue)
    a.drain(dead)


def tick(a: Channel, clock: str, milliseconds: int) -> None:
    """Wait by a message that expires after the time and is dead-lettered to a consumer."""
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": clock + "-out"}
    a.declare(clock + "-in", exclusive=True, arguments=arguments)
    a.declare(clock + "-out", exclusive=True)
    a.consume(clock + "-out", "tick", no_ack=True)
    a.publish("", clock + "-in", "tick", expiration=str(milliseconds))
    a.delivered()
    a.cancel("tick")


@script(49)
def expires_not_in_use(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, arguments={"x-expires": 300})
    a.consume(queue)
    tick(a, s.name("clock"), 700)
    a.count(queue)
    a.cancel()
    tick(a, s.name("clock"), 700)
    a.count(queue)
