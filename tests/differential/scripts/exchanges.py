"""Declaring and deleting exchanges, bindings between them, alternate exchanges."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Stage
from support.wire.raw import Typed


@script(31)
def default_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange("", "direct", durable=True)
    a.exchange("", "direct", passive=True)
    a.call("exchange.delete", exchange="")
    a.call("exchange.bind", destination="", source="amq.fanout")
    a.call("exchange.bind", destination="amq.fanout", source="")
    a.call("exchange.unbind", destination="", source="amq.fanout")


@script(31)
def reserved_names(s: Stage) -> None:
    a = s.channel()
    a.exchange("amq.new", "direct")
    a.exchange("amq.new", "direct", passive=True)
    a.exchange("amq.direct", "direct", durable=True)
    a.exchange("amq.direct", "direct", passive=True)
    a.exchange("amq.direct", "fanout", passive=True)
    a.exchange("amq.direct", "fanout", durable=True)
    a.exchange("amq.direct", "direct")
    a.exchange("amq.topic", "topic", durable=True)
    a.exchange("amq.headers", "headers", durable=True)
    a.exchange("amq.match", "headers", durable=True)
    a.exchange("amq.fanout", "fanout", durable=True)


@script(34)
def reserved_names_deleted(s: Stage) -> None:
    a = s.channel()
    for exchange in ("amq.direct", "amq.topic", "amq.fanout", "amq.match", "amq.headers", "amq.no"):
        a.call("exchange.delete", exchange=exchange)


@script(31)
def trace_exchange(s: Stage) -> None:
    s.channel().exchange("amq.rabbitmq.trace", "topic", passive=True)


@script(32)
def type_unknown(s: Stage) -> None:
    s.channel().exchange(s.name("x"), "magic")


@script(32)
def type_empty(s: Stage) -> None:
    s.channel().exchange(s.name("x"), "")


@script(32)
def type_unknown_passively(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    a.exchange(s.name("x"), "magic", passive=True)
    a.exchange(s.name("missing"), "magic", passive=True)


def again(s: Stage, first: dict[str, Any], second: dict[str, Any]) -> None:
    """Declare an exchange twice."""
    a = s.channel()
    a.exchange(s.name("x"), **({"type": "direct"} | first))
    a.exchange(s.name("x"), **({"type": "direct"} | second))
    a.call("exchange.delete", exchange=s.name("x"))


@script(33)
def again_equal(s: Stage) -> None:
    again(s, {"durable": True, "internal": True}, {"durable": True, "internal": True})


@script(33)
def again_other_type(s: Stage) -> None:
    again(s, {}, {"type": "topic"})


@script(33)
def again_durable(s: Stage) -> None:
    again(s, {}, {"durable": True})


@script(33)
def again_auto_delete(s: Stage) -> None:
    again(s, {}, {"auto_delete": True})


@script(33)
def again_internal(s: Stage) -> None:
    again(s, {"internal": True}, {})


@script(33)
def again_alternate(s: Stage) -> None:
    again(s, {"arguments": {"alternate-exchange": "a"}}, {"arguments": {"alternate-exchange": "b"}})


@script(33)
def again_without_alternate(s: Stage) -> None:
    again(s, {"arguments": {"alternate-exchange": "a"}}, {})


@script(33)
def again_with_alternate(s: Stage) -> None:
    again(s, {}, {"arguments": {"alternate-exchange": "a"}})


@script(33)
def again_other_arguments(s: Stage) -> None:
    again(s, {"arguments": {"x-a": 1}}, {"arguments": {"x-a": 2, "x-b": "c"}})


@script(33)
def again_two_differences(s: Stage) -> None:
    again(s, {"durable": True}, {"type": "fanout", "auto_delete": True})


@script(33)
def alternate_of_another_type(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), arguments={"alternate-exchange": 5})
    a.exchange(s.name("x"), arguments={"alternate-exchange": True})
    a.exchange(s.name("x"), arguments={"alternate-exchange": ""})
    a.call("exchange.delete", exchange=s.name("x"))


@script(34)
def passive_missing(s: Stage) -> None:
    s.channel().exchange(s.name("x"), passive=True)


@script(34)
def passive_with_differences(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "direct", durable=True)
    a.exchange(s.name("x"), "fanout", passive=True, auto_delete=True, internal=True)
    a.call("exchange.delete", exchange=s.name("x"))


@script(34)
def delete_missing(s: Stage) -> None:
    a = s.channel()
    a.call("exchange.delete", exchange=s.name("x"))
    a.call("exchange.delete", exchange=s.name("x"), if_unused=True)


@script(34)
def delete_if_unused(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout")
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"))
    a.call("exchange.delete", exchange=s.name("x"), if_unused=True)
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"))
    a.call("exchange.delete", exchange=s.name("x"), if_unused=True)
    a.exchange(s.name("x"), passive=True)


@script(34)
def delete_if_unused_as_destination(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout")
    a.call("exchange.bind", destination=s.name("x"), source="amq.fanout")
    a.call("exchange.delete", exchange=s.name("x"), if_unused=True)


@script(34)
def no_wait(s: Stage) -> None:
    a = s.channel()
    a.send("exchange.declare", exchange=s.name("x"), type="fanout", no_wait=True)
    a.exchange(s.name("x"), passive=True)
    a.send("exchange.delete", exchange=s.name("x"), no_wait=True)
    a.exchange(s.name("x"), passive=True)


@script(35)
def bind_to_the_default_exchange(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), "", "key")
    a.call("queue.unbind", queue=s.name("q"), exchange="", routing_key="key")
    a.call("queue.unbind", queue=s.name("q"), exchange="", routing_key=s.name("q"))


@script(35)
def bind_missing(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "key")
    a.bind(s.name("missing"), "amq.direct", "key")
    a.bind(s.name("missing"), s.name("x"), "key")
    a.call("exchange.bind", destination="amq.fanout", source=s.name("x"))
    a.call("exchange.bind", destination=s.name("x"), source="amq.fanout")


@script(35)
def unbind_missing(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.call("queue.unbind", queue=s.name("q"), exchange="amq.direct", routing_key="never")
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"), routing_key="never")
    a.call("queue.unbind", queue=s.name("missing"), exchange="amq.direct", routing_key="never")
    a.call("exchange.unbind", destination="amq.fanout", source="amq.topic")
    a.call("exchange.unbind", destination=s.name("x"), source="amq.topic")
    a.call("exchange.unbind", destination="amq.topic", source=s.name("x"))


@script(36)
def binding_identity(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    a.exchange(s.name("x"), auto_delete=True)
    a.bind(queue, s.name("x"), "k")
    a.bind(queue, s.name("x"), "k")
    a.bind(queue, s.name("x"), "k", arguments={"n": 1})
    a.bind(queue, s.name("x"), "other")
    a.publish(s.name("x"), "k", "one copy")
    a.drain(queue)
    a.call("queue.unbind", queue=queue, exchange=s.name("x"), routing_key="k")
    a.publish(s.name("x"), "k", "by the one with arguments")
    a.drain(queue)
    arguments = {"n": 1}
    a.call("queue.unbind", queue=queue, exchange=s.name("x"), routing_key="k", arguments=arguments)
    a.publish(s.name("x"), "k", "by none")
    a.drain(queue)


@script(36)
def binding_arguments_by_type(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True)
    a.exchange(s.name("x"), auto_delete=True)
    a.bind(queue, s.name("x"), "k", arguments={"n": Typed("b", 1)})
    wide = {"n": Typed("l", 1)}
    a.call("queue.unbind", queue=queue, exchange=s.name("x"), routing_key="k", arguments=wide)
    a.publish(s.name("x"), "k", "still bound?")
    a.drain(queue)


@script(36)
def two_bindings_one_copy(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.exchange(s.name("x"), "topic", auto_delete=True)
    for key in ("a.*", "a.#", "*.b"):
        a.bind(s.name("q"), s.name("x"), key)
    a.publish(s.name("x"), "a.b", "once")
    a.drain(s.name("q"))


@script(37)
def circle_of_exchanges(s: Stage) -> None:
    a = s.channel()
    for x in "123":
        a.exchange(s.name(x), "fanout")
    for x, y in ("12", "23", "31"):
        a.call("exchange.bind", destination=s.name(y), source=s.name(x))
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("1"))
    a.bind(s.name("q"), s.name("3"))
    a.publish(s.name("1"), "", "once")
    a.drain(s.name("q"))
    for x in "123":
        a.call("exchange.delete", exchange=s.name(x))


@script(37)
def exchange_bound_to_itself(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout")
    a.call("exchange.bind", destination=s.name("x"), source=s.name("x"))
    a.publish(s.name("x"), "", "nowhere", mandatory=True)
    a.hear()
    a.call("exchange.delete", exchange=s.name("x"))


@script(37)
def exchange_bindings_by_key(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("t"), "topic")
    a.exchange(s.name("f"), "fanout", internal=True)
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("f"))
    fields = {"destination": s.name("f"), "source": s.name("t"), "routing_key": "a.#"}
    a.call("exchange.bind", **fields)
    a.publish(s.name("t"), "a.b", "comes")
    a.publish(s.name("t"), "b.a", "is gone")
    a.drain(s.name("q"))
    a.call("exchange.unbind", **fields)
    a.publish(s.name("t"), "a.b", "is gone too")
    a.drain(s.name("q"))
    for x in "tf":
        a.call("exchange.delete", exchange=s.name(x))


@script(37)
def alternate_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("other"), "fanout")
    a.exchange(s.name("x"), "direct", arguments={"alternate-exchange": s.name("other")})
    a.declare(s.name("q"), exclusive=True)
    a.declare(s.name("rest"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "k")
    a.bind(s.name("rest"), s.name("other"))
    a.publish(s.name("x"), "k", "matched")
    a.publish(s.name("x"), "no", "unmatched", mandatory=True)
    a.drain(s.name("q"))
    a.drain(s.name("rest"))
    a.call("exchange.delete", exchange=s.name("other"))
    a.publish(s.name("x"), "no", "its alternate is gone", mandatory=True)
    a.hear()
    a.call("exchange.delete", exchange=s.name("x"))


@script(37)
def alternate_circle(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("1"), "direct", arguments={"alternate-exchange": s.name("2")})
    a.exchange(s.name("2"), "direct", arguments={"alternate-exchange": s.name("1")})
    a.publish(s.name("1"), "no", "round", mandatory=True)
    a.hear()
    for x in "12":
        a.call("exchange.delete", exchange=s.name(x))


@script(37)
def alternate_of_a_bound_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("other"), "fanout")
    a.exchange(s.name("inner"), "direct", arguments={"alternate-exchange": s.name("other")})
    a.exchange(s.name("x"), "fanout")
    a.call("exchange.bind", destination=s.name("inner"), source=s.name("x"))
    a.declare(s.name("q"), exclusive=True)
    a.declare(s.name("rest"), exclusive=True)
    a.bind(s.name("q"), s.name("x"))
    a.bind(s.name("rest"), s.name("other"))
    a.publish(s.name("x"), "no", "both")
    a.drain(s.name("q"))
    a.drain(s.name("rest"))
    for x in ("x", "inner", "other"):
        a.call("exchange.delete", exchange=s.name(x))


@script(38)
def auto_delete(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    a.exchange(s.name("x"), passive=True)
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), s.name("x"), "1")
    a.bind(s.name("q"), s.name("x"), "2")
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"), routing_key="1")
    a.exchange(s.name("x"), passive=True)
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"), routing_key="2")
    a.exchange(s.name("x"), passive=True)


@script(38)
def auto_delete_with_its_queue(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    a.exchange(s.name("y"), "fanout", auto_delete=True)
    a.call("exchange.bind", destination=s.name("y"), source=s.name("x"))
    a.declare(s.name("q"))
    a.bind(s.name("q"), s.name("y"))
    a.call("queue.delete", queue=s.name("q"))
    a.exchange(s.name("y"), passive=True)
    a.exchange(s.name("x"), passive=True)


@script(19)
def internal(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", internal=True)
    a.publish(s.name("x"), "", "refused")
    a.hear()
    a.call("exchange.delete", exchange=s.name("x"))


@script(41)
def line_ends_in_names(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x\r\n1"), "fanout")
    a.exchange(s.name("x1"), "fanout", passive=True)
    a.publish(s.name("x\r\n1"), "", "in the name of a publish", mandatory=True)
    a.hear()
    a.call("exchange.delete", exchange=s.name("x1"))


@script(41)
def long_names(s: Stage) -> None:
    a = s.channel()
    name = s.name("x" * (255 - len(s.name(""))))
    a.exchange(name, "fanout", auto_delete=True)
    a.exchange(name, "topic")
    a.declare(name, auto_delete=True)
    a.bind(name, name, "k" * 255)
    a.publish(name, "k" * 255, "long")
    a.drain(name)
    a.call("queue.delete", queue=name)
    a.count(name)
